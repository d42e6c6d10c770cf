//! The card of a data set (the YAML at the head of its README.md): its subsets, splits and files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

use super::splits::{below, by_names, choose, expand};

/// The most bytes of a card that are read.
const LONGEST: usize = 1 << 20;
/// The most levels of nested lists and maps in a card.
const DEEPEST: usize = 32;

/// An entry of `configs`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subset {
    name: String,
    default: bool,
    files: Named,
}

/// How a subset names its files.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// Splits with patterns of files.
    Patterns(Vec<(String, Vec<String>)>),
    /// All files below a folder; their names give the splits.
    Folder(String),
}

/// Returns the subsets of the card; none without a card, or where the card names no files.
pub(super) fn subsets(folder: &Path) -> Result<Vec<Subset>, String> {
    let path = folder.join("README.md");
    let Ok(file) = File::open(&path) else {
        return Ok(Vec::new());
    };
    let mut text = Vec::new();
    let length = file.take(LONGEST as u64).read_to_end(&mut text);
    length.map_err(|error| format!("cannot read the card {}: {error}", path.display()))?;
    let cut = text.len() == LONGEST;
    let text = String::from_utf8_lossy(&text);
    if cut && begins(&text).is_some() && head(&text).is_none() {
        return Err(format!(
            "the card {}: its head does not end within {LONGEST} bytes",
            path.display()
        ));
    }
    read(&text).map_err(|message| format!("the card {}: {message}", path.display()))
}

fn read(text: &str) -> Result<Vec<Subset>, String> {
    let Some(head) = head(text) else { return Ok(Vec::new()) };
    simple(head)?;
    let documents = YamlLoader::load_from_str(head).map_err(|error| format!("its head is not YAML: {error}"))?;
    let Some(configs) = documents.first().and_then(|document| document["configs"].as_vec()) else {
        return Ok(Vec::new());
    };
    let subset = |config: &Yaml| {
        Some(Subset {
            name: config["config_name"].as_str().unwrap_or("default").to_owned(),
            default: config["default"].as_bool().unwrap_or(false),
            files: files(config)?,
        })
    };
    Ok(configs.iter().filter_map(subset).collect())
}

/// Rejects YAML that is short to write and expensive to read: the loader copies the value of an
/// alias, and reads lists by recursion.
fn simple(head: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(head);
    let mut depth: usize = 0;
    loop {
        let (event, _) = parser
            .next_token()
            .map_err(|error| format!("its head is not YAML: {error}"))?;
        match event {
            Event::Alias(..) => return Err("its head has an alias (*NAME), which is not read".into()),
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            Event::StreamEnd => return Ok(()),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(format!(
                "its head has more than {DEEPEST} lists and maps one in another"
            ));
        }
    }
}

/// Returns the text between the first two lines of hyphens.
fn head(text: &str) -> Option<&str> {
    begins(text)?.split_once("\n---").map(|(head, _)| head)
}

/// Returns the text after the first line of hyphens.
fn begins(text: &str) -> Option<&str> {
    text.trim_start_matches('\u{feff}').strip_prefix("---")
}

/// `data_files`: a pattern, a list of patterns, or a list of `{split, path}`. Patterns count from
/// `data_dir`. `data_dir` alone is a folder.
fn files(config: &Yaml) -> Option<Named> {
    let folder = config["data_dir"].as_str();
    let under = folder.map(|folder| format!("{}/", folder.trim_end_matches('/')));
    let under = under.unwrap_or_default();
    let patterns = |value: &Yaml| -> Vec<String> {
        let of = |value: &Yaml| value.as_str().map(|pattern| format!("{under}{pattern}"));
        match value.as_vec() {
            Some(list) => list.iter().filter_map(of).collect(),
            None => of(value).into_iter().collect(),
        }
    };
    let data = &config["data_files"];
    let of_split = |one: &Yaml| Some((one["split"].as_str()?.to_owned(), patterns(&one["path"])));
    let splits: Vec<_> = data.as_vec().into_iter().flatten().filter_map(of_split).collect();
    let all = patterns(data);
    match (splits.is_empty(), all.is_empty()) {
        (false, _) => Some(Named::Patterns(splits)),
        (true, false) => Some(Named::Patterns(vec![("train".into(), all)])),
        (true, true) => folder.map(|folder| Named::Folder(folder.to_owned())),
    }
}

/// Returns the files of a split of the named subset. Without a name, takes the default subset or
/// the only one.
pub(super) fn chosen(
    folder: &Path,
    subsets: &[Subset],
    wanted: Option<&str>,
    split: Option<&str>,
) -> Result<Vec<PathBuf>, String> {
    let by_default = || {
        let named = subsets.iter().find(|subset| subset.default || subset.name == "default");
        named.or(if subsets.len() == 1 { subsets.first() } else { None })
    };
    let found = match wanted {
        Some(wanted) => subsets.iter().find(|subset| subset.name == wanted),
        None => by_default(),
    };
    let Some(subset) = found else {
        let known: Vec<&str> = subsets.iter().map(|subset| subset.name.as_str()).collect();
        let wanted = wanted.map_or_else(|| "several subsets".to_owned(), |wanted| format!("no subset {wanted}"));
        return Err(format!(
            "{} has {wanted}: write hf:FOLDER:SUBSET/SPLIT with one of {}",
            folder.display(),
            known.join(", ")
        ));
    };
    match &subset.files {
        Named::Patterns(splits) => expand(folder, &choose(folder, splits, split)?),
        Named::Folder(name) => choose(folder, &by_names(&folder.join(below(folder, name)?))?, split),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_name_splits_in_three_ways() {
        let found =
            |configs: &str| read(&format!("---\nlicense: mit\nconfigs:\n{configs}---\n# A data set\n")).unwrap();
        let listed = found(
            "- config_name: main\n  default: true\n  data_files:\n  - split: train\n    path: main/train-*\n  - split: test\n    path:\n    - a.parquet\n    - b.parquet\n",
        );
        assert!(listed[0].default && listed[0].name == "main");
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            listed[0].files,
            Named::Patterns(vec![
                ("train".to_owned(), owned(&["main/train-*"])),
                ("test".to_owned(), owned(&["a.parquet", "b.parquet"]))
            ])
        );
        assert_eq!(
            found("- config_name: x\n  data_files: \"*.jsonl\"\n")[0].files,
            Named::Patterns(vec![("train".to_owned(), owned(&["*.jsonl"]))])
        );
        assert_eq!(
            found("- config_name: x\n  data_dir: sub\n")[0].files,
            Named::Folder("sub".to_owned())
        );
        for none in ["no card", "---\nlicense: mit\n---\n", "---\n"] {
            assert_eq!(read(none), Ok(Vec::new()), "{none}");
        }
        assert!(read("---\na: [\n---\n").unwrap_err().contains("not YAML"));
        let bomb = read("---\na: &a [x, x]\nb: [*a, *a]\n---\n").unwrap_err();
        assert!(bomb.contains("alias"), "{bomb}");
        let deep = read(&format!("---\n{}x\n---\n", "- ".repeat(1000))).unwrap_err();
        assert!(deep.contains("one in another"), "{deep}");
    }
}
