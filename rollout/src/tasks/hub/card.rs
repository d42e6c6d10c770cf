//! What the card of a data set (the YAML at the head of its README.md) says about subsets, splits and files.

use std::path::Path;

use yaml_rust2::{Yaml, YamlLoader};

use super::{Splits, expand};

/// An entry of `configs`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subset {
    name: String,
    default: bool,
    /// Split and patterns of files.
    files: Vec<(String, Vec<String>)>,
}

/// The subsets of the card; none without a card, or where it names no files.
pub(super) fn subsets(folder: &Path) -> Result<Vec<Subset>, String> {
    let path = folder.join("README.md");
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(Vec::new());
    };
    read(&text).map_err(|message| format!("the card {}: {message}", path.display()))
}

fn read(text: &str) -> Result<Vec<Subset>, String> {
    let Some(head) = head(text) else { return Ok(Vec::new()) };
    let documents = YamlLoader::load_from_str(head).map_err(|error| format!("its head is not YAML: {error}"))?;
    let Some(configs) = documents.first().and_then(|document| document["configs"].as_vec()) else {
        return Ok(Vec::new());
    };
    let subset = |config: &Yaml| Subset {
        name: config["config_name"].as_str().unwrap_or("default").to_owned(),
        default: config["default"].as_bool().unwrap_or(false),
        files: files(config),
    };
    let found = configs.iter().map(subset).filter(|subset| !subset.files.is_empty());
    Ok(found.collect())
}

/// What stands between the first two lines of hyphens.
fn head(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}').strip_prefix("---")?;
    text.split_once("\n---").map(|(head, _)| head)
}

/// `data_files`: a pattern, a list of them, or a list of `{split, path}`; patterns count from `data_dir`.
fn files(config: &Yaml) -> Vec<(String, Vec<String>)> {
    let under = config["data_dir"]
        .as_str()
        .map(|folder| format!("{}/", folder.trim_end_matches('/')));
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
        (false, _) => splits,
        (true, false) => vec![("train".into(), all)],
        (true, true) if !under.is_empty() => vec![("train".into(), vec![format!("{under}*")])],
        (true, true) => Vec::new(),
    }
}

/// The splits of the subset of this name; of the one that is the default, or the only one, if not given.
pub(super) fn splits(folder: &Path, subsets: &[Subset], wanted: Option<&str>) -> Result<Splits, String> {
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
    let files = subset.files.iter();
    files
        .map(|(split, patterns)| Ok((split.clone(), expand(folder, patterns)?)))
        .collect()
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
            [
                ("train".to_owned(), owned(&["main/train-*"])),
                ("test".to_owned(), owned(&["a.parquet", "b.parquet"]))
            ]
        );
        assert_eq!(
            found("- config_name: x\n  data_files: \"*.jsonl\"\n")[0].files,
            [("train".to_owned(), owned(&["*.jsonl"]))]
        );
        assert_eq!(
            found("- config_name: x\n  data_dir: sub\n")[0].files,
            [("train".to_owned(), owned(&["sub/*"]))]
        );
        for none in ["no card", "---\nlicense: mit\n---\n", "---\n"] {
            assert_eq!(read(none), Ok(Vec::new()), "{none}");
        }
        assert!(read("---\na: [\n---\n").unwrap_err().contains("not YAML"));
    }
}
