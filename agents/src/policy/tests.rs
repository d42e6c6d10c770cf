//! Tests of random models, the device of weights, and the rules for reading them.

use configs::WarmStartConfig;
use trainer::train::Source;

use super::*;
use crate::run_folder::tests::config_in;

/// Returns the first agent's settings, which train on the CPU, with its random model.
fn opened(folder: &Path) -> Prepared {
    let config = config_in(folder);
    let (agent, settings) = config.agents.first_key_value().unwrap();
    let ModelConfig::Random(random) = &settings.model else {
        panic!("the test's model is random");
    };
    let path = folder.join("model");
    make(random, &path, agent, 1, agent).unwrap();
    open(path, settings.clone(), 1).unwrap()
}

#[test]
fn frozen_weights_use_device_memory_only_if_computed_here() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = opened(folder.path()).settings;
    let gpu = Device::Cuda(0);
    for (kind, frozen) in [
        (EngineKind::Embedded, gpu),
        (EngineKind::Scripted, Device::Cpu),
        (EngineKind::Dyad, Device::Cpu),
        (EngineKind::Sglang, Device::Cpu),
        (EngineKind::Vllm, Device::Cpu),
    ] {
        settings.engine.kind = kind;
        settings.train.enabled = true;
        assert_eq!(
            frozen_at(&settings, gpu),
            gpu,
            "{kind:?}: the trainer has its base there"
        );
        settings.train.enabled = false;
        assert_eq!(frozen_at(&settings, gpu), frozen, "{kind:?}");
        settings.train.warm_start = Some(WarmStartConfig {
            source: "generator:signal".into(),
            steps: 1,
            batch: 1,
            lr: 1e-3,
            params: toml::Table::new(),
        });
        assert_eq!(frozen_at(&settings, gpu), gpu, "{kind:?}: it is trained once");
        settings.train.warm_start = None;
    }
}

#[test]
fn the_first_weights_are_readable_until_a_trainer_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut prepared = opened(folder.path());
    let other = Weights::load(&prepared.shape, &prepared.folder).unwrap();
    assert!(prepared.served().is_ok() && prepared.form().is_ok());
    assert!(matches!(prepared.trained(), Ok(Source::Files(_))));
    assert!(prepared.served().is_err() && prepared.form().is_err() && prepared.trained().is_err());
    prepared.renew(other);
    assert!(prepared.served().is_ok() && prepared.form().is_ok());
}

/// A missing or damaged file is ignored while the weights are unused, and reported when needed.
#[test]
fn a_policy_with_weights_on_servers_opens_without_the_file() {
    let home = tempfile::tempdir().unwrap();
    let Prepared { folder, settings, .. } = opened(home.path());
    let open = |kind, trains, lora| {
        let mut settings = settings.clone();
        (settings.engine.kind, settings.train.enabled, settings.lora) = (kind, trains, lora);
        open(folder.clone(), settings, 1)
    };
    let file = folder.join("model.safetensors");
    std::fs::write(&file, "torn").unwrap();
    for lost in [false, true] {
        if lost {
            std::fs::remove_file(&file).unwrap();
        }
        for kind in [EngineKind::Sglang, EngineKind::Vllm] {
            let whole = open(kind, false, None).unwrap();
            assert!(whole.weights().is_err() && whole.base.is_none(), "{kind:?}, {lost}");
            assert!(!words(&whole.text).is_empty() && whole.shape.vocab > 0);
            let adapter = open(kind, false, Some(LoraConfig::default())).unwrap();
            assert!(adapter.weights().unwrap().layout().lora().is_some() && adapter.base.is_none());
        }
        for (kind, trains) in [
            (EngineKind::Sglang, true),
            (EngineKind::Vllm, true),
            (EngineKind::Dyad, false),
            (EngineKind::Embedded, false),
        ] {
            for lora in [None, Some(LoraConfig::default())] {
                let refused = open(kind, trains, lora).err().unwrap().to_string();
                assert!(refused.contains("model.safetensors"), "{kind:?}, {lost}: {refused}");
            }
        }
    }
}

#[test]
fn a_folder_without_weights_is_made_again_and_a_whole_one_kept() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("model");
    let (shape, agent) = (
        "layers = 1\nhidden = 8\nheads = 2\nmax_context = 16\ntokenizer = { words = [\"a\"] }",
        AgentName::new("a").unwrap(),
    );
    let random: RandomModel = toml::from_str(shape).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("left.json"), "{}").unwrap();
    make(&random, &folder, &agent, 1, &agent).unwrap();
    let weights = folder.join("model.safetensors");
    let made = std::fs::read(&weights).unwrap();
    assert!(!folder.join("left.json").exists());
    make(&random, &folder, &agent, 2, &agent).unwrap();
    assert_eq!(std::fs::read(&weights).unwrap(), made);
    let left: Vec<_> = std::fs::read_dir(base.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary folder remains: {left:?}");
}

#[test]
fn a_token_without_an_embedding_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = opened(folder.path());
    let path = prepared.folder.join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let vocab = prepared.shape.vocab;
    let added = serde_json::json!({"id": vocab, "content": "<search>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": false});
    tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let error = open(prepared.folder.clone(), prepared.settings.clone(), 1)
        .map(|_| ())
        .unwrap_err();
    let said = error.to_string();
    assert!(error.is::<Usage>() && said.contains("\"<search>\""), "{said}");
    assert!(
        said.contains(&format!("{} ids", vocab + 1)) && said.contains(&format!("the model {vocab}:")),
        "{said}"
    );
}

#[test]
fn a_base_model_takes_the_chat_template_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = opened(folder.path());
    let path = prepared.folder.join("tokenizer_config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let template = config.as_object_mut().unwrap().remove("chat_template").unwrap();
    std::fs::write(&path, config.to_string()).unwrap();
    let mut settings = prepared.settings.clone();
    let error = open(prepared.folder.clone(), settings.clone(), 1)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("agents.NAME.chat_template"), "{error}");
    let file = folder.path().join("own.jinja");
    settings.chat_template = Some(file.clone());
    let error = open(prepared.folder.clone(), settings.clone(), 1)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("own.jinja"), "{error}");
    std::fs::write(&file, template.as_str().unwrap()).unwrap();
    let again = open(prepared.folder.clone(), settings, 1).unwrap();
    let chat = [broker::protocol::turn::Message::user("x")];
    assert_eq!(
        again.text.chat(&chat, true).unwrap(),
        prepared.text.chat(&chat, true).unwrap()
    );
}
