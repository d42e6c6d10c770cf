//! A private Redis: append-only file on, no eviction, on a loopback port with a password. It ends
//! with its owner.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process::{self, Guarded};
use super::{LocalError, ServerTls};

const SERVER: &str = "Redis";
const CONFIG: &str = "redis.conf";

/// The moment at which a write reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Once a second: a crash of the machine loses up to two seconds, a crash of Redis nothing.
    #[default]
    EverySec,
    /// Before each answer: three times the latency.
    Always,
}

/// Settings for starting the server.
#[derive(Debug, Clone)]
pub struct RedisServerOptions {
    /// If `None`, the usual places.
    pub binary: Option<PathBuf>,
    /// If `None`, a free port, kept through restarts of the server.
    pub port: Option<u16>,
    pub fsync: Fsync,
    /// If given, serves TLS too, on another free port.
    pub tls: Option<ServerTls>,
    /// The longest wait for its first answer; reading a large append-only file takes time.
    pub patience: Duration,
}

impl Default for RedisServerOptions {
    fn default() -> Self {
        Self {
            binary: None,
            port: None,
            fsync: Fsync::EverySec,
            tls: None,
            patience: Duration::from_secs(30),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct PrivateRedis {
    folder: PathBuf,
    options: RedisServerOptions,
    binary: PathBuf,
    password: Secret,
    port: u16,
    tls_port: u16,
    log: File,
    server: Option<Guarded>,
}

struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl PrivateRedis {
    /// Starts a server on `data_dir`, which is created if missing and keeps data and password for
    /// the next start. Returns when clients are served.
    ///
    /// # Errors
    /// [`LocalError::Missing`] without an installed redis-server; [`LocalError::Exited`] with the
    /// end of its log.
    pub async fn start(data_dir: &Path, options: RedisServerOptions) -> Result<Self, LocalError> {
        let binary = find_binary(&options)?;
        process::private_folder(data_dir)?;
        let folder = data_dir.canonicalize().map_err(LocalError::io("open", data_dir))?;
        let log = process::lock_log(&folder.join("server.log"), &folder)?;
        let password = Secret(process::secret(&folder.join("password"))?);
        let mut redis = Self {
            folder,
            options,
            binary,
            password,
            port: 0,
            tls_port: 0,
            log,
            server: None,
        };
        // A port that was free a moment ago may be taken when the server opens it.
        let mut tries = 3;
        loop {
            tries -= 1;
            redis.port = redis.options.port.map_or_else(|| redis.new_port(), Ok)?;
            redis.tls_port = redis.new_port()?;
            match redis.boot().await {
                Err(LocalError::Exited { tail, .. }) if tries > 0 && tail.contains("Address already in use") => {}
                other => return other.map(|()| redis),
            }
        }
    }

    /// Returns the URL with its password: for clients, not for logs.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}/0", self.password.0, self.port)
    }

    /// Returns the TLS URL. It works only with [`RedisServerOptions::tls`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://:{}@127.0.0.1:{}/0", self.password.0, self.tls_port)
    }

    /// Returns the process id of the server, or `None` while it is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Guarded::pid)
    }

    /// Returns the path of the server's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Returns true if the process runs.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.ended().is_none())
    }

    /// Sends SIGKILL, like a crash or the kernel's memory killer. The system keeps what was
    /// written.
    pub fn kill9(&mut self) {
        self.server = None;
    }

    /// Starts it again at the same URL, with its data or (`keep_data = false`) empty; kills it
    /// first if it runs.
    ///
    /// # Errors
    /// The same as of [`PrivateRedis::start`].
    pub async fn restart(&mut self, keep_data: bool) -> Result<(), LocalError> {
        self.kill9();
        if !keep_data {
            self.forget()
                .map_err(LocalError::io("remove the data in", &self.folder))?;
        }
        self.boot().await
    }

    /// Lets it end in order, for at most ten seconds. Blocks the thread.
    pub fn stop(mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop(Duration::from_secs(10));
        }
    }

    fn forget(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.ends_with("appendonlydir") {
                std::fs::remove_dir_all(&path)?;
            } else if path.extension().is_some_and(|e| e == "rdb" || e == "aof") {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn new_port(&self) -> Result<u16, LocalError> {
        process::free_port().map_err(LocalError::io("find a free port for", &self.folder))
    }

    async fn boot(&mut self) -> Result<(), LocalError> {
        self.write_config()?;
        let mut command = Command::new(&self.binary);
        command.arg(CONFIG).current_dir(&self.folder);
        let mut server = Guarded::spawn(&command, &self.log).map_err(LocalError::io("run", &self.binary))?;
        let (port, log, patience) = (self.port, self.log_path(), self.options.patience);
        let answers = || answers_ping(port, &self.password.0);
        server.until_ready(SERVER, &log, patience, answers).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Writes the password into a private file, because all users can list a command line.
    fn write_config(&self) -> Result<(), LocalError> {
        let fsync = match self.options.fsync {
            Fsync::EverySec => "everysec",
            Fsync::Always => "always",
        };
        let config = format!(
            "bind 127.0.0.1\n\
             port {port}\n\
             requirepass {password}\n\
             dir ./\n\
             appendonly yes\n\
             appendfsync {fsync}\n\
             save \"\"\n\
             maxmemory-policy noeviction\n\
             daemonize no\n\
             {tls}",
            tls = self
                .options
                .tls
                .as_ref()
                .map_or_else(String::new, |tls| tls_config(tls, self.tls_port)),
            port = self.port,
            password = self.password.0,
        );
        process::write_private(&self.folder.join(CONFIG), &config)
    }
}

/// Returns the lines of redis.conf for TLS.
fn tls_config(tls: &ServerTls, port: u16) -> String {
    let clients = match &tls.clients_of {
        None => "tls-auth-clients no\n".to_owned(),
        Some(authority) => format!("tls-ca-cert-file \"{}\"\n", authority.display()),
    };
    format!(
        "tls-port {port}\ntls-cert-file \"{}\"\ntls-key-file \"{}\"\n{clients}",
        tls.certificate.display(),
        tls.key.display()
    )
}

fn find_binary(options: &RedisServerOptions) -> Result<PathBuf, LocalError> {
    let found = match &options.binary {
        Some(path) => path.is_file().then(|| path.clone()),
        None => process::find_binary(&["/usr/bin/redis-server"], "redis-server"),
    };
    found.ok_or(LocalError::Missing {
        server: SERVER,
        binary: "redis-server",
        package: "redis-server",
    })
}

/// Returns true if this very server serves commands, not another one on the same port.
async fn answers_ping(port: u16, password: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let question = format!("AUTH {password}\r\nPING\r\n");
        stream.write_all(question.as_bytes()).await?;
        let mut answer = [0u8; 12];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(&answer == b"+OK\r\n+PONG\r\n")
    };
    matches!(tokio::time::timeout(Duration::from_secs(2), ask).await, Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn start_with(binary: PathBuf, folder: &Path) -> LocalError {
        let options = RedisServerOptions {
            binary: Some(binary),
            ..RedisServerOptions::default()
        };
        PrivateRedis::start(folder, options).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_missing_binary_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let error = start_with(folder.path().join("nowhere"), folder.path()).await;
        assert!(error.to_string().contains("apt-get install redis-server"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_fails_to_start_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("redis-server");
        std::fs::write(&binary, "#!/bin/sh\necho bad directive; exit 1\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&binary, mode).unwrap();
        let error = start_with(binary, &folder.path().join("data")).await;
        assert!(error.to_string().contains("bad directive"), "{error}");
    }
}
