//! `dyad doctor`: what this machine has, what is missing, and how to fix it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use broker::bus::amqp::redact;
use broker::ids::RunId;
use broker::local::process::find_binary;
use broker::store::Store;
use broker::store::redis::RedisStore;
use clap::Args;

use super::select;
use crate::base::fault::Unavailable;
use crate::run_folder::connect::store_options;

/// Check libtorch, GPU, broker, store and permissions
///
/// Prints a fix for each problem. The exit code is 75 if something required does not work.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check what this configuration needs
    pub config: Option<PathBuf>,
    /// Broker to try, instead of the configuration's
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// State store to try, instead of the configuration's
    #[arg(long, env = "DYAD_STATE", hide_env_values = true, value_name = "URL")]
    pub state: Option<String>,
    /// Folder in which run folders would be created
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Good,
    /// Missing, and not required.
    Absent,
    /// Required, and not working.
    Bad,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub what: &'static str,
    pub standing: Standing,
    pub found: String,
    pub fix: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self {
            what,
            standing: Standing::Good,
            found: found.into(),
            fix: None,
        }
    }

    fn other(what: &'static str, needed: bool, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let standing = if needed { Standing::Bad } else { Standing::Absent };
        Self {
            what,
            standing,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }
}

pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let config = args.config.as_deref().map(super::check::check).transpose()?;
    let configured = config.as_ref().map(|config| &config.run);
    let broker = args.broker.clone().or_else(|| configured.map(|run| run.broker.clone()));
    let state = args.state.clone().or_else(|| configured.map(|run| run.state.clone()));
    let runs = configured.map_or(&args.runs, |run| &run.folder);
    let mut findings = vec![libtorch(), gpu()];
    findings.push(server(
        "rabbitmq-server",
        &["/usr/lib/rabbitmq/bin/rabbitmq-server"],
        broker.as_deref(),
    ));
    findings.push(server("redis-server", &["/usr/bin/redis-server"], state.as_deref()));
    findings.extend(select::block_on(async {
        Ok([try_broker(broker.as_deref()).await, try_store(state.as_deref()).await]
            .into_iter()
            .flatten())
    })?);
    findings.push(writable(runs));
    print!("{}", render(&findings));
    let bad = findings
        .iter()
        .filter(|finding| finding.standing == Standing::Bad)
        .count();
    if bad == 0 {
        return Ok(());
    }
    Err(Unavailable {
        message: format!("{bad} of these checks failed and must be fixed"),
        hint: None,
    }
    .into())
}

/// Reports where libtorch is. It is linked, so a running process has always found it.
fn libtorch() -> Finding {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = |name: &str| {
        let path = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.contains(name))?;
        Some(path.to_owned())
    };
    match library("libtorch_cpu") {
        Some(path) => {
            let folder = Path::new(&path).parent().unwrap_or(Path::new("/"));
            let version = torch_version(folder).map_or_else(String::new, |version| format!("{version}, "));
            let cuda = folder.join("libtorch_cuda.so").is_file();
            let kind = if cuda { "with CUDA" } else { "CPU" };
            Finding::good("libtorch", format!("{version}{kind}, in {}", folder.display()))
        }
        None => Finding::other("libtorch", false, "not loaded", "run `make setup`, then build again"),
    }
}

/// Returns the version that libtorch's folder names, in libtorch's or PyTorch's layout.
fn torch_version(lib: &Path) -> Option<String> {
    let root = lib.parent()?;
    let noted = std::fs::read_to_string(root.join("build-version"));
    noted
        .or_else(|_| std::fs::read_to_string(root.join("version.txt")))
        .ok()
        .map(|text| text.trim().to_owned())
}

fn gpu() -> Finding {
    let listed = std::process::Command::new("nvidia-smi")
        .args(["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
        .output();
    match listed {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Finding::good("GPU", text.lines().map(str::trim).collect::<Vec<_>>().join("; "))
        }
        _ if Path::new("/proc/driver/nvidia/version").exists() => Finding::other(
            "GPU",
            true,
            "a driver is loaded, but nvidia-smi does not answer",
            "in a container, start it with --gpus all",
        ),
        _ => Finding::other(
            "GPU",
            false,
            "none; training uses the CPU",
            "make setup GPU=1 on a machine with one",
        ),
    }
}

/// Checks a server's program, which is required if the URL is `local:`.
fn server(name: &'static str, places: &[&str], url: Option<&str>) -> Finding {
    let needed = url == Some("local:");
    match find_binary(places, name) {
        Some(path) => Finding::good(name, path.display().to_string()),
        None => Finding::other(
            name,
            needed,
            "not installed",
            format!("apt-get install {name}, needed for `dyad up` with local: URLs"),
        ),
    }
}

async fn try_broker(url: Option<&str>) -> Option<Finding> {
    let url = url.filter(|url| !matches!(*url, "memory:" | "local:"))?;
    let shown = redact(url);
    Some(match select::connect(url, "doctor").await {
        Ok(bus) => {
            let health = bus.health();
            bus.close().await;
            match health {
                broker::bus::BusHealth::Blocked(reason) => Finding::other(
                    "broker",
                    true,
                    format!("{shown} accepts no messages: {reason}"),
                    "free memory or disk space on the broker's host",
                ),
                _ => Finding::good("broker", format!("{shown} answers")),
            }
        }
        Err(error) => Finding::other(
            "broker",
            true,
            format!("{error:#}"),
            "docker compose up -d rabbitmq, or another URL; user and password must be right",
        ),
    })
}

async fn try_store(url: Option<&str>) -> Option<Finding> {
    let url = url.filter(|url| !matches!(*url, "memory:" | "local:"))?;
    let shown = redact(url);
    let run = RunId::new("doctor")?;
    let tried = tokio::time::timeout(Duration::from_secs(5), async {
        let store = RedisStore::connect(url, &run, store_options(url)?).await?;
        Ok::<_, anyhow::Error>(store.check().await?)
    });
    Some(match tried.await {
        Ok(Ok(warnings)) if warnings.is_empty() => Finding::good("state store", format!("{shown} answers")),
        Ok(Ok(warnings)) => Finding {
            what: "state store",
            standing: Standing::Good,
            found: format!("{shown} answers"),
            fix: Some(warnings.join("; ")),
        },
        Ok(Err(error)) => Finding::other(
            "state store",
            true,
            error.to_string(),
            "docker compose up -d redis, or another URL",
        ),
        Err(_) => Finding::other(
            "state store",
            true,
            format!("{shown} does not answer in 5 s"),
            "docker compose up -d redis, or another URL",
        ),
    })
}

/// Checks whether a run folder can be created, and leaves nothing behind.
fn writable(runs: &Path) -> Finding {
    let made = !runs.exists();
    let probe = runs.join(format!(".doctor-{}", std::process::id()));
    let tried = std::fs::create_dir_all(runs).and_then(|()| std::fs::write(&probe, b"x"));
    let _ = std::fs::remove_file(&probe);
    if made {
        let _ = std::fs::remove_dir(runs);
    }
    match tried {
        Ok(()) => Finding::good("run folder", format!("{} can be written", runs.display())),
        Err(error) => Finding::other(
            "run folder",
            true,
            format!("{}: {error}", runs.display()),
            "set run.folder or --runs to a writable folder",
        ),
    }
}

#[must_use]
pub fn render(findings: &[Finding]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.standing {
            Standing::Good => "ok  ",
            Standing::Absent => "-   ",
            Standing::Bad => "FIX ",
        };
        let _ = writeln!(text, "{mark} {:16} {}", finding.what, finding.found);
        if let Some(fix) = &finding.fix {
            let _ = writeln!(text, "     {:16} {fix}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_server_is_a_problem_only_if_required() {
        let missing = |url: Option<&str>| server("no-such-server-anywhere", &[], url).standing;
        assert_eq!(missing(Some("local:")), Standing::Bad);
        assert_eq!(missing(Some("memory:")), Standing::Absent);
        assert_eq!(missing(None), Standing::Absent);
    }

    #[test]
    fn unwritable_folder_is_a_finding() {
        let base = tempfile::tempdir().unwrap();
        let (new, file) = (base.path().join("runs"), base.path().join("file"));
        assert_eq!(writable(&new).standing, Standing::Good);
        assert!(!new.exists(), "it leaves nothing behind");
        std::fs::write(&file, b"").unwrap();
        let finding = writable(&file.join("runs"));
        assert_eq!(finding.standing, Standing::Bad);
        let text = render(&[finding]);
        assert!(
            text.starts_with("FIX  run folder") && text.contains("set run.folder"),
            "{text}"
        );
    }

    #[test]
    fn unreachable_servers_are_findings_without_their_passwords() {
        let findings = select::block_on(async {
            Ok([
                try_broker(Some("amqp://user:hunter2@127.0.0.1:1/%2f")).await.unwrap(),
                try_store(Some("redis://:hunter2@127.0.0.1:1/0")).await.unwrap(),
            ])
        });
        for finding in findings.unwrap() {
            assert_eq!(finding.standing, Standing::Bad);
            assert!(
                !render(std::slice::from_ref(&finding)).contains("hunter2"),
                "{finding:?}"
            );
        }
    }
}
