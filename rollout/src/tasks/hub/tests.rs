//! Folders in the Hub's layout.

use super::*;

fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
    }
    folder
}

fn found(folder: &tempfile::TempDir, part: Option<&str>) -> Result<Vec<String>, String> {
    let root = folder.path();
    let relative = |path: PathBuf| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    Ok(files(root, part)?.into_iter().map(relative).collect())
}

#[test]
fn splits_are_found_by_the_names_that_the_hub_knows() {
    let numbered = folder(&[
        "data/train-00001-of-00002.parquet",
        "data/train-00000-of-00002.parquet",
        "data/test-00000-of-00001-3a5b.parquet",
        "data/extra-00000-of-00001.parquet",
        "README.md",
    ]);
    let train = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"];
    assert_eq!(found(&numbered, None).unwrap(), train);
    assert_eq!(found(&numbered, Some("train")).unwrap(), train);
    assert_eq!(
        found(&numbered, Some("test")).unwrap(),
        ["data/test-00000-of-00001-3a5b.parquet"]
    );
    assert_eq!(
        found(&numbered, Some("extra")).unwrap(),
        ["data/extra-00000-of-00001.parquet"]
    );
    let error = found(&numbered, Some("dev")).unwrap_err();
    assert!(error.contains("no split dev: it has extra, test, train"), "{error}");

    let folders = folder(&[
        "train/b.parquet",
        "train/a.parquet",
        "dev/a.parquet",
        "notes.jsonl",
        ".git/train.parquet",
    ]);
    assert_eq!(found(&folders, None).unwrap(), ["train/a.parquet", "train/b.parquet"]);
    assert_eq!(found(&folders, Some("validation")).unwrap(), ["dev/a.parquet"]);

    let lines = folder(&["my_train_file.jsonl.gz", "contest.jsonl", "val.jsonl"]);
    assert_eq!(found(&lines, Some("train")).unwrap(), ["my_train_file.jsonl.gz"]);
    assert_eq!(found(&lines, Some("validation")).unwrap(), ["val.jsonl"]);
    assert!(found(&lines, Some("test")).is_err(), "contest is no test");

    let one = folder(&["test.json"]);
    assert_eq!(found(&one, None).unwrap(), ["test.json"], "the only split");
    let unnamed = folder(&["b.jsonl", "a.jsonl"]);
    assert_eq!(found(&unnamed, None).unwrap(), ["a.jsonl", "b.jsonl"]);
    let subsets = folder(&["main/train.parquet", "hard/train.parquet"]);
    assert_eq!(found(&subsets, Some("hard/train")).unwrap(), ["hard/train.parquet"]);
}

#[test]
fn the_card_says_more_than_names() {
    let data = folder(&[
        "main/train-00000-of-00001.parquet",
        "main/test-00000-of-00001.parquet",
        "socratic/train-00000-of-00001.parquet",
    ]);
    let card = |default: &str| {
        let text = format!(
            "---\nconfigs:\n- config_name: main\n{default}  data_files:\n  - split: train\n    path: main/train-*\n  - split: test\n    path: main/test-*\n- config_name: socratic\n  data_files:\n  - split: train\n    path: socratic/train-*\n---\n"
        );
        std::fs::write(data.path().join("README.md"), text).unwrap();
    };
    card("");
    let error = found(&data, Some("train")).unwrap_err();
    assert!(error.contains("SUBSET/SPLIT with one of main, socratic"), "{error}");
    assert_eq!(
        found(&data, Some("socratic/train")).unwrap(),
        ["socratic/train-00000-of-00001.parquet"]
    );
    card("  default: true\n");
    assert_eq!(
        found(&data, Some("test")).unwrap(),
        ["main/test-00000-of-00001.parquet"]
    );
    assert!(found(&data, Some("x/train")).unwrap_err().contains("no subset x"));
    let named = |text: &str| {
        let text = format!("---\nconfigs:\n- config_name: a\n  {text}\n---\n");
        std::fs::write(data.path().join("README.md"), text).unwrap();
    };
    named("data_dir: ./main");
    assert_eq!(
        found(&data, None).unwrap(),
        ["main/train-00000-of-00001.parquet"],
        "rows of the test are not trained on"
    );
    named("data_files: ./main/test-*");
    assert_eq!(found(&data, None).unwrap(), ["main/test-00000-of-00001.parquet"]);
    named("data_dir: ../x");
    assert!(found(&data, None).unwrap_err().contains("no file below it"));
    named("data_files: [{split: train, path: main/train-*}, {split: dev, path: nowhere/*}]");
    assert_eq!(
        found(&data, Some("train")).unwrap(),
        ["main/train-00000-of-00001.parquet"],
        "only what is wanted must be there"
    );
    for (path, says) in [("main/dev-*", "means no file"), ("../x.parquet", "no file below it")] {
        let text = format!("---\nconfigs:\n- config_name: a\n  data_files: {path:?}\n---\n");
        std::fs::write(data.path().join("README.md"), text).unwrap();
        let error = found(&data, None).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_cache_is_followed_and_what_is_not_read_is_reported() {
    let cache = folder(&["snapshots/abc/data/train-00000-of-00001.parquet", "blobs/x"]);
    std::fs::create_dir(cache.path().join("refs")).unwrap();
    std::fs::write(cache.path().join("refs/main"), "abc\n").unwrap();
    assert_eq!(
        found(&cache, None).unwrap(),
        ["snapshots/abc/data/train-00000-of-00001.parquet"]
    );
    std::fs::write(cache.path().join("refs/main"), "../..\n").unwrap();
    assert!(found(&cache, None).unwrap_err().contains("name of no snapshot"));
    std::fs::remove_file(cache.path().join("refs/main")).unwrap();
    assert_eq!(
        found(&cache, None).unwrap(),
        ["snapshots/abc/data/train-00000-of-00001.parquet"]
    );
    std::fs::create_dir(cache.path().join("snapshots/def")).unwrap();
    let error = found(&cache, None).unwrap_err();
    assert!(error.contains("no refs/main") && error.contains("abc, def"), "{error}");
    let with_info = folder(&["train.json", "dataset_infos.json", "config.json"]);
    assert_eq!(found(&with_info, None).unwrap(), ["train.json"]);
    let arrow = folder(&[
        "set-train.arrow",
        "cache-12ab.arrow",
        "set-test.arrow",
        "dataset_info.json",
    ]);
    assert_eq!(found(&arrow, None).unwrap(), ["set-train.arrow"]);
    let both = folder(&["train.arrow", "train.jsonl"]);
    assert_eq!(found(&both, None).unwrap(), ["train.jsonl"]);
    let saved = folder(&[
        "snapshots/abc/state.json",
        "snapshots/abc/dataset_info.json",
        "snapshots/abc/a.arrow",
        "blobs/x",
    ]);
    let state = "{\"_data_files\": [{\"filename\": \"a.arrow\"}]}";
    std::fs::write(saved.path().join("snapshots/abc/state.json"), state).unwrap();
    assert_eq!(found(&saved, None).unwrap(), ["snapshots/abc/a.arrow"]);
    let empty = folder(&["table.csv"]);
    assert!(found(&empty, None).unwrap_err().contains("no file that is read"));
    assert!(
        files(Path::new("/nowhere/x"), None)
            .unwrap_err()
            .contains("nothing is downloaded")
    );
}

#[test]
fn dangling_link_or_missing_subset_is_named() {
    let data = folder(&["main/train.jsonl", "socratic/train.jsonl"]);
    let error = found(&data, Some("man/train")).unwrap_err();
    let wanted = "has no subset man: write hf:FOLDER:SUBSET/SPLIT with one of main, socratic";
    assert!(error.ends_with(wanted), "{error}");
    std::os::unix::fs::symlink("gone", data.path().join("main/more.jsonl")).unwrap();
    let error = found(&data, Some("main/train")).unwrap_err();
    assert!(
        error.contains("main/more.jsonl is a link that cannot be opened"),
        "{error}"
    );
}
