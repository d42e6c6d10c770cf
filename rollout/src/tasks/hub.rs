//! Folders of data sets as the Hugging Face Hub has them: what the card says, else what the files are called. And folders that
//! `save_to_disk` wrote.

mod card;
mod saved;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::files::matching;
use crate::hub_cache::{Cache, Kind, Name};
pub(super) use saved::is_saved;

/// Words in names of files and folders that say which split they are of.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];
/// Endings that are read, those first that are taken where there are several kinds.
const ENDINGS: [&[&str]; 4] = [
    &[".parquet"],
    &[".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"],
    &[".json", ".json.gz", ".json.zst"],
    &[".arrow"],
];
/// Files that stand beside data and are none.
const NOT_DATA: [&str; 5] = [
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "config.json",
    "state.json",
];
/// Folders below the data set's that are looked into.
const DEPTH: usize = 4;

/// Split -> its files, in the order in which the splits were named.
type Splits = Vec<(String, Vec<PathBuf>)>;

/// The files of `part`, which is `SPLIT` or `SUBSET/SPLIT`; of the split `train`, or of the only one, if not given.
pub(super) fn files(folder: &Path, part: Option<&str>) -> Result<Vec<PathBuf>, String> {
    let folder = snapshot(folder)?;
    let (subset, split) = match part.map(|part| part.split_once('/').map_or((None, part), |(a, b)| (Some(a), b))) {
        Some((subset, split)) => (subset, Some(split)),
        None => (None, None),
    };
    match card::subsets(&folder)? {
        // What save_to_disk left beside files that a card names is not the data set.
        subsets if subsets.is_empty() && is_saved(&folder) => saved::files(&folder, subset, split),
        subsets if subsets.is_empty() => {
            let splits = match subset {
                None => by_names(&folder)?,
                Some(subset) => by_names(&folder.join(subset))?,
            };
            choose(&folder, &splits, split)
        }
        subsets => card::chosen(&folder, &subsets, subset, split),
    }
}

/// What is said of a name on the Hub that neither a folder nor this machine's cache has; `None` of anything else, and of a path below a
/// folder that is here.
pub(super) fn absent(folder: &Path, cache: &Cache) -> Option<String> {
    absent_name(folder, cache).map(|name| name.absent(Kind::DataSet, cache))
}

/// The command that brings what is [`absent`].
pub(super) fn download(folder: &Path, cache: &Cache) -> Option<String> {
    absent_name(folder, cache).map(|name| name.download(Kind::DataSet))
}

fn absent_name<'a>(folder: &'a Path, cache: &Cache) -> Option<Name<'a>> {
    if folder.exists() || folder.parent().is_some_and(Path::is_dir) {
        return None;
    }
    let name = Name::read(folder.to_str()?)?;
    let found = cache.snapshot(Kind::DataSet, &name);
    found.is_none().then_some(name)
}

/// The folder itself, or of a folder of Hugging Face's cache the snapshot of `main`; of a name on the Hub what the cache has of it.
fn snapshot(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    if !folder.is_dir() {
        if let Some(name) = folder.to_str().and_then(Name::read) {
            let cache = Cache::of_environment();
            let found = cache.snapshot(Kind::DataSet, &name);
            return found.ok_or_else(|| name.absent(Kind::DataSet, &cache));
        }
        let here = std::env::current_dir().unwrap_or_default();
        return Err(format!(
            "{shown} is not a folder here: paths count from the working directory, {}; nothing is downloaded",
            here.display()
        ));
    }
    match std::fs::read_to_string(folder.join("refs/main")) {
        Ok(revision) => {
            let revision = Path::new(revision.trim());
            let mut parts = revision.components();
            match (parts.next(), parts.next()) {
                (Some(Component::Normal(one)), None) => Ok(folder.join("snapshots").join(one)),
                _ => Err(format!(
                    "{shown}/refs/main has {revision:?}, which is the name of no snapshot"
                )),
            }
        }
        Err(_) => only_snapshot(folder),
    }
}

/// Of a folder of the cache without `main` its one snapshot; any other folder itself.
fn only_snapshot(folder: &Path) -> Result<PathBuf, String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    let inside = names(folder);
    let of_cache = |name: &String| ["blobs", "refs", "snapshots"].contains(&name.as_str());
    if !inside.iter().any(|name| name == "snapshots") || !inside.iter().all(of_cache) {
        return Ok(folder.to_owned());
    }
    let snapshots = folder.join("snapshots");
    match names(&snapshots).as_slice() {
        [one] => Ok(snapshots.join(one)),
        found => Err(format!(
            "{} has no refs/main, and of snapshots: {}: write hf:{}/NAME",
            folder.display(),
            if found.is_empty() {
                "none".to_owned()
            } else {
                found.join(", ")
            },
            snapshots.display()
        )),
    }
}

/// What a split has: its files, or patterns of them.
fn choose<T: Clone>(folder: &Path, splits: &[(String, Vec<T>)], wanted: Option<&str>) -> Result<Vec<T>, String> {
    let names: Vec<&str> = splits.iter().map(|(name, _)| name.as_str()).collect();
    let known = names.join(", ");
    let name = match wanted {
        Some(wanted) => wanted,
        None if names.contains(&"train") => "train",
        None if names.len() == 1 => names.first().copied().unwrap_or_default(),
        None => {
            return Err(format!(
                "{} has no split train: write hf:FOLDER:SPLIT with one of {known}",
                folder.display()
            ));
        }
    };
    if !names.contains(&name) {
        return Err(format!("{} has no split {name}: it has {known}", folder.display()));
    }
    let found = splits.iter().find(|(split, _)| split == name);
    Ok(found.map(|(_, files)| files.clone()).unwrap_or_default())
}

/// Splits by the names of files and folders, as `datasets` finds them where no card says: `data/SPLIT-00000-of-00001.parquet`, else a word in
/// the name; all files are `train` if no name has one.
fn by_names(folder: &Path) -> Result<Splits, String> {
    let mut all = Vec::new();
    list(folder, Path::new(""), 0, &mut all)?;
    all.sort();
    let is = |path: &Path, endings: &[&str]| endings.iter().any(|end| path.to_string_lossy().ends_with(end));
    let kind = ENDINGS.iter().find(|endings| all.iter().any(|path| is(path, endings)));
    let Some(kind) = kind else {
        return Err(format!(
            "{} has no file that is read: .parquet, .arrow, .jsonl or .json, the last two also with .gz or .zst",
            folder.display()
        ));
    };
    all.retain(|path| is(path, kind));
    let grouped = |split_of: &dyn Fn(&Path) -> Option<String>| {
        let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in &all {
            if let Some(split) = split_of(path) {
                found.entry(split).or_default().push(folder.join(path));
            }
        }
        found
    };
    for split_of in [&numbered as &dyn Fn(&Path) -> Option<String>, &worded] {
        let found = grouped(split_of);
        if !found.is_empty() {
            return Ok(found.into_iter().collect());
        }
    }
    Ok(vec![(
        "train".into(),
        all.iter().map(|path| folder.join(path)).collect(),
    )])
}

/// Files below `folder`, relative to it; hidden ones are passed over.
fn list(root: &Path, below: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let folder = root.join(below);
    let failed = |error: std::io::Error| format!("cannot look into {}: {error}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = below.join(entry.file_name());
        // Also through links: the Hub's cache is made of them.
        let kind = std::fs::metadata(entry.path()).map_err(failed)?;
        let is_data = NOT_DATA.iter().all(|name| entry.file_name() != *name);
        if kind.is_file() && is_data && !is_cache(&path) {
            found.push(path);
        } else if kind.is_dir() && depth < DEPTH {
            list(root, &path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Whether `map` and others of `datasets` left this file beside a data set: its rows are made of the others.
pub(super) fn is_cache(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("cache-") && name.ends_with(".arrow")
}

/// `SPLIT` of a name such as `data/SPLIT-00000-of-00001.parquet`.
fn numbered(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (split, rest) = name.split_once("-0")?;
    let in_data = path.parent()?.file_name()? == "data";
    (in_data && rest.contains("-of-")).then(|| split.to_owned())
}

/// The split that a word of the file's name says, else one of its folders, the nearest first.
fn worded(path: &Path) -> Option<String> {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().to_lowercase()).collect();
    parts.iter().rev().find_map(|part| {
        let words: Vec<&str> = part.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let split = WORDS
            .iter()
            .find(|(_, known)| known.iter().any(|word| words.contains(word)));
        split.map(|(split, _)| (*split).to_owned())
    })
}

/// The files that patterns of a card mean, in the order of the patterns.
fn expand(folder: &Path, patterns: &[String]) -> Result<Vec<PathBuf>, String> {
    let root = PathBuf::from(glob::Pattern::escape(&folder.to_string_lossy()));
    let mut found = Vec::new();
    for pattern in patterns {
        let mut pattern = below(folder, pattern)?;
        if folder.join(&pattern).is_dir() {
            pattern.push("*");
        }
        found.extend(matching(&root.join(pattern))?);
    }
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        NOT_DATA.iter().all(|other| name != *other) && !is_cache(path)
    });
    Ok(found)
}

/// What a card names, relative to its folder, which it may not leave.
fn below(folder: &Path, named: &str) -> Result<PathBuf, String> {
    let mut inside = PathBuf::new();
    for part in Path::new(named).components() {
        match part {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            _ => {
                return Err(format!(
                    "the card of {} names {named:?}, which is no file below it",
                    folder.display()
                ));
            }
        }
    }
    Ok(inside)
}

#[cfg(test)]
mod tests;
