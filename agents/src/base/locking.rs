//! Locks of files that a process has for life, and that go with it.

use std::fs::{File, TryLockError};
use std::time::Duration;

/// How often a lock is tried again, and after which pause: a tenth of a second in all.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Locks a file, or says after a moment that somebody else has it. A child that a process of the same name has just forked, and that has
/// not begun its own program yet, holds what its parent has dropped or died with.
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
    fn a_lock_that_goes_in_a_moment_is_waited_for_and_one_that_stays_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let first = open();
        first.try_lock().unwrap();
        assert!(matches!(lock_soon(&open()), Err(TryLockError::WouldBlock)));
        // As a child has it between its fork and its own program.
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
