//! Tests of models by name, in a cache like that of `huggingface_hub`: blobs, and snapshots of
//! links to them.

use std::os::unix::fs::symlink;

use configs::EngineKind;

use super::*;

const COMMIT: &str = "b968826d9c46dd6066d109eabc6255188de91218";
const OLDER: &str = "0123456789abcdef0123456789abcdef01234567";

/// Returns a cache with `Qwen/Qwen3-8B`: `main` is COMMIT, and OLDER is there without a branch.
fn cache() -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("models--Qwen--Qwen3-8B");
    std::fs::create_dir_all(repository.join("blobs")).unwrap();
    std::fs::create_dir_all(repository.join("refs/refs/pr")).unwrap();
    std::fs::write(repository.join("refs/main"), COMMIT).unwrap();
    std::fs::write(repository.join("refs/refs/pr/1"), OLDER).unwrap();
    for commit in [COMMIT, OLDER] {
        std::fs::create_dir_all(repository.join("snapshots").join(commit)).unwrap();
        for name in NEEDED {
            put(&repository, commit, name, "{}");
        }
        put(&repository, commit, WEIGHTS, "weights");
    }
    let cache = Cache::at(folder.path().to_owned());
    (folder, cache)
}

/// Writes a file of a snapshot, as a link to its blob.
fn put(repository: &Path, commit: &str, name: &str, text: &str) {
    let blob = format!("{commit}-{name}");
    std::fs::write(repository.join("blobs").join(&blob), text).unwrap();
    let link = repository.join("snapshots").join(commit).join(name);
    symlink(Path::new("../../blobs").join(blob), link).unwrap();
}

fn at(cache: &Cache, name: &str) -> Result<PathBuf, String> {
    locate_in(Path::new(name), Reads::Whole, cache).map_err(|why| why.to_string())
}

#[test]
fn a_name_is_its_snapshot_and_a_folder_itself() {
    let (folder, cache) = cache();
    let snapshots = folder.path().join("models--Qwen--Qwen3-8B/snapshots");
    for (name, commit) in [
        ("Qwen/Qwen3-8B", COMMIT),
        ("Qwen/Qwen3-8B@main", COMMIT),
        ("Qwen/Qwen3-8B@refs/pr/1", OLDER),
        (&format!("Qwen/Qwen3-8B@{OLDER}"), OLDER),
    ] {
        assert_eq!(at(&cache, name), Ok(snapshots.join(commit)), "{name}");
        assert_eq!(std::fs::read(snapshots.join(commit).join(WEIGHTS)).unwrap(), b"weights");
    }
    // A folder is accepted with any content: its reader reports missing files.
    let own = folder.path().display().to_string();
    assert_eq!(at(&cache, &own), Ok(folder.path().to_owned()));
}

#[test]
fn a_missing_model_is_reported_with_its_download_command() {
    let (folder, cache) = cache();
    for (name, command) in [
        ("Qwen/Qwen3-4B", "`hf download Qwen/Qwen3-4B`"),
        ("Qwen/Qwen3-8B@v2", "`hf download Qwen/Qwen3-8B --revision v2`"),
        (
            "Qwen/Qwen3-8B@0000000000000000000000000000000000000000",
            "--revision 0000000000000000000000000000000000000000`",
        ),
    ] {
        let said = at(&cache, name).unwrap_err();
        let root = folder.path().display().to_string();
        assert!(said.contains(command) && said.contains(&root), "{said}");
    }
    for path in [
        "models/mine/step-3",
        "nowhere",
        "/nowhere/model",
        "../a",
        "a/../b",
        "Qwen/Qwen3-8B@../main",
    ] {
        let said = at(&cache, path).unwrap_err();
        assert!(said.starts_with(&format!("there is no folder {path}: ")), "{said}");
    }
}

#[test]
fn file_or_url_in_place_of_a_folder_is_no_download() {
    let (folder, cache) = cache();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let said = at(&cache, &file.display().to_string()).unwrap_err();
    assert!(
        said.ends_with("file is a file: name the folder that holds the files"),
        "{said}"
    );
    // The package's folder has such a path, which is also a legal name of the Hub.
    let said = at(&cache, "src/lib.rs").unwrap_err();
    assert!(said.starts_with("src/lib.rs is a file: "), "{said}");
    let url = "https://huggingface.co/Qwen/Qwen3-8B";
    assert_eq!(at(&cache, url), Err(format!("{url} is a URL: write Qwen/Qwen3-8B")));
}

#[test]
fn an_interrupted_download_is_reported() {
    let (folder, cache) = cache();
    let repository = folder.path().join("models--Qwen--Qwen3-8B");
    let snapshot = repository.join("snapshots").join(COMMIT);
    let lacks = |what: &str| {
        let said = at(&cache, "Qwen/Qwen3-8B").unwrap_err();
        assert!(
            said.contains(&format!("without {what} ")) && said.contains("`hf download Qwen/Qwen3-8B`"),
            "{said}"
        );
    };
    std::fs::remove_file(repository.join("blobs").join(format!("{COMMIT}-{WEIGHTS}"))).unwrap();
    lacks(WEIGHTS);
    let map = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    put(&repository, COMMIT, SHARDS, map);
    put(&repository, COMMIT, "model-00001-of-00002.safetensors", "1");
    lacks("model-00002-of-00002.safetensors");
    put(&repository, COMMIT, "model-00002-of-00002.safetensors", "2");
    assert_eq!(at(&cache, "Qwen/Qwen3-8B"), Ok(snapshot.clone()));
    // A single weight file is read before shards, so missing shards do not matter next to it.
    std::fs::remove_file(snapshot.join("model-00002-of-00002.safetensors")).unwrap();
    lacks("model-00002-of-00002.safetensors");
    std::fs::remove_file(snapshot.join(WEIGHTS)).unwrap();
    put(&repository, COMMIT, WEIGHTS, "w");
    assert_eq!(at(&cache, "Qwen/Qwen3-8B"), Ok(snapshot.clone()));
    std::fs::remove_file(snapshot.join("tokenizer.json")).unwrap();
    lacks("tokenizer.json");
}

/// Covers each key that matters, with the kinds of engines.
#[test]
fn weights_are_read_unless_only_foreign_servers_use_them() {
    let text = include_str!("../../../../configs/actor-verifier.toml");
    let config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
    let mut frozen = config.agents.into_values().next().unwrap();
    frozen.train.enabled = false;
    let keys: [fn(&mut AgentConfig); 3] = [
        |agent| agent.train.enabled = true,
        |agent| agent.train.warm_start = toml::from_str("source = 'jsonl:x'\nsteps = 1\nbatch = 1").ok(),
        |agent| agent.past = toml::from_str("of = 'a'\nevery = 1").ok(),
    ];
    for (kind, alone) in [
        (EngineKind::Embedded, Reads::Whole),
        (EngineKind::Scripted, Reads::Whole),
        (EngineKind::Dyad, Reads::Whole),
        (EngineKind::Sglang, Reads::NoWeights),
        (EngineKind::Vllm, Reads::NoWeights),
    ] {
        frozen.engine.kind = kind;
        frozen.lora = None;
        assert_eq!(Reads::of(&frozen), alone, "{kind:?}");
        frozen.lora = Some(configs::LoraConfig::default());
        assert_eq!(Reads::of(&frozen), alone, "{kind:?}: an adapter is made over the shape");
        for (place, key) in keys.iter().enumerate() {
            let mut agent = frozen.clone();
            key(&mut agent);
            assert_eq!(Reads::of(&agent), Reads::Whole, "{kind:?}, {place}");
        }
    }
}

#[test]
fn unread_weights_are_left_out_of_the_download() {
    let (folder, cache) = cache();
    let repository = folder.path().join("models--Qwen--Qwen3-8B");
    let text = include_str!("../../../../configs/actor-verifier.toml");
    let mut config = RunConfig::parse(text, Path::new("x.toml")).unwrap();
    let verifier = config.agents.get_mut(&AgentName::new("verifier").unwrap()).unwrap();
    (verifier.train.enabled, verifier.engine.kind) = (false, EngineKind::Vllm);
    assert!(downloads(&config, &cache).is_empty());

    std::fs::remove_file(repository.join("blobs").join(format!("{COMMIT}-{WEIGHTS}"))).unwrap();
    let whole = "hf download Qwen/Qwen3-8B".to_owned();
    let solver = ("agents.solver.model".to_owned(), whole.clone());
    assert_eq!(downloads(&config, &cache), std::slice::from_ref(&solver));
    let here = |agent: usize| {
        let found = found(&config, &cache).swap_remove(agent);
        let folder = found.folder.map_err(|why| why.to_string());
        (folder.map(|folder| folder.display().to_string()), found.reads)
    };
    let (solver_folder, verifier_folder) = (here(0), here(1));
    assert!(solver_folder.0.unwrap_err().contains("without model.safetensors"));
    assert_eq!(verifier_folder.1, Reads::NoWeights);
    assert!(verifier_folder.0.unwrap().contains(COMMIT));

    std::fs::remove_file(repository.join("snapshots").join(COMMIT).join("tokenizer.json")).unwrap();
    let without = (
        "agents.verifier.model".to_owned(),
        format!("{whole} --exclude '*.safetensors'"),
    );
    assert_eq!(downloads(&config, &cache), [solver, without]);
    assert!(here(1).0.unwrap_err().contains("without tokenizer.json"));
}

#[test]
fn found_lists_the_models_of_a_configuration() {
    let (_folder, cache) = cache();
    let text = include_str!("../../../../configs/actor-verifier.toml");
    let parse = |text: &str| RunConfig::parse(text, Path::new("x.toml")).unwrap();
    let models = found(&parse(text), &cache);
    assert_eq!(models.len(), 2);
    let FoundModel { key, model, folder, .. } = &models[0];
    assert_eq!(
        (key.as_str(), model.as_path()),
        ("agents.solver.model", Path::new("Qwen/Qwen3-8B"))
    );
    assert!(
        folder.as_ref().is_ok_and(|folder| folder.ends_with(COMMIT)),
        "{models:?}"
    );
    let models = found(&parse(&text.replace("Qwen/Qwen3-8B\"", "Qwen/Qwen3-4B\"")), &cache);
    let why = models[1].folder.as_ref().unwrap_err().to_string();
    assert!(
        models[1].key == "agents.verifier.model" && why.contains("hf download Qwen/Qwen3-4B"),
        "{models:?}"
    );
    let random = include_str!("../../../../configs/signal.toml");
    assert!(found(&parse(random), &cache).is_empty());
}
