//! Configurations at the size of the systems that they follow. They were not run here, so their
//! pages must be complete.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use configs::{ModelConfig, RunConfig};
use tests::program::Program;

use crate::program;

/// The heading of a recipe's page above them.
const HEADING: &str = "## The reference's size\n";
/// The rows of its table.
const ROWS: [&str; 4] = ["model", "data", "GPUs", "command"];

/// Returns the configurations that need a published model, by their path from the root.
fn references() -> BTreeMap<String, RunConfig> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(Program::root().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with(".toml") || name == "Cargo.toml" {
            continue;
        }
        let config = RunConfig::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let mut agents = config.agents.values();
        if agents.any(|agent| matches!(agent.model, ModelConfig::Path(_))) {
            found.insert(format!("configs/{name}"), config);
        }
    }
    found
}

/// Returns the section of each page, with the page's name.
fn sections() -> Vec<(PathBuf, String)> {
    let pages = std::fs::read_dir(Program::root().join("configs/recipes")).unwrap();
    let section = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, rest) = text.split_once(HEADING)?;
        let end = rest.find("\n## ").unwrap_or(rest.len());
        Some((path, rest[..end].to_owned()))
    };
    pages.filter_map(|page| section(page.unwrap().path())).collect()
}

#[test]
fn every_reference_configuration_is_described_on_a_page() {
    let (references, sections) = (references(), sections());
    assert!(references.len() >= 12, "{:?}", references.keys());
    for (path, config) in references {
        let commands = [format!("`dyad up {path}`"), format!("`dyad run {path}`")];
        let is_of = |text: &str| commands.iter().any(|command| text.contains(command));
        let pages: Vec<_> = sections.iter().filter(|(_, section)| is_of(section)).collect();
        let [(page, section)] = pages.as_slice() else {
            panic!("{path} has its command on {} pages under {HEADING:?}", pages.len());
        };
        let row = |name: &str| {
            let head = format!("| {name} |");
            let found = section.lines().find_map(|line| line.strip_prefix(&head));
            found.unwrap_or_else(|| panic!("{} has no row {name:?} for {path}", page.display()))
        };
        for name in ROWS {
            assert!(row(name).trim_end_matches('|').trim().len() > 3, "{name} of {path}");
        }
        for model in config.agents.values().map(|agent| &agent.model) {
            let name = match model {
                ModelConfig::Path(path) => path.display().to_string(),
                ModelConfig::Served(name) => name.clone(),
                ModelConfig::Random(_) => continue,
            };
            assert!(
                row("model").contains(&format!("`{name}`")),
                "{name} of {path} is not in its row"
            );
        }
        if let Some(set) = config.tasks.source.strip_prefix("hf:") {
            let set = set.split(':').next().unwrap();
            assert!(row("data").contains(set), "{set} of {path} is not in its row");
        }
        assert!(
            section.contains("not run"),
            "{} says whether {path} was run",
            page.display()
        );
        for file in section.split(|c: char| c.is_whitespace() || c == '`') {
            let is_ours = file.starts_with("configs/") && !file.ends_with('/');
            assert!(
                !is_ours || Program::root().join(file).is_file(),
                "{}: {file}",
                page.display()
            );
        }
    }
}

/// Every recipe that tiny models play has a configuration for large ones.
#[test]
fn every_recipe_has_a_configuration_beyond_the_tiny_one() {
    let pages = std::fs::read_dir(Program::root().join("configs/recipes")).unwrap();
    let without: Vec<PathBuf> = pages
        .map(|page| page.unwrap().path())
        .filter(|path| !std::fs::read_to_string(path).unwrap().contains(HEADING))
        .collect();
    assert!(without.is_empty(), "without {HEADING:?}: {without:?}");
    let game = |config: &RunConfig| config.workflow.params.get("game").map(ToString::to_string);
    let references = references();
    let kind = |config: &RunConfig| (config.workflow.kind.clone(), game(config));
    let large: BTreeSet<_> = references.values().map(kind).collect();
    for tiny in [
        "guess-number",
        "adversarial",
        "thinker-adversary",
        "doctor-patient",
        "self-reward",
        "deep-research",
    ] {
        let config = RunConfig::load(&Program::root().join(format!("configs/{tiny}.toml"))).unwrap();
        assert!(large.contains(&kind(&config)), "{tiny} has no large one: {large:?}");
    }
}

#[test]
fn every_reference_configuration_passes_check_without_its_model() {
    let program = program();
    let empty = tempfile::tempdir().unwrap();
    for (path, config) in references() {
        let output = program
            .command(&["check", &path])
            .env("HF_HUB_CACHE", empty.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{path}: {output:?}");
        for (name, agent) in &config.agents {
            if let ModelConfig::Path(model) = &agent.model {
                let line = format!("# agents.{name}.model: NOT HERE: {} is neither", model.display());
                assert!(said.contains(&line) && said.contains("hf download"), "{path}: {said}");
            }
        }
    }
}

#[test]
fn a_run_without_its_models_and_data_sets_is_not_started() {
    let program = program();
    let (empty, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = "configs/actor-verifier-astraflow.toml";
    let ask = |words: &[&str]| {
        let output = program
            .command(words)
            .env("HF_HUB_CACHE", empty.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = ask(&["check", "--quiet", path]);
    assert_eq!(code, Some(0), "{said}");
    for key in ["eval.source", "eval.suites.math500.source", ".model"] {
        assert!(said.contains(&format!("{key}: NOT HERE: ")), "{key}: {said}");
    }
    for way in ["run", "up"] {
        let (code, said) = ask(&[way, path, "--folder", runs.path().to_str().unwrap()]);
        assert_eq!(code, Some(2), "{way}: {said}");
        for command in [
            "hf download Qwen/Qwen3-8B",
            "hf download --repo-type dataset HuggingFaceH4/MATH-500",
        ] {
            let times = said.lines().filter(|line| line.trim() == command).count();
            assert_eq!(times, 1, "{command}: {said}");
        }
        assert_eq!(
            std::fs::read_dir(runs.path()).unwrap().count(),
            0,
            "{way} left something"
        );
    }
}
