//! Tests of whole runs with servers as engines: they train on exactly the tokens they received.

use configs::RunConfig;
use serde_json::Value;

use super::*;
use crate::ledger::Inspector;
use crate::run_folder::RunFolder;

const CONFIG: &str = r#"
    [run]
    name = "apart"
    seed = 3
    mode = "async"
    train_steps = 4
    lead = "a"
    broker = "memory:"
    state = "memory:"
    [tasks]
    source = "generator:signal"
    params = { objects = 4 }
    [workflow]
    kind = "signal"
    group_size = 4
    roles = { speaker = "a", listener = "b" }
    params = { symbols = 4 }
    [defaults.agent]
    model.path = "FOLDER"
    sampling = { temperature = 0.8, max_new_tokens = 3 }
    LORA
    [defaults.agent.train]
    batch_groups = 4
    max_staleness = 1
    entropy = 0.1
    checkpoint_every = 2
    optimizer = { lr = 1e-2 }
    [agents.a]
    engine = { kind = "sglang", urls = ["SGLANG"], weights_folder = "WEIGHTS" }
    [agents.b]
    engine = { kind = "vllm", urls = ["VLLM"] }
"#;

struct Ran {
    home: tempfile::TempDir,
    folder: RunFolder,
    fakes: [Arc<Fake>; 2],
}

fn model(folder: &Path) {
    let words: Vec<String> = (0..4).flat_map(|i| [format!("o{i}"), format!("s{i}")]).collect();
    std::fs::create_dir(folder).unwrap();
    rollout::text::make::write_tokenizer(folder, &TokenizerConfig::Words(words)).unwrap();
    let random: RandomModel = toml::from_str(
        "layers = 2\nhidden = 32\nheads = 2\nmax_context = 32\ntokenizer = 'bytes'\nembedding_std = 1.0\nmatrix_std = 0.2",
    )
    .unwrap();
    let text = TextCodec::open(folder).unwrap();
    let shape = ModelShape::from_random(&random, text.vocab_size(), &text.stop_ids()).unwrap();
    let init = Init::from(&random);
    Weights::random(&shape, init, 5).unwrap().save(&shape, folder).unwrap();
}

fn run(lora: &str) -> Ran {
    let (ran, ended) = play(|text| text.replace("LORA", lora), 0);
    ended.unwrap();
    ran
}

/// Runs it in one process, with a server for each agent. The second server rejects `refuses` loads.
fn play(change: impl FnOnce(&str) -> String, refuses: usize) -> (Ran, anyhow::Result<()>) {
    crate::cli::embedded::system().block_on(async move {
        let home = tempfile::tempdir().unwrap();
        let (folder, weights) = (home.path().join("model"), home.path().join("weights"));
        model(&folder);
        without_weights(&folder, &home.path().join("bare"));
        adapter(&folder, &home.path().join("adapter"));
        let fakes = [EngineKind::Sglang, EngineKind::Vllm].map(|kind| Fake::start(kind, &folder));
        *fakes[1].shared.refuses.lock().unwrap() = refuses;
        let text = change(CONFIG)
            .replace("ADAPTER", home.path().join("adapter").to_str().unwrap())
            .replace("BARE", home.path().join("bare").to_str().unwrap())
            .replace("FOLDER", folder.to_str().unwrap())
            .replace("WEIGHTS", weights.to_str().unwrap())
            .replace("SGLANG", &fakes[0].url())
            .replace("VLLM", &fakes[1].url());
        let config = RunConfig::parse(&text, Path::new("apart.toml")).unwrap();
        let run = RunFolder::create(&home.path().join("runs"), &config, None).unwrap();
        let ended = crate::cli::embedded::embedded(Arc::new(config), run.clone()).await;
        let ran = Ran {
            home,
            folder: run,
            fakes,
        };
        (ran, ended.map(drop))
    })
}

/// Copies a model's folder without its weights.
fn without_weights(model: &Path, folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    for name in names(model) {
        if !name.ends_with(".safetensors") {
            std::fs::copy(model.join(&name), folder.join(&name)).unwrap();
        }
    }
}

fn adapter(model: &Path, folder: &Path) {
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: [Module::Query].into_iter().collect(),
    };
    let adapter = Weights::adapter(&ModelShape::load(model).unwrap(), &lora, 3).unwrap();
    peft::save(folder, &adapter, "base").unwrap();
}

impl Ran {
    fn trained(&self, agent: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.metrics(agent)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == "train").collect()
    }

    /// Checks that both agents trained, on their servers' own log-probs, and on every sample once.
    fn check(&self) {
        for agent in ["a", "b"] {
            let lines = self.trained(agent);
            assert!(agent == "b" || lines.len() == 4, "{lines:#?}");
            let gap = |line: &Value| line["mismatch/on_policy_gap"].as_f64().unwrap();
            assert!(lines.iter().all(|line| gap(line) <= 1e-4), "{lines:#?}");
            assert!(
                lines.iter().any(|line| gap(line) > 0.0),
                "some were of the newest weights: {lines:#?}"
            );
            let name = configs::AgentName::new(agent).unwrap();
            let audit = Inspector::open(&self.folder.ledger(&name)).unwrap().audit().unwrap();
            assert!(audit.violations().is_empty(), "{:?}", audit.violations());
        }
        for fake in &self.fakes {
            assert_eq!(fake.torn(), 0);
            assert!(fake.loads().len() >= 3 && fake.loads().iter().all(|(_, loaded)| *loaded));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_run_trains_whole_models_over_servers_and_samples_them() {
    let ran = run("");
    ran.check();
    let label = ran.fakes[0].label();
    assert!(label.starts_with("dyad-apart-") && label.contains("-a-1.4-"), "{label}");
    let own = ran
        .home
        .path()
        .join("weights")
        .join(ran.folder.run().as_str())
        .join("a");
    let kept = names(&own);
    assert!(
        kept.len() <= 4 && kept.contains(&"1-4".to_owned()),
        "old ones are removed: {kept:?}"
    );
    let name = configs::AgentName::new("b").unwrap();
    assert!(
        !names(&ran.folder.weights(&name)).is_empty(),
        "where no folder is given"
    );
}

#[test]
fn a_run_trains_adapters_over_servers() {
    let ran = run("lora = { rank = 4, alpha = 8.0, targets = [\"attn\", \"mlp\"] }");
    ran.check();
    assert_eq!(ran.fakes[0].label(), "default", "the base stays as it is");
}

/// The least turns of an agent in four batches of four groups; three of a group's four
/// conversations must be valid.
const LEAST_TURNS: usize = 4 * 4 * 3;

/// Changes the second agent: adds lines, and uses a model folder without weights.
fn second(lines: &str) -> impl FnOnce(&str) -> String {
    let engine = "urls = [\"VLLM\"] }";
    let lines = format!("{engine}\nmodel.path = \"BARE\"\n{lines}");
    move |text| text.replace(engine, &lines).replace("LORA", "")
}

#[test]
fn a_frozen_partner_uses_its_servers_weights_without_a_file() {
    let (ran, ended) = play(second("train.enabled = false"), 0);
    ended.unwrap();
    assert_eq!(ran.trained("a").len(), 4);
    let fake = &ran.fakes[1];
    assert!(
        fake.loads().is_empty() && fake.label() == "default",
        "nothing is sent to it"
    );
    assert!(fake.shared.asked.lock().unwrap().len() >= LEAST_TURNS);
    assert!(!trainer::model::has_weights(&ran.home.path().join("bare")));
}

#[test]
fn a_frozen_partners_adapter_is_sent_without_its_base() {
    let (ran, ended) = play(second("train.enabled = false\nlora = { path = \"ADAPTER\" }"), 0);
    ended.unwrap();
    assert_eq!(ran.trained("a").len(), 4);
    let fake = &ran.fakes[1];
    let loads = fake.loads();
    assert!(loads.len() == 1 && loads[0].1 && fake.label() == "default", "{loads:?}");
    let asked = fake.shared.asked.lock().unwrap();
    let adapters = asked
        .iter()
        .filter(|body| body["model"].as_str().unwrap().starts_with("dyad-"));
    assert!(adapters.count() >= LEAST_TURNS, "its turns are the adapter's");
}

#[test]
fn an_agent_that_trains_over_servers_needs_its_weights_here() {
    let (_, ended) = play(second(""), 0);
    let error = format!("{:#}", ended.unwrap_err());
    assert!(
        error.contains("starting agent b") && error.contains("model.safetensors"),
        "{error}"
    );
}

#[test]
fn a_partner_with_a_rejected_adapter_ends_with_the_reason() {
    let frozen = |text: &str| {
        let engine = "urls = [\"VLLM\"] }";
        let text = text.replace(
            engine,
            &format!("{engine}\nlora = {{ path = \"ADAPTER\" }}\ntrain.enabled = false"),
        );
        text.replace("LORA", "")
    };
    let (_, ended) = play(frozen, usize::MAX);
    let error = format!("{:#}", ended.unwrap_err());
    assert!(
        error.contains("refused weights") && error.contains("out of memory"),
        "{error}"
    );
}
