//! File locks that a process holds for life and that end with it.

use std::fs::{File, TryLockError};
use std::time::Duration;

/// The number of retries of a lock and the pause between them: half a second in all.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Locks a file, or reports after a moment that another process holds the lock. A child that was
/// just forked keeps its parent's locks until it executes its own program. The retries outlast that
/// moment, even if the parent has dropped the lock or died.
pub(crate) fn lock_soon(file: &File) -> Result<(), TryLockError> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            locked => return locked,
        }
    }
    file.try_lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_lock_is_waited_for_and_a_lasting_one_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        first.try_lock().unwrap();
        assert!(matches!(lock_soon(&open()), Err(TryLockError::WouldBlock)));
        // A child holds the lock like this between its fork and its own program.
        let held = first.try_clone().unwrap();
        drop(first);
        let child = std::thread::spawn(move || {
            std::thread::sleep(PAUSE);
            drop(held);
        });
        lock_soon(&open()).unwrap();
        child.join().unwrap();
    }
}
