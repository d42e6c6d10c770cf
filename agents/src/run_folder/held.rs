//! The lock of the process that plays a run: `dyad run` or `dyad up`, on this machine.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::RunFolder;
use crate::base::fault::Usage;

/// Readers of the lock hold it for a moment too.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// A locked run. The system ends the lock with the process.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "the lock ends with the file")] File);

impl RunFolder {
    /// Locks the run for this process.
    ///
    /// # Errors
    /// Another process plays the run, or the file of the lock cannot be used.
    pub fn hold(&self) -> anyhow::Result<Held> {
        let path = self.lock();
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut file = open().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0)?;
                    write!(file, "{}", std::process::id())?;
                    return Ok(Held(file));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                // A file system without locks.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(Held(file)),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        let run = self.run();
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        Err(Usage::new(format!("process {holder} plays run {run} already"))
            .hint(format!(
                "`dyad status --run {run}` shows it; stop that process first to continue the run here"
            ))
            .into())
    }

    /// Returns false if no process on this machine plays the run, true if one does or the lock
    /// cannot be read.
    pub fn is_held(&self) -> bool {
        is_locked(&self.lock())
    }

    fn lock(&self) -> std::path::PathBuf {
        self.path.join("run.lock")
    }
}

fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock_shared().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn a_run_has_one_process_that_plays_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert!(!folder.is_held());
        let held = folder.hold().unwrap();
        assert!(folder.is_held());
        let error = folder.hold().unwrap_err().to_string();
        assert_eq!(
            error,
            format!("process {} plays run {} already", std::process::id(), folder.run())
        );
        drop(held);
        // A child that another test has just forked has the lock until it executes its own program.
        let begun = Instant::now();
        while folder.is_held() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the lock outlives its process"
            );
            std::thread::sleep(PAUSE);
        }
        folder.hold().unwrap();
    }
}
