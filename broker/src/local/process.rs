//! A child process that ends with its owner, and helpers for starting a server.
//!
//! The child leads its own process group. A watchdog shell in that group reads a pipe, and only
//! this process holds the other end. When it drops the child, panics or is killed by any signal,
//! the pipe closes and the watchdog kills the group.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::LocalError;

/// `$0` is the name of the script, `$@` the server's command line; `exec` keeps the pid.
const WATCHDOG: &str = r#"exec 3<&0; (cat <&3 >/dev/null 2>&1; kill -KILL 0) & exec "$@" </dev/null 3<&-"#;

/// A running child and its process group.
#[derive(Debug)]
pub struct Guarded {
    /// Its standard input is the watchdog's pipe; kept open by `Child`.
    child: Child,
}

impl Guarded {
    /// Starts `command` (program, arguments, environment, folder) under a watchdog; its output goes
    /// to `log`.
    pub fn spawn(command: &Command, log: &File) -> std::io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", WATCHDOG, "dyad-watchdog"])
            .arg(command.get_program())
            .args(command.get_args());
        shell.env_clear();
        for key in ["PATH", "LANG", "TMPDIR"] {
            if let Some(value) = std::env::var_os(key) {
                shell.env(key, value);
            }
        }
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                shell.env(key, value);
            }
        }
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        let child = shell
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()?;
        Ok(Self { child })
    }

    /// Returns the server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until `answers` returns true.
    ///
    /// # Errors
    /// [`LocalError::Exited`] if the server ends first, [`LocalError::Slow`] after `patience`.
    pub(super) async fn until_ready<F: Future<Output = bool>>(
        &mut self,
        server: &'static str,
        log: &Path,
        patience: Duration,
        answers: impl Fn() -> F,
    ) -> Result<(), LocalError> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.ended() {
                return Err(LocalError::Exited {
                    server,
                    status: status.to_string(),
                    log: log.to_owned(),
                    tail: tail(log),
                });
            }
            if answers().await {
                tracing::debug!(pid = self.pid(), "{server} is ready after {:?}", begun.elapsed());
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(LocalError::Slow {
            server,
            waited: patience,
            log: log.to_owned(),
        })
    }

    fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends SIGKILL to the whole group. Returns when the server has ended.
    pub fn kill(&mut self) {
        // The pid of a reaped server may be reused; the watchdog then ends the rest when the pipe
        // closes.
        if self.ended().is_none()
            && let Some(pid) = self.raw_pid()
        {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, then SIGKILL after `grace`. Blocks for as long.
    pub fn stop(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        if self.ended().is_none()
            && let Some(pid) = self.raw_pid()
        {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
            while self.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.kill();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a loopback port that was free a moment ago.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the first of `candidates` that is a file, else `name` in PATH.
#[must_use]
pub fn find_binary(candidates: &[&str], name: &str) -> Option<PathBuf> {
    let fixed = candidates.iter().map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(name)).collect();
    fixed.chain(searched).find(|file| file.is_file())
}

/// Creates a folder and its parents, readable by this user only.
pub fn private_folder(path: &Path) -> Result<(), LocalError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(LocalError::io("create", path))
}

/// Opens a server's log and locks it.
///
/// The server inherits the lock with the file, so it holds until the server itself has ended, even
/// if its owner was killed. A predecessor that is still ending gets a few seconds.
pub fn lock_log(path: &Path, folder: &Path) -> Result<File, LocalError> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(path)
        .map_err(LocalError::io("open", path))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match log.try_lock() {
            Ok(()) => return Ok(log),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => return Err(LocalError::InUse(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(LocalError::io("lock", path)(source)),
        }
    }
}

/// Returns the last part of a log, for an error message.
fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(1500)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Returns the secret in a file, made at first use: 32 random hexadecimal digits.
pub fn secret(path: &Path) -> Result<String, LocalError> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().len() == 32 => return Ok(text.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(LocalError::io("read", path)(error)),
    }
    let text = random_secret()?;
    write_private(path, &text)?;
    Ok(text)
}

/// Returns 32 hexadecimal digits from the system's random numbers.
pub fn random_secret() -> Result<String, LocalError> {
    let bytes: [u8; 16] = random_bytes()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns bytes from the system's random numbers.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], LocalError> {
    let mut bytes = [0u8; N];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(LocalError::io("read", "/dev/urandom"))?;
    Ok(bytes)
}

/// Writes a file that only this user can read, whatever its permissions were before.
pub fn write_private(path: &Path, text: &str) -> Result<(), LocalError> {
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            // The mode above applies to a new file only.
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())
        })
        .map_err(LocalError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: u32) -> bool {
        // A zombie has ended: it only waits to be reaped.
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
    }

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "never happened: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_private_file_is_private_whatever_it_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn the_whole_group_ends_with_its_owner_even_after_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("grandchild");
        let log = lock_log(&folder.path().join("log"), folder.path()).unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(format!("sleep 1000 & echo $! > {}; wait", pid_file.display()));
        let grandchild = || {
            std::fs::read_to_string(&pid_file)
                .ok()
                .and_then(|text| text.trim().parse::<u32>().ok())
        };
        let mut seen = (0, 0);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let child = Guarded::spawn(&command, &log).unwrap();
            wait_until("the grandchild starts", || grandchild().is_some());
            seen = (child.pid(), grandchild().unwrap());
            assert!(alive(seen.0) && alive(seen.1));
            panic!("as a failing test does");
        }));
        assert!(outcome.is_err());
        wait_until("both end", || !alive(seen.0) && !alive(seen.1));
    }

    #[test]
    fn a_log_is_locked_until_the_server_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = lock_log(&path, folder.path()).unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let child = Guarded::spawn(&command, &log).unwrap();
        drop(log);
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(child);
        wait_until("the lock is free", || other.try_lock().is_ok());
    }

    #[test]
    fn a_secret_is_made_once_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let first = secret(&path).unwrap();
        assert_eq!(first, secret(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
