//! Finds the files of a source: a file, a folder, a pattern, or a data set's folder.

use std::path::{Path, PathBuf};

use broker::protocol::task::MAX_TASK_ID;

use super::hub;
use super::patterns::matching;
use super::rows::{Format, Shard};

/// The files of a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// The name that leads the ids of its tasks.
    pub(super) name: String,
    pub(super) shards: Vec<Shard>,
}

impl Files {
    /// Returns the files of a source like `parquet:PATH`; `None` if the source has no files.
    pub(super) fn of(source: &str) -> Option<Result<Self, String>> {
        match source.split_once(':')? {
            ("jsonl", path) => Some(Self::jsonl(Path::new(path))),
            ("parquet", path) => Some(Self::parquet(Path::new(path))),
            ("arrow", path) => Some(Self::arrow(Path::new(path))),
            ("hf", folder) => Some(Self::hub(folder)),
            _ => None,
        }
    }

    /// `jsonl:PATH`: a file, or a pattern.
    pub(super) fn jsonl(path: &Path) -> Result<Self, String> {
        let found = if path.is_dir() {
            return Err(format!(
                "{} is a folder: name a file, or write a pattern such as {}",
                path.display(),
                path.join("*.jsonl").display()
            ));
        } else if path.exists() {
            vec![path.to_owned()]
        } else {
            matching(path)?
        };
        Ok(Self {
            name: name_of(path),
            shards: found.into_iter().map(Shard::lines).collect(),
        })
    }

    /// `parquet:PATH`: a file, a folder of files `*.parquet`, or a pattern.
    pub(super) fn parquet(path: &Path) -> Result<Self, String> {
        Ok(Self::all(path, named(path, "*.parquet")?, Format::Parquet))
    }

    /// `arrow:PATH`: a file, a folder that `save_to_disk` wrote or one of files `*.arrow`, or a
    /// pattern.
    pub(super) fn arrow(path: &Path) -> Result<Self, String> {
        if hub::is_saved(path) {
            return Ok(Self::all(path, hub::files(path, None)?, Format::Arrow));
        }
        let mut found = named(path, "*.arrow")?;
        if !path.is_file() {
            found.retain(|file| !hub::is_cache(file));
        }
        if found.is_empty() {
            return Err(format!(
                "{} has only cache-*.arrow, which `map` of `datasets` left: name the file itself if it is meant",
                path.display()
            ));
        }
        Ok(Self::all(path, found, Format::Arrow))
    }

    /// Makes a source of the files that `path` gives, all in one format.
    fn all(path: &Path, found: Vec<PathBuf>, format: Format) -> Self {
        Self {
            name: name_of(path),
            shards: found.into_iter().map(|path| Shard { path, format }).collect(),
        }
    }

    /// `hf:FOLDER[:SPLIT]`.
    pub(super) fn hub(text: &str) -> Result<Self, String> {
        let (folder, part) = folder_and_split(text);
        let found = hub::files(folder, part)?;
        let stem = name_of(Path::new(folder));
        let stem = stem.rsplit("--").next().unwrap_or_default();
        Ok(Self {
            name: part.map_or_else(|| stem.to_owned(), |part| format!("{stem}-{}", part.replace('/', "-"))),
            shards: found.into_iter().map(Shard::of).collect::<Result<_, _>>()?,
        })
    }
}

/// `FOLDER` or `FOLDER:SPLIT`, the text after `hf:`.
pub(super) fn folder_and_split(text: &str) -> (&Path, Option<&str>) {
    match text.rsplit_once(':') {
        Some((folder, part)) if !Path::new(text).exists() => (Path::new(folder), Some(part)),
        _ => (Path::new(text), None),
    }
}

/// Returns the file at `path`, or the files of that folder that match `inside`, or the files that
/// match `path` as a pattern.
fn named(path: &Path, inside: &str) -> Result<Vec<PathBuf>, String> {
    if path.is_dir() {
        matching(&Path::new(&glob::Pattern::escape(&path.to_string_lossy())).join(inside))
    } else if path.exists() {
        Ok(vec![path.to_owned()])
    } else {
        matching(path)
    }
}

/// Returns the file's name without its endings. A pattern in a folder has the folder's name;
/// `tasks` is the name where there is none.
fn name_of(path: &Path) -> String {
    let file = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut name = file(path);
    if name.contains(['*', '?', '[']) && !path.exists() {
        name = path.parent().map(file).unwrap_or_default();
    }
    if ["gz", "zst"].iter().any(|end| name.ends_with(&format!(".{end}"))) {
        name = stem(&name);
    }
    let name: String = stem(&name)
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_TASK_ID / 8)
        .collect();
    if name.is_empty() { "tasks".to_owned() } else { name }
}

fn stem(name: &str) -> String {
    Path::new(name)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_or_folders() {
        for (path, name) in [
            ("data/math.jsonl", "math"),
            ("data/math.v2.jsonl.gz", "math.v2"),
            ("data/train-*.parquet", "data"),
            ("/data/gsm8k", "gsm8k"),
            ("*.parquet", "tasks"),
        ] {
            assert_eq!(name_of(Path::new(path)), name, "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        let literal = folder.path().join("tasks[1].jsonl");
        std::fs::write(&literal, "").unwrap();
        assert_eq!(name_of(&literal), "tasks[1]", "a file that is there is no pattern");
    }

    #[test]
    fn patterns_and_folders_are_taken_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b-1.parquet", "a-2.parquet", "c.txt", "b-10.parquet"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = |files: Files| -> Vec<String> {
            let name = |shard: &Shard| shard.path.file_name().unwrap().to_string_lossy().into_owned();
            files.shards.iter().map(name).collect()
        };
        let whole = Files::parquet(folder.path()).unwrap();
        assert_eq!(names(whole), ["a-2.parquet", "b-1.parquet", "b-10.parquet"]);
        let some = Files::parquet(&folder.path().join("b-*")).unwrap();
        assert_eq!(names(some), ["b-1.parquet", "b-10.parquet"]);
        for wrong in ["x.parquet", "z-*.parquet", "[.parquet"] {
            let error = Files::parquet(&folder.path().join(wrong)).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        let error = Files::jsonl(folder.path()).unwrap_err();
        assert!(error.contains("is a folder"), "{error}");

        std::fs::write(folder.path().join("cache-1.arrow"), "x").unwrap();
        let error = Files::arrow(folder.path()).unwrap_err();
        assert!(error.contains("only cache-*.arrow"), "{error}");
        for name in ["b.arrow", "a.arrow"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let arrow = Files::arrow(folder.path()).unwrap();
        assert!(arrow.shards.iter().all(|shard| shard.format == Format::Arrow));
        assert_eq!(names(arrow), ["a.arrow", "b.arrow"]);
        let pattern = Files::arrow(&folder.path().join("*.arrow")).unwrap();
        assert_eq!(names(pattern), ["a.arrow", "b.arrow"]);
        let state = "{\"_data_files\": [{\"filename\": \"b.arrow\"}, {\"filename\": \"a.arrow\"}]}";
        std::fs::write(folder.path().join("state.json"), state).unwrap();
        std::fs::write(folder.path().join("dataset_info.json"), "{}").unwrap();
        assert_eq!(names(Files::arrow(folder.path()).unwrap()), ["b.arrow", "a.arrow"]);
    }
}
