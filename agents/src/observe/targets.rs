//! `prometheus.json` in the run folder: the addresses of a run's metrics, in the form of
//! Prometheus' `file_sd_configs`. Each process writes its own entry and removes it at its end.
//!
//! Prometheus takes a `*` in the last part of a path only. `prometheus/RUN.json`, next to the run
//! folders, therefore leads to the file of each run that has an address.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;

use broker::atomic_file;
use serde::{Deserialize, Serialize};

use crate::run_folder::RunFolder;

/// The file's name, and that of the file that locks it.
const NAME: &str = "prometheus.json";
const LOCK: &str = "prometheus.lock";
/// The folder of links, next to the run folders.
const LINKS: &str = "prometheus";

/// One entry of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ScrapeTarget {
    targets: Vec<String>,
    labels: TargetLabels,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TargetLabels {
    run: String,
    component: String,
}

/// Writes the entry of a component, in place of an older one.
pub(super) fn add(folder: &RunFolder, component: &str, address: SocketAddr) -> io::Result<()> {
    change(folder, component, Some(reachable(address)))
}

/// Removes the entries of a component that ends, and of the ranks of its trainers, which end with
/// it.
pub(super) fn remove(folder: &RunFolder, component: &str) -> io::Result<()> {
    change(folder, component, None)
}

fn change(folder: &RunFolder, component: &str, address: Option<SocketAddr>) -> io::Result<()> {
    // Processes of a run start at the same time.
    let lock = File::create(folder.path().join(LOCK))?;
    lock.lock()?;
    let path = folder.path().join(NAME);
    let mut targets = read(&path)?;
    let ranks = format!("{component}.rank");
    // `run` is the process of all agents.
    let is_rank = |known: &str| known.starts_with(&ranks) || component == "run";
    let is_over = |known: &str| known == component || (address.is_none() && is_rank(known));
    targets.retain(|target| !is_over(&target.labels.component));
    targets.extend(address.map(|address| ScrapeTarget {
        targets: vec![address.to_string()],
        labels: TargetLabels {
            run: folder.run().to_string(),
            component: component.to_owned(),
        },
    }));
    targets.sort_by(|a, b| a.labels.component.cmp(&b.labels.component));
    atomic_file::replace(&path, &serde_json::to_vec_pretty(&targets)?)?;
    link(folder, !targets.is_empty())
}

/// Makes or removes the link to the run's file.
fn link(folder: &RunFolder, is_wanted: bool) -> io::Result<()> {
    let (Some(runs), Some(own)) = (folder.path().parent(), folder.path().file_name()) else {
        return Ok(());
    };
    let links = runs.join(LINKS);
    let link = links.join(format!("{}.json", folder.run()));
    if is_wanted {
        fs::create_dir_all(&links)?;
    }
    let changed = match is_wanted {
        true => symlink(Path::new("..").join(own).join(NAME), link),
        false => fs::remove_file(link),
    };
    match changed {
        Err(error) if [io::ErrorKind::AlreadyExists, io::ErrorKind::NotFound].contains(&error.kind()) => Ok(()),
        changed => changed,
    }
}

/// Reads the entries. A file that a person has broken counts as empty.
fn read(path: &Path) -> io::Result<Vec<ScrapeTarget>> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the address at which this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn each_component_has_one_entry_until_it_ends() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        std::thread::scope(|scope| {
            for component in ["a", "b", "coordinator"] {
                let folder = &folder;
                scope.spawn(move || add(folder, component, address("127.0.0.1:1")).unwrap());
            }
        });
        add(&folder, "b", address("0.0.0.0:2")).unwrap();
        // A rank that is killed with its agent cannot remove its entry.
        add(&folder, "a.rank1", address("127.0.0.1:3")).unwrap();
        remove(&folder, "a").unwrap();
        let written = read(&folder.path().join(NAME)).unwrap();
        let found: Vec<_> = written
            .iter()
            .map(|target| (target.labels.component.as_str(), target.targets[0].as_str()))
            .collect();
        assert_eq!(found, [("b", "127.0.0.1:2"), ("coordinator", "127.0.0.1:1")]);
        assert_eq!(written[0].labels.run, folder.run().to_string());
        let link = base.path().join("prometheus").join(format!("{}.json", folder.run()));
        assert_eq!(read(&link).unwrap(), written);
        remove(&folder, "b").unwrap();
        remove(&folder, "coordinator").unwrap();
        // All agents of a run in one process end with it.
        add(&folder, "b.rank1", address("127.0.0.1:4")).unwrap();
        add(&folder, "run", address("127.0.0.1:5")).unwrap();
        remove(&folder, "run").unwrap();
        assert!(!link.exists() && !link.is_symlink(), "nothing is left to read");
    }

    #[test]
    fn the_file_has_the_form_of_file_sd_configs() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        add(&folder, "a", "127.0.0.1:7".parse().unwrap()).unwrap();
        let text = fs::read_to_string(folder.path().join(NAME)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let run = folder.run().as_str();
        let expected = serde_json::json!([{"targets": ["127.0.0.1:7"], "labels": {"run": run, "component": "a"}}]);
        assert_eq!(json, expected);
    }
}
