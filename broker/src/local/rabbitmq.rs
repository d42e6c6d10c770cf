//! A private RabbitMQ: one node on loopback, with its own Erlang name server, user and data. It
//! ends with its owner.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process::{self, Guarded};
use super::{LocalError, ServerTls};

const SERVER: &str = "RabbitMQ";
/// The environment variable that names a `rabbitmq-server` other than the machine's.
pub const SERVER_VARIABLE: &str = "DYAD_RABBITMQ_SERVER";
/// The node's name, visible only to processes that share the private name server.
const NODE: &str = "dyad@localhost";
pub(super) const USER: &str = "dyad";
/// The node's folder, as the node names it. Quorum queues store the absolute path of their files; a
/// path through the working directory stays right when the folder is moved or copied. RabbitMQ's
/// scripts also fail for folder names with quotes.
const HERE: &str = "/proc/self/cwd";
/// Largest number of starts: another process may take a free port before the node opens it.
const TRIES: u32 = 3;

/// Settings for starting the node.
#[derive(Debug, Clone)]
pub struct RabbitOptions {
    /// The real `rabbitmq-server` script. Debian's wrapper does not work here, because it insists
    /// on the system's user. If `None`, [`SERVER_VARIABLE`] or else the usual places.
    pub binary: Option<PathBuf>,
    /// If `None`, a free port, kept through restarts of the node.
    pub port: Option<u16>,
    /// Erlang scheduler threads.
    pub schedulers: u8,
    /// The longest wait for its first answer.
    pub patience: Duration,
    /// If given, serves TLS too, on another free port.
    pub tls: Option<ServerTls>,
    /// More lines for rabbitmq.conf.
    pub config: String,
    /// More of Erlang's command line, for settings missing in rabbitmq.conf (`-rabbit
    /// channel_tick_interval 1000`).
    pub arguments: String,
    /// Names of plugins that come with the server.
    pub plugins: &'static [&'static str],
}

impl Default for RabbitOptions {
    fn default() -> Self {
        Self {
            binary: None,
            port: None,
            schedulers: 2,
            patience: Duration::from_secs(90),
            tls: None,
            config: String::new(),
            arguments: String::new(),
            plugins: &[],
        }
    }
}

/// A running node.
#[derive(Debug)]
pub struct PrivateRabbit {
    folder: PathBuf,
    options: RabbitOptions,
    binary: PathBuf,
    epmd: PathBuf,
    password: String,
    port: u16,
    tls_port: u16,
    log: File,
    node: Option<Node>,
}

/// A server and its name server. Fields drop in order: the server ends before its name server.
#[derive(Debug)]
struct Node {
    server: Guarded,
    names_port: u16,
    _names: Guarded,
}

impl PrivateRabbit {
    /// Starts a node on `data_dir`, which is created if missing and keeps queues and password for
    /// the next start. Returns when AMQP clients are served.
    pub async fn start(data_dir: &Path, options: RabbitOptions) -> Result<Self, LocalError> {
        let (binary, epmd) = binaries(&options)?;
        process::private_folder(data_dir)?;
        let folder = data_dir.canonicalize().map_err(LocalError::io("open", data_dir))?;
        let log = process::lock_log(&folder.join("server.log"), &folder)?;
        let password = process::secret(&folder.join("password"))?;
        let mut rabbit = Self {
            folder,
            options,
            binary,
            epmd,
            password,
            port: 0,
            tls_port: 0,
            log,
            node: None,
        };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            rabbit.port = rabbit.options.port.map_or_else(|| rabbit.new_port(), Ok)?;
            rabbit.tls_port = rabbit.new_port()?;
            match rabbit.boot().await {
                Err(error) if tries > 0 && found_a_port_taken(&error) => {}
                other => return other.map(|()| rabbit),
            }
        }
    }

    /// Returns the URL with user and password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://{USER}:{}@127.0.0.1:{}/%2f", self.password, self.port)
    }

    /// Returns the TLS URL. It works only with [`RabbitOptions::tls`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("amqps://{USER}:{}@127.0.0.1:{}/%2f", self.password, self.tls_port)
    }

    /// Returns the process id of the node, or `None` while it is killed.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.node.as_ref().map(|node| node.server.pid())
    }

    /// Returns the node's own `rabbitmqctl`, for an operator or a test, or `None` while the node is
    /// killed.
    #[must_use]
    pub fn ctl(&self, args: &[&str]) -> Option<Command> {
        let node = self.node.as_ref()?;
        let mut command = Command::new(self.binary.with_file_name("rabbitmqctl"));
        command
            .args(args)
            .env("HOME", &self.folder)
            .env("ERL_EPMD_PORT", node.names_port.to_string())
            .env("RABBITMQ_NODENAME", NODE)
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        Some(command)
    }

    /// Returns the path of the node's log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Returns true if the node's process runs.
    pub fn is_running(&mut self) -> bool {
        self.node.as_mut().is_some_and(|node| node.server.ended().is_none())
    }

    /// Sends SIGKILL, like a crash or the kernel's memory killer.
    pub fn kill9(&mut self) {
        self.node = None;
    }

    /// Starts it again on the same port and data; kills it first if it runs.
    pub async fn restart(&mut self) -> Result<(), LocalError> {
        self.kill9();
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.boot().await {
                Err(error) if tries > 0 && found_a_port_taken(&error) => {}
                other => return other,
            }
        }
    }

    /// Lets it end in order, for at most ten seconds. Blocks the thread.
    pub fn stop(mut self) {
        if let Some(mut node) = self.node.take() {
            node.server.stop(Duration::from_secs(10));
        }
    }

    fn new_port(&self) -> Result<u16, LocalError> {
        process::free_port().map_err(LocalError::io("find a free port for", &self.folder))
    }

    async fn boot(&mut self) -> Result<(), LocalError> {
        let (names_port, distribution_port) = (self.new_port()?, self.new_port()?);
        self.write_config()?;
        let spawn = |command: &Command| {
            Guarded::spawn(command, &self.log).map_err(LocalError::io("run", command.get_program()))
        };
        let names = spawn(&self.names_command(names_port))?;
        let server = spawn(&self.server_command(names_port, distribution_port))?;
        let mut node = Node {
            server,
            names_port,
            _names: names,
        };
        let (port, log, patience) = (self.port, self.log_path(), self.options.patience);
        node.server
            .until_ready(SERVER, &log, patience, || speaks_amqp(port))
            .await?;
        self.node = Some(node);
        Ok(())
    }

    fn write_config(&self) -> Result<(), LocalError> {
        let plugins = format!("[{}].\n", self.options.plugins.join(","));
        process::write_private(&self.folder.join("plugins"), &plugins)?;
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\n\
             default_user = {USER}\n\
             default_pass = {password}\n\
             log.console = true\n\
             log.console.level = warning\n\
             log.file = false\n\
             disk_free_limit.absolute = 256MB\n\
             raft.wal_max_size_bytes = 67108864\n\
             {tls}\
             {more}\n",
            tls = self
                .options
                .tls
                .as_ref()
                .map_or_else(String::new, |tls| tls_config(tls, self.tls_port)),
            port = self.port,
            password = self.password,
            more = self.options.config,
        );
        process::write_private(&self.folder.join("rabbitmq.conf"), &config)
    }

    /// Runs in the foreground, so that it ends with us: Erlang would start a daemon, on all
    /// interfaces.
    fn names_command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.epmd);
        command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
        command.current_dir(&self.folder);
        command
    }

    fn server_command(&self, names_port: u16, distribution_port: u16) -> Command {
        let at = |name: &str| format!("{HERE}/{name}");
        let schedulers = self.options.schedulers.max(1);
        let mut command = Command::new(&self.binary);
        command
            .current_dir(&self.folder)
            .env("HOME", HERE)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", names_port.to_string())
            .env("RABBITMQ_NODENAME", NODE)
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", distribution_port.to_string())
            .env("RABBITMQ_MNESIA_BASE", at("data"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!(
                    "-kernel inet_dist_use_interface {{127,0,0,1}} +S {schedulers}:{schedulers} {}",
                    self.options.arguments
                ),
            );
        command
    }
}

/// Returns true if the node ended because another process had one of its ports.
fn found_a_port_taken(error: &LocalError) -> bool {
    let signs = ["eaddrinuse", "dist_port_already_used"];
    matches!(error, LocalError::Exited { tail, .. } if signs.iter().any(|sign| tail.contains(sign)))
}

/// Returns the lines of rabbitmq.conf for TLS.
fn tls_config(tls: &ServerTls, port: u16) -> String {
    let clients = match &tls.clients_of {
        None => "ssl_options.verify = verify_none\n".to_owned(),
        Some(authority) => format!(
            "ssl_options.cacertfile = {}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
            authority.display()
        ),
    };
    format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n{clients}",
        tls.certificate.display(),
        tls.key.display()
    )
}

fn binaries(options: &RabbitOptions) -> Result<(PathBuf, PathBuf), LocalError> {
    let missing = |binary, package| LocalError::Missing {
        server: SERVER,
        binary,
        package,
    };
    let named = std::env::var_os(SERVER_VARIABLE).map(PathBuf::from);
    let server = match options.binary.clone().or(named) {
        Some(path) => path.is_file().then_some(path),
        None => process::find_binary(&["/usr/lib/rabbitmq/bin/rabbitmq-server"], "rabbitmq-server"),
    };
    let server = server.ok_or(missing("rabbitmq-server", "rabbitmq-server"))?;
    let epmd = process::find_binary(&["/usr/bin/epmd", "/opt/erlang/bin/epmd"], "epmd");
    Ok((server, epmd.ok_or(missing("epmd", "erlang-base"))?))
}

/// Returns true if a server answers the AMQP 0-9-1 greeting with the first frame of the handshake.
async fn speaks_amqp(port: u16) -> bool {
    let greet = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        // A method frame (1) on channel 0.
        let mut start = [0u8; 3];
        stream.read_exact(&mut start).await?;
        Ok::<_, std::io::Error>(start == [1, 0, 0])
    };
    matches!(tokio::time::timeout(Duration::from_secs(2), greet).await, Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_binary_names_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let options = RabbitOptions {
            binary: Some(folder.path().join("nowhere")),
            ..RabbitOptions::default()
        };
        let error = PrivateRabbit::start(folder.path(), options).await.unwrap_err();
        assert!(error.to_string().contains("apt-get install rabbitmq-server"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_fails_to_start_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("rabbitmq-server");
        std::fs::write(&binary, "#!/bin/sh\necho no space left; exit 3\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&binary, mode).unwrap();
        let options = RabbitOptions {
            binary: Some(binary),
            ..RabbitOptions::default()
        };
        let error = PrivateRabbit::start(&folder.path().join("data"), options)
            .await
            .unwrap_err();
        // Machines without Erlang stop one step earlier.
        if !matches!(error, LocalError::Missing { .. }) {
            assert!(error.to_string().contains("no space left"), "{error}");
        }
    }
}
