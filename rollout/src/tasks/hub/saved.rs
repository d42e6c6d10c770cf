//! Folders that `save_to_disk` of `datasets` wrote. A data set's `state.json` names its Arrow files
//! in order. `dataset_dict.json` names several splits, each in its own folder.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::splits::choose;

const STATE: &str = "state.json";
/// The file that `datasets` requires next to it.
const INFO: &str = "dataset_info.json";
const SPLITS: &str = "dataset_dict.json";

/// The parts of `state.json` that are read.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "_data_files")]
    files: Vec<DataFile>,
    #[serde(rename = "_split", default)]
    split: Option<String>,
    /// Written by old releases: files of row numbers, by which rows are chosen and ordered.
    #[serde(rename = "_indices_data_files", default)]
    indices: Option<Vec<Value>>,
}

/// The rows of a file; the first releases wrote only some of them.
#[derive(Deserialize)]
struct DataFile {
    filename: String,
    #[serde(default)]
    skip: Option<Value>,
    #[serde(default)]
    take: Option<Value>,
}

#[derive(Deserialize)]
struct Dict {
    splits: Vec<String>,
}

/// Returns true if `save_to_disk` wrote this folder.
pub(crate) fn is_saved(folder: &Path) -> bool {
    let there = |name: &str| folder.join(name).is_file();
    there(SPLITS) || (there(STATE) && there(INFO))
}

/// Returns the files of a split; without a split, of `train` or of the only one.
pub(super) fn files(folder: &Path, subset: Option<&str>, split: Option<&str>) -> Result<Vec<PathBuf>, String> {
    if let Some(subset) = subset {
        return Err(format!(
            "{} was written by save_to_disk, which knows no subsets such as {subset}: write hf:FOLDER or hf:FOLDER:SPLIT",
            folder.display()
        ));
    }
    if folder.join(STATE).is_file() {
        let state: State = read(folder, STATE)?;
        let name = state.split.clone().unwrap_or_else(|| "train".to_owned());
        return choose(folder, &[(name, named(folder, &state)?)], split);
    }
    let dict: Dict = read(folder, SPLITS)?;
    let mut splits = Vec::new();
    for name in dict.splits {
        let at = inside(folder, SPLITS, &name)?;
        splits.push((name, vec![at]));
    }
    let mut found = Vec::new();
    for folder in choose(folder, &splits, split)? {
        let state: State = read(&folder, STATE)?;
        found.extend(named(&folder, &state)?);
    }
    Ok(found)
}

/// Returns the files that a state names, if all of them exist.
fn named(folder: &Path, state: &State) -> Result<Vec<PathBuf>, String> {
    let shown = folder.display();
    let is_part = |file: &DataFile| file.skip.is_some() || file.take.is_some();
    let chosen = state.indices.as_ref().is_some_and(|files| !files.is_empty());
    if chosen || state.files.iter().any(is_part) {
        return Err(format!(
            "{shown} was written by an old `datasets`, with row numbers next to its files (an indices file, or skip and take), \
             which are not read: load it with that release and write flatten_indices().save_to_disk(...)"
        ));
    }
    if state.files.is_empty() {
        return Err(format!("{shown}/{STATE} names no files: the data set has no rows"));
    }
    let there = |file: &DataFile| {
        let path = inside(folder, STATE, &file.filename)?;
        if path.is_file() {
            Ok(path)
        } else {
            let name = &file.filename;
            Err(format!(
                "{shown}/{STATE} names {name}, which is not there: copy the folder whole"
            ))
        }
    };
    state.files.iter().map(there).collect()
}

fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, String> {
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let wrong = |error: serde_json::Error| format!("{} is not what save_to_disk writes: {error}", path.display());
    serde_json::from_str(&text).map_err(wrong)
}

/// Returns the path that `by` names, which must be directly in the folder.
fn inside(folder: &Path, by: &str, name: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(one)), None) => Ok(folder.join(one)),
        _ => Err(format!(
            "{}/{by} names {name:?}, which is nothing in that folder",
            folder.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/tasks/fixtures")
            .join(name)
    }

    fn found(folder: &Path, subset: Option<&str>, split: Option<&str>) -> Result<Vec<String>, String> {
        let relative = |path: PathBuf| path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
        Ok(files(folder, subset, split)?.into_iter().map(relative).collect())
    }

    /// A folder with this state and empty files.
    fn saved(state: &str, files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(STATE), state).unwrap();
        for name in files {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    #[test]
    fn a_saved_data_set_is_its_shards_in_the_order_of_its_state() {
        let shards = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"];
        for split in [None, Some("train")] {
            assert_eq!(found(&fixture("saved"), None, split).unwrap(), shards);
        }
        let error = found(&fixture("saved"), None, Some("test")).unwrap_err();
        assert!(error.contains("no split test: it has train"), "{error}");
        let state = r#"{"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}], "_split": null}"#;
        let unnamed = saved(state, &["a.arrow", "b.arrow", "cache-0123.arrow"]);
        for split in [None, Some("train")] {
            assert_eq!(found(unnamed.path(), None, split).unwrap(), ["b.arrow", "a.arrow"]);
        }
    }

    /// Many kinds of programs keep a state.json with their data.
    #[test]
    fn a_state_of_something_else_makes_no_saved_data_set() {
        let other = saved("{}", &["a.jsonl"]);
        assert!(!is_saved(other.path()));
        std::fs::write(other.path().join(INFO), "{}").unwrap();
        assert!(is_saved(other.path()));
        assert!(is_saved(&fixture("saved")) && is_saved(&fixture("pictures")));
    }

    #[test]
    fn a_saved_dict_has_its_splits_by_name() {
        let pictures = fixture("pictures");
        let shard = |split: &str| vec![format!("{split}/data-00000-of-00001.arrow")];
        assert_eq!(found(&pictures, None, None).unwrap(), shard("train"));
        assert_eq!(found(&pictures, None, Some("test")).unwrap(), shard("test"));
        let error = found(&pictures, None, Some("dev")).unwrap_err();
        assert!(error.contains("no split dev: it has train, test"), "{error}");
        let error = found(&pictures, Some("main"), Some("train")).unwrap_err();
        assert!(error.contains("no subsets such as main"), "{error}");
    }

    #[test]
    fn what_older_releases_keep_with_rows_is_refused_by_name() {
        for state in [
            r#"{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "indices.arrow"}]}"#,
            r#"{"_data_files": [{"filename": "a.arrow", "skip": 2, "take": 4}]}"#,
        ] {
            let old = saved(state, &["a.arrow", "indices.arrow"]);
            let error = found(old.path(), None, None).unwrap_err();
            assert!(error.contains("flatten_indices().save_to_disk"), "{error}");
        }
        let state =
            r#"{"_data_files": [{"filename": "dataset.arrow"}], "_indices_data_files": null, "_split": "test"}"#;
        let old = saved(state, &["dataset.arrow"]);
        assert_eq!(found(old.path(), None, Some("test")).unwrap(), ["dataset.arrow"]);
    }

    #[test]
    fn broken_states_are_reported() {
        for (state, says) in [
            ("x", "state.json is not what save_to_disk writes"),
            (r#"{"_split": "train"}"#, "_data_files"),
            (r#"{"_data_files": []}"#, "has no rows"),
            (
                r#"{"_data_files": [{"filename": "gone.arrow"}]}"#,
                "names gone.arrow, which is not there",
            ),
            (
                r#"{"_data_files": [{"filename": "../a.arrow"}]}"#,
                "nothing in that folder",
            ),
        ] {
            let error = found(saved(state, &[]).path(), None, None).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        for (dict, says) in [
            (r#"{"splits": ["train"]}"#, "cannot read"),
            (r#"{"splits": ["/etc"]}"#, "nothing in that folder"),
            (r#"{"splits": []}"#, "no split train"),
        ] {
            std::fs::write(folder.path().join(SPLITS), dict).unwrap();
            let error = found(folder.path(), None, None).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
