//! Splits of a data set, by the names of its files and folders or by the patterns of its card.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::tasks::patterns::matching;

/// Words in names of files and folders that give the split.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];
/// Endings that are read. If a folder has several kinds, the first of these is taken.
const ENDINGS: [&[&str]; 4] = [
    &[".parquet"],
    &[".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"],
    &[".json", ".json.gz", ".json.zst"],
    &[".arrow"],
];
/// Files next to the data that are no data.
const NOT_DATA: [&str; 5] = [
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "config.json",
    "state.json",
];
/// The depth of folders below the data set's that are searched.
const DEPTH: usize = 4;

/// Splits with their files, in the order in which the splits were named.
type Splits = Vec<(String, Vec<PathBuf>)>;

/// Returns the files of a split, or its patterns.
pub(super) fn choose<T: Clone>(
    folder: &Path,
    splits: &[(String, Vec<T>)],
    wanted: Option<&str>,
) -> Result<Vec<T>, String> {
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

/// Finds splits by the names of files and folders, as `datasets` does without a card:
/// `data/SPLIT-00000-of-00001.parquet`, else a word in the name. All files are `train` if no name
/// gives a split.
pub(super) fn by_names(folder: &Path) -> Result<Splits, String> {
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

/// Finds the splits of a subset that is a folder of the data set.
pub(super) fn of_subset(folder: &Path, subset: &str) -> Result<Splits, String> {
    let found = folder.join(subset);
    if found.is_dir() {
        return by_names(&found);
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    let shown = folder.display();
    Err(match names.is_empty() {
        true => format!("{shown} has no subset {subset} and no other: write hf:FOLDER:SPLIT"),
        false => format!(
            "{shown} has no subset {subset}: write hf:FOLDER:SUBSET/SPLIT with one of {}",
            names.join(", ")
        ),
    })
}

/// Lists the files below `folder`, relative to it, without hidden ones.
fn list(root: &Path, below: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let folder = root.join(below);
    let failed = |error: std::io::Error| format!("cannot look into {}: {error}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = below.join(entry.file_name());
        // Links are followed, because the Hub's cache consists of links.
        let kind = std::fs::metadata(entry.path()).map_err(|error| {
            let shown = entry.path();
            format!(
                "{} is a link that cannot be opened ({error}): fetch the file again",
                shown.display()
            )
        })?;
        let is_data = NOT_DATA.iter().all(|name| entry.file_name() != *name);
        if kind.is_file() && is_data && !is_cache(&path) {
            found.push(path);
        } else if kind.is_dir() && depth < DEPTH {
            list(root, &path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Returns true if `map` or a similar function of `datasets` left this file: its rows derive from
/// the other files.
pub(crate) fn is_cache(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("cache-") && name.ends_with(".arrow")
}

/// Returns `SPLIT` of a name like `data/SPLIT-00000-of-00001.parquet`.
fn numbered(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (split, rest) = name.split_once("-0")?;
    let in_data = path.parent()?.file_name()? == "data";
    (in_data && rest.contains("-of-")).then(|| split.to_owned())
}

/// Returns the split that a word of the file's name gives, else a word of one of its folders, the
/// nearest first.
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

/// Returns the files that match a card's patterns, in the order of the patterns.
pub(super) fn expand(folder: &Path, patterns: &[String]) -> Result<Vec<PathBuf>, String> {
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

/// Returns a path that a card names, relative to its folder. It may not leave the folder.
pub(super) fn below(folder: &Path, named: &str) -> Result<PathBuf, String> {
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
