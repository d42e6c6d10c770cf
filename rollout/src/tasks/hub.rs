//! Data set folders in the Hugging Face Hub's layout: files by the card, else by file names. Also
//! folders that `save_to_disk` wrote.

mod card;
mod saved;
mod splits;

use std::path::{Component, Path, PathBuf};

use crate::hub_cache::{Cache, Kind, Name, name_in_url, no_folder};
pub(super) use saved::is_saved;
pub(super) use splits::is_cache;
use splits::{by_names, choose, of_subset};

/// Returns the files of `part`, which is `SPLIT` or `SUBSET/SPLIT`. Without `part`, returns those
/// of the split `train`, or of the only split.
pub(super) fn files(folder: &Path, part: Option<&str>) -> Result<Vec<PathBuf>, String> {
    let folder = snapshot(folder)?;
    let (subset, split) = match part.map(|part| part.split_once('/').map_or((None, part), |(a, b)| (Some(a), b))) {
        Some((subset, split)) => (subset, Some(split)),
        None => (None, None),
    };
    match card::subsets(&folder)? {
        // Output of save_to_disk next to files that a card names is not the data set.
        subsets if subsets.is_empty() && is_saved(&folder) => saved::files(&folder, subset, split),
        subsets if subsets.is_empty() => {
            let splits = match subset {
                None => by_names(&folder)?,
                Some(subset) => of_subset(&folder, subset)?,
            };
            choose(&folder, &splits, split)
        }
        subsets => card::chosen(&folder, &subsets, subset, split),
    }
}

/// Returns the error text for a name on the Hub that neither a folder nor this machine's cache has.
/// Returns `None` for any other text, and for a path below a folder that exists.
pub(super) fn absent(folder: &Path, cache: &Cache) -> Option<String> {
    absent_name(folder, cache).map(|name| name.absent(Kind::DataSet, cache))
}

/// Returns the command that downloads a name that is [`absent`].
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

/// Returns the folder to read. A folder of Hugging Face's cache gives the snapshot of `main`, and a
/// name on the Hub gives its snapshot in the cache.
fn snapshot(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    if let Some(fault) = no_folder(folder) {
        return Err(fault);
    }
    if !folder.is_dir() {
        if let Some(name) = folder.to_str().and_then(name_in_url) {
            return Err(format!("{shown} is a URL: write hf:{name}"));
        }
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

/// Returns the only snapshot of a cache folder without `main`; any other folder is returned as it
/// is.
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

#[cfg(test)]
mod tests;
