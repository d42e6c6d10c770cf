//! The RabbitMQ that tests share: to boot one for each test costs seconds of processor time.
//!
//! Each test takes a virtual host of its own and gives none back. So no test receives messages of
//! another test, not even of one that was killed. The program `shared-rabbitmq` of the crate
//! `tests` starts the server around the command that runs the tests.

use std::path::{Path, PathBuf};

use super::LocalError;
use super::process::{private_folder, write_private};
use super::rabbitmq::{PrivateRabbit, RabbitOptions, USER};

/// The environment variable that names the folder of free virtual hosts. The folder has one file
/// for each, which holds its URL.
pub const VARIABLE: &str = "DYAD_TEST_RABBITMQ";

/// Takes a free virtual host and returns its URL. Returns `None` if no RabbitMQ is shared or no
/// virtual host is free; then a test starts its own RabbitMQ.
#[must_use]
pub fn take() -> Option<String> {
    take_from(Path::new(&std::env::var_os(VARIABLE)?))
}

fn take_from(folder: &Path) -> Option<String> {
    let hosts = std::fs::read_dir(folder).ok()?.flatten();
    let mut urls = hosts.filter_map(|host| {
        let url = std::fs::read_to_string(host.path()).ok()?;
        // Of several processes that read the file, one removes it.
        std::fs::remove_file(host.path()).is_ok().then_some(url)
    });
    urls.next()
}

/// A RabbitMQ with many virtual hosts, ended with its owner.
pub struct SharedRabbit {
    _rabbit: PrivateRabbit,
    hosts: PathBuf,
}

impl SharedRabbit {
    /// Starts a RabbitMQ on `folder` with `count` virtual hosts.
    ///
    /// # Errors
    /// Returns an error if the server does not start or accepts no virtual hosts.
    pub async fn start(folder: &Path, count: usize) -> Result<Self, LocalError> {
        private_folder(folder)?;
        let rabbit = PrivateRabbit::start(&folder.join("rabbitmq"), RabbitOptions::default()).await?;
        let names: Vec<String> = (1..=count).map(|n| format!("test-{n}")).collect();
        let definitions = folder.join("definitions.json");
        write_private(&definitions, &definitions_of(&names))?;
        import(&rabbit, &definitions)?;
        let hosts = folder.join("hosts");
        private_folder(&hosts)?;
        let url = rabbit.url();
        let server = url.trim_end_matches("%2f");
        for name in &names {
            write_private(&hosts.join(name), &format!("{server}{name}"))?;
        }
        Ok(Self { _rabbit: rabbit, hosts })
    }

    /// Returns the folder of free virtual hosts, the value of [`VARIABLE`].
    #[must_use]
    pub fn hosts(&self) -> &Path {
        &self.hosts
    }
}

/// Returns the definitions of virtual hosts in which the server's own user may do everything.
fn definitions_of(names: &[String]) -> String {
    let hosts: Vec<_> = names.iter().map(|name| serde_json::json!({ "name": name })).collect();
    let permissions: Vec<_> = names
        .iter()
        .map(|name| {
            serde_json::json!({
                "user": USER, "vhost": name, "configure": ".*", "write": ".*", "read": ".*",
            })
        })
        .collect();
    serde_json::json!({ "vhosts": hosts, "permissions": permissions }).to_string()
}

fn import(rabbit: &PrivateRabbit, definitions: &Path) -> Result<(), LocalError> {
    let doing = || LocalError::io("import", definitions);
    let mut import = rabbit
        .ctl(&["import_definitions"])
        .ok_or_else(|| doing()(std::io::ErrorKind::NotConnected.into()))?;
    let output = import.arg(definitions).output().map_err(doing())?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(doing()(std::io::Error::other(
        String::from_utf8_lossy(&said).into_owned(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_host_is_taken_once_and_then_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let urls: Vec<String> = (0..100).map(|n| format!("amqp://h/test-{n}")).collect();
        for (n, url) in urls.iter().enumerate() {
            std::fs::write(folder.path().join(n.to_string()), url).unwrap();
        }
        let take_all = || std::iter::from_fn(|| take_from(folder.path())).collect::<Vec<_>>();
        let mut taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        taken.sort_by_key(|url| url.rsplit('-').next().unwrap().parse::<usize>().unwrap());
        assert_eq!(taken, urls);
        assert_eq!(take_from(folder.path()), None);
        assert_eq!(take_from(&folder.path().join("missing")), None);
    }
}
