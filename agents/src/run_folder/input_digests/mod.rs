//! Pins the files next to the configuration that decide the order of tasks: a run continues only
//! with the files it began with.
//!
//! `pinned.json` in the run folder has a BLAKE3 digest of each file, by the key that names it. The
//! first coordinator writes it after it has opened the files. Every later one, and `--resume`,
//! compares.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::ids::Digest;
use configs::RunConfig;
use trainer::checkpoint::CheckpointStore;

use crate::base::fault::Usage;
use crate::run_folder::RunFolder;

pub mod models;

/// Maps the key path in the configuration to the digest of the file's content, in hex.
type Pins = BTreeMap<String, String>;

const PASS_RATES: &str = "tasks.curriculum.pass_rates";

/// Compares the pinned digests with the files.
///
/// # Errors
/// A file with another content than when the run began, and the fix; errors of the disk.
pub fn verify(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<()> {
    compare(&read(&path(folder))?, config).map(|_| ())
}

/// Compares like [`verify`], and pins the files if the run has no pins. Call it once the files are
/// known to be usable.
///
/// # Errors
/// The same as for [`verify`]; files that another coordinator pinned differently in the meantime.
pub fn settle(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<()> {
    let path = path(folder);
    let pinned = read(&path)?;
    let all = compare(&pinned, config)?;
    if all == pinned {
        return Ok(());
    }
    if has_history(folder, config) {
        for (key, digest) in &all {
            tracing::warn!(key, digest, pins = %path.display(), "a run that has already trained pins this file in its current state");
        }
    }
    if write(&path, &all).with_context(|| format!("writing {}", path.display()))? {
        return Ok(());
    }
    // Another coordinator was first: its pins hold.
    let theirs = read(&path)?;
    match compare(&theirs, config)? == theirs {
        true => Ok(()),
        false => Err(Usage::new(format!(
            "{} does not list a file that the configuration names: this run began without it",
            path.display()
        ))
        .hint("begin a new run")
        .into()),
    }
}

/// Writes all pins at once, unless a file of pins exists: then returns false.
fn write(path: &Path, pins: &Pins) -> std::io::Result<bool> {
    let aside = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let put = || -> std::io::Result<bool> {
        fs::write(&aside, serde_json::to_vec_pretty(pins)?)?;
        fs::File::open(&aside)?.sync_all()?;
        match fs::hard_link(&aside, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            linked => linked?,
        }
        path.parent()
            .map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())?;
        Ok(true)
    };
    let written = put();
    // A leftover file is harmless.
    let _ = fs::remove_file(&aside);
    written
}

/// Returns true if the run has sent a round or kept a checkpoint of a step above 0. Agents keep
/// step 0 when they begin.
fn has_history(folder: &RunFolder, config: &RunConfig) -> bool {
    let trained = |root: PathBuf| {
        let kept = CheckpointStore::new(&root, 1).list();
        kept.is_ok_and(|kept| kept.iter().any(|checkpoint| checkpoint.manifest.step > 0))
    };
    let mut agents = config.agents.keys();
    folder.path().join("round.journal").exists() || agents.any(|agent| trained(folder.checkpoints(agent)))
}

fn path(folder: &RunFolder) -> PathBuf {
    folder.path().join("pinned.json")
}

/// Returns the files that this configuration names.
fn files(config: &RunConfig) -> impl Iterator<Item = (&'static str, &Path)> {
    let curriculum = config.tasks.curriculum.iter();
    curriculum.map(|curriculum| (PASS_RATES, curriculum.pass_rates.as_path()))
}

/// Reads the pins of a file; none if the file is missing.
fn read(path: &Path) -> anyhow::Result<Pins> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Pins::new()),
        text => text.with_context(|| format!("reading {}", path.display()))?,
    };
    serde_json::from_slice(&text).with_context(|| format!("{} is damaged: restore it from a copy", path.display()))
}

/// Returns the pins, with those of files not yet pinned.
fn compare(pinned: &Pins, config: &RunConfig) -> anyhow::Result<Pins> {
    if let Some(key) = pinned
        .keys()
        .find(|key| files(config).all(|(named, _)| named != key.as_str()))
    {
        return Err(unnamed(key));
    }
    let mut all = pinned.clone();
    for (key, file) in files(config) {
        let content = match fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(absent(key, file)),
            content => content.with_context(|| format!("reading {} ({key})", file.display()))?,
        };
        let found = Digest::of(&content).to_string();
        match pinned.get(key) {
            Some(began) if *began != found => return Err(changed(key, file, began, &found)),
            Some(_) => {}
            None => drop(all.insert(key.to_owned(), found)),
        }
    }
    Ok(all)
}

fn absent(key: &str, file: &Path) -> anyhow::Error {
    Usage::new(format!("{key}: there is no file {}", file.display()))
        .hint("a relative path starts at the working directory: start there, or write the absolute path")
        .into()
}

fn unnamed(key: &str) -> anyhow::Error {
    Usage::new(format!(
        "{key} was set when this run began and is missing now; the order of tasks depends on it"
    ))
    .hint("put it back as it was, or begin a new run")
    .into()
}

fn changed(key: &str, file: &Path, began: &str, found: &str) -> anyhow::Error {
    let file = file.display();
    Usage::new(format!(
        "{key}: {file} has changed since this run began (BLAKE3 {began} then, {found} here), and the order of tasks \
         depends on it: the run would train on some tasks twice and on others never"
    ))
    .hint(format!(
        "restore {file}, or begin a new run; write later measurements to another file"
    ))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::code;
    use crate::run_folder::tests::config_in;

    #[test]
    fn a_run_continues_only_with_the_pass_rates_it_began_with() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        settle(&folder, &config).unwrap();
        assert!(!path(&folder).exists(), "a configuration without files has no pins");

        let rates = base.path().join("rates.jsonl");
        let curriculum = format!("pass_rates = {:?}", rates.to_str().unwrap());
        config.tasks.curriculum = Some(toml::from_str(&curriculum).unwrap());
        let missing = settle(&folder, &config).unwrap_err();
        assert_eq!(code(&missing), 2);
        let missing = missing.to_string();
        assert!(
            missing.contains("rates.jsonl") && missing.contains(PASS_RATES),
            "{missing}"
        );

        fs::write(&rates, "one").unwrap();
        verify(&folder, &config).unwrap();
        assert!(!path(&folder).exists(), "verify pins nothing");
        settle(&folder, &config).unwrap();
        verify(&folder, &config).unwrap();
        settle(&folder, &config).unwrap();

        fs::write(&rates, "two").unwrap();
        for refused in [verify(&folder, &config), settle(&folder, &config)] {
            let error = refused.unwrap_err();
            assert_eq!(code(&error), 2, "the supervisor ends without a retry");
            let text = error.to_string();
            let digests = [&b"one"[..], b"two"].map(|content| Digest::of(content).to_string());
            assert!(digests.iter().all(|digest| text.contains(digest)), "{text}");
        }
        fs::write(&rates, "one").unwrap();
        verify(&folder, &config).unwrap();

        config.tasks.curriculum = None;
        let error = verify(&folder, &config).unwrap_err();
        assert!(code(&error) == 2 && error.to_string().contains(PASS_RATES), "{error}");
    }

    #[test]
    fn a_run_has_a_history_once_it_has_trained() {
        let base = tempfile::tempdir().unwrap();
        let config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        assert!(!has_history(&folder, &config), "nothing is kept");
        let agent = config.agents.keys().next().unwrap();
        let mut kept = CheckpointStore::new(&folder.checkpoints(agent), 2);
        for (step, history) in [(0, false), (1, true)] {
            kept.save(step, |_| Ok("digest".into())).unwrap();
            assert_eq!(has_history(&folder, &config), history, "step {step}");
        }
    }

    #[test]
    fn the_first_of_two_concurrent_pins_holds() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pinned.json");
        let pins = |digest: &str| Pins::from([(PASS_RATES.to_owned(), digest.to_owned())]);
        assert!(write(&path, &pins("one")).unwrap());
        assert!(!write(&path, &pins("two")).unwrap());
        let held: Pins = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(held, pins("one"));
        assert_eq!(
            fs::read_dir(base.path()).unwrap().count(),
            1,
            "no temporary file remains"
        );
    }
}
