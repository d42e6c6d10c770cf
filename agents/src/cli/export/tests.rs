//! Exports of runs, read back by the agents' own loader.

use super::*;
use crate::cli::exit_code::{code, render};
use crate::run_folder::tests::config_in;
use broker::ids::WeightVersion;
use broker::protocol::train::TrainCommand;
use configs::LoraConfig;
use trainer::model::{Decoder, Init, ModelShape, Parts, RowBatch, Weights, peft};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

fn args(base: &Path, agent: &str, step: ExportStep) -> ExportArgs {
    ExportArgs {
        agent: agent.into(),
        run: RunArg {
            run: "latest".into(),
            runs: base.into(),
        },
        step,
        out: base.join("out"),
        merged: false,
        dtype: Kind::F32,
        max_shard_size: ByteSize(SHARD_BYTES),
        force: false,
    }
}

fn refusal(args: &ExportArgs) -> String {
    let error = write(args).unwrap_err();
    assert_eq!(code(&error), 2, "{error:?}");
    render(&error)
}

#[test]
fn shard_size_has_the_units_of_hugging_face_too() {
    for (text, bytes) in [
        ("5GB", 5_000_000_000),
        ("200 MB", 200_000_000),
        ("2 GiB", 2 << 30),
        ("512", 512),
    ] {
        assert_eq!(shard_size(text), Ok(ByteSize(bytes)), "{text}");
    }
    for text in ["5 GX", "0", "0GB"] {
        assert!(shard_size(text).is_err(), "{text}");
    }
}

/// Returns the logits of the exported folder, read by the agent's own loader.
fn logits(shape: &ModelShape, base: &Weights, adapter: Option<&Weights>) -> Vec<f32> {
    let parts = Parts { base, adapter };
    let decoder = Decoder::new(shape, parts).unwrap();
    let batch = RowBatch::new(shape, &[vec![3u32, 7, 1]], trainer::device::Device::Cpu).unwrap();
    let logits = decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap();
    logits.flatten(0, -1).try_into().unwrap()
}

#[test]
fn initial_run_is_exported_as_model_and_as_adapter() {
    let base = tempfile::tempdir().unwrap();
    let mut config = config_in(base.path());
    for (name, agent) in &mut config.agents {
        agent.train.enabled = true;
        agent.lora = (name.as_str() == "b").then(LoraConfig::default);
    }
    RunFolder::create(base.path(), &config, None).unwrap();
    let of = |agent: &str, out: &str, merged: bool| {
        let args = ExportArgs {
            out: base.path().join(out),
            merged,
            ..args(base.path(), agent, ExportStep::Initial)
        };
        write(&args).unwrap();
        args.out
    };
    let whole = of("a", "whole", false);
    assert!(whole.join("tokenizer.json").is_file() && whole.join("generation_config.json").is_file());
    let shape = ModelShape::load(&whole).unwrap();
    let weights = Weights::load(&shape, &whole).unwrap();
    let agent = AgentName::new("a").unwrap();
    let run_folder = RunFolder::find(base.path(), "latest").unwrap();
    let model = Weights::load(&shape, &run_folder.model(&agent)).unwrap();
    assert_eq!(logits(&shape, &weights, None), logits(&shape, &model, None));

    let (alone, merged) = (of("b", "alone", false), of("b", "merged", true));
    let text = std::fs::read_to_string(alone.join(peft::CONFIG)).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let below = PathBuf::from(config["base_model_name_or_path"].as_str().unwrap());
    let shape = ModelShape::load(&below).unwrap();
    let below = Weights::load(&shape, &below).unwrap();
    let (_, adapter) = peft::load(&alone, &shape).unwrap();
    let merged_shape = ModelShape::load(&merged).unwrap();
    let whole = Weights::load(&merged_shape, &merged).unwrap();
    // A fresh adapter equals its base, so both give the same bits.
    let wanted = logits(&shape, &below, Some(&adapter));
    assert_eq!(logits(&merged_shape, &whole, None), wanted);
}

#[test]
fn base_of_an_adapter_uses_the_pinned_commit() {
    let base = tempfile::tempdir().unwrap();
    let mut config = config_in(base.path());
    for agent in config.agents.values_mut() {
        agent.model = ModelConfig::Path("org/model".into());
        agent.lora = Some(LoraConfig::default());
    }
    let run = RunFolder::create(base.path(), &config, None).unwrap();
    let args = args(base.path(), "a", ExportStep::Initial);
    let said = || format!("{:#}", write(&args).unwrap_err());
    assert!(
        said().contains("`hf download org/model`"),
        "nothing is pinned: {}",
        said()
    );
    std::fs::write(run.path().join("pinned.a.json"), r#"{"org/model": "aaaa"}"#).unwrap();
    assert!(said().contains("`hf download org/model --revision aaaa`"), "{}", said());
}

/// Saves `weights` as the agent's checkpoint of a step.
fn save(run: &RunFolder, agent: &AgentName, shape: &ModelShape, base: Option<&Weights>, weights: &Weights, step: u64) {
    let weights = weights.copied_to(trainer::device::Device::Cpu, Dtype::F32).unwrap();
    let options = TrainerOptions::default();
    let mut trainer = match base {
        Some(base) => Trainer::with_base(shape.clone(), base.share(), weights, options).unwrap(),
        None => Trainer::new(shape.clone(), weights, options).unwrap(),
    };
    let version = WeightVersion { lineage: 1, step };
    trainer.execute(TrainCommand::Publish { seq: 0, version }).unwrap();
    let (path, meta) = (run.checkpoints(agent).display().to_string(), String::new());
    trainer.execute(TrainCommand::SaveState { seq: 1, path, meta }).unwrap();
}

#[test]
fn checkpoint_is_exported_without_training_state() {
    let base = tempfile::tempdir().unwrap();
    let mut config = config_in(base.path());
    let b = AgentName::new("b").unwrap();
    config.agents.get_mut(&b).unwrap().lora = Some(LoraConfig::default());
    let run = RunFolder::create(base.path(), &config, None).unwrap();
    for agent in [AgentName::new("a").unwrap(), b] {
        let chosen = Chosen::initial(&run, &agent).unwrap();
        let first = chosen.files(&config, &agent, base.path()).unwrap();
        let shape = ModelShape::load(&first.model).unwrap();
        let model = Weights::load(&shape, &first.model).unwrap();
        let moved = first.adapter.as_ref().unwrap_or(&model);
        let below = first.adapter.is_some().then_some(&model);
        for step in [3, 4] {
            let _ = moved.flat().shallow_clone().f_add_scalar_(0.01).unwrap();
            save(&run, &agent, &shape, below, moved, step);
        }
        let wanted = logits(&shape, below.unwrap_or(moved), below.map(|_| moved));
        let mut args = ExportArgs {
            out: base.path().join(agent.as_str()),
            merged: true,
            ..args(base.path(), agent.as_str(), ExportStep::Latest)
        };
        let said = write(&args).unwrap();
        assert!(said.contains("step 4"), "{said}");
        let names: Vec<_> = std::fs::read_dir(&args.out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(
            !names
                .iter()
                .any(|name| name == "optimizer.safetensors" || name == "state.json")
        );
        let shape = ModelShape::load(&args.out).unwrap();
        let found = logits(&shape, &Weights::load(&shape, &args.out).unwrap(), None);
        let gaps = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        assert!(gaps.fold(0.0, f32::max) < if below.is_some() { 1e-4 } else { f32::MIN_POSITIVE });

        args.force = true;
        std::fs::write(run.checkpoints(&agent).join("step-4/state.json"), "{}").unwrap();
        let said = refusal(&args);
        assert!(said.contains("--step last-good"), "{said}");
        args.step = ExportStep::At(4);
        let said = refusal(&args);
        assert!(said.contains("--step last-good"), "{said}");
        args.step = ExportStep::At(9);
        assert!(refusal(&args).contains("kept steps: 3, 4"));
        args.step = ExportStep::LastGood;
        assert!(write(&args).unwrap().contains("step 3"));
        let provenance: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(args.out.join(EXPORT)).unwrap()).unwrap();
        assert_eq!(
            (&provenance["step"], &provenance["agent"]),
            (&json!(3), &json!(agent.as_str())),
            "{provenance}"
        );
        assert!(provenance["digest"].is_string(), "{provenance}");

        if below.is_some() {
            let shape = ModelShape::load(&first.model).unwrap();
            let init = Init {
                embedding_std: 1.0,
                matrix_std: 0.1,
            };
            Weights::random(&shape, init, 99)
                .unwrap()
                .save(&shape, &first.model)
                .unwrap();
            let said = refusal(&args);
            assert!(said.contains("digest") && said.contains("without --merged"), "{said}");
            args.merged = false;
            assert!(write(&args).unwrap().contains("PEFT"), "alone it is what it was");
        }
    }
}

#[test]
fn missing_agent_or_step_lists_the_existing_ones() {
    let base = tempfile::tempdir().unwrap();
    let error = write(&args(base.path(), "a", ExportStep::Latest)).unwrap_err();
    assert_eq!(code(&error), 2, "no run: {error:?}");
    RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
    let said = refusal(&args(base.path(), "stranger", ExportStep::Latest));
    assert!(said.contains("stranger") && said.contains("it has a, b"), "{said}");
    let said = refusal(&args(base.path(), "a", ExportStep::At(7)));
    assert!(said.contains("step 7") && said.contains("kept steps: none"), "{said}");
    let said = refusal(&args(base.path(), "a", ExportStep::Latest));
    assert!(said.contains("no checkpoint of agent a"), "{said}");
    assert!("7".parse::<ExportStep>() == Ok(ExportStep::At(7)) && "newest".parse::<ExportStep>().is_err());
}

#[test]
fn folder_with_content_is_rejected_unless_it_is_an_export() {
    let base = tempfile::tempdir().unwrap();
    RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
    let mut args = args(base.path(), "a", ExportStep::Initial);
    std::fs::create_dir(&args.out).unwrap();
    write(&args).unwrap();
    assert!(refusal(&args).contains("not empty"));
    args.force = true;
    write(&args).unwrap();
    // A user's own files, a checkpoint, and the exported weights themselves.
    for name in ["notes/mine.txt", "manifest.json"] {
        let path = args.out.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "kept").unwrap();
        assert!(refusal(&args).contains("not an earlier export"), "{name}");
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_dir(args.out.join("notes"));
    }
    let run = RunFolder::find(base.path(), "latest").unwrap();
    // A model that dyad did not export, and the model that is exported now.
    let model = run.model(&AgentName::new("a").unwrap());
    let link = base.path().join("link");
    std::os::unix::fs::symlink(&args.out, &link).unwrap();
    let export = std::mem::replace(&mut args.out, model);
    assert!(refusal(&args).contains("not an earlier export"));
    std::fs::write(args.out.join(EXPORT), "{}").unwrap();
    assert!(refusal(&args).contains("read from there"));
    assert!(args.out.join("config.json").is_file());
    // For a link, the folder that it points to is replaced.
    args.out = link;
    std::fs::write(export.join("old"), "").unwrap();
    write(&args).unwrap();
    assert!(args.out.is_symlink() && export.join(EXPORT).is_file() && !export.join("old").exists());
    std::fs::remove_dir_all(&export).unwrap();
    assert!(refusal(&args).contains("link has no target"));
    args.out = "/".into();
    assert!(refusal(&args).contains("a folder below it"));
    args.out = base.path().join("file");
    std::fs::write(&args.out, "").unwrap();
    assert!(refusal(&args).contains("a file has this name"));
}
