//! Input from the wire, from the command line and from a run's folder.

use broker::codec;
use broker::protocol::bundle::Bundle;
use broker::protocol::control::{Beat, Command};
use broker::protocol::inference::{SharedEnd, SharedTurn};
use broker::protocol::reserve::{ReserveAnswerFrame, ReserveFrame};
use broker::protocol::task::Task;
use broker::protocol::train::{TrainCommand, TrainReply};
use broker::protocol::turn::{ResultFrame, TurnFrame};
use configs::RunConfig;
use rollout::workflow::program::{Question, read_answer};
use tests::program::Program;
use trainer::checkpoint::{Manifest, TrainerState};

use super::{fuzz, golden};

#[test]
fn tasks() {
    fuzz("task, JSON", &golden(&["task.json", "task-minimal.json"]), |bytes| {
        Task::parse(bytes, 1 << 20).is_ok()
    });
}

/// Every payload in bincode, decoded as each type.
#[test]
fn payloads() {
    let names = [
        "bundle-empty.bin",
        "bundle.bin",
        "reserve-answers.bin",
        "reserve-frame.bin",
        "result-frame.bin",
        "train-commands.bin",
        "train-replies.bin",
        "turn-frame.bin",
    ];
    fuzz("payloads, bincode", &golden(&names), |bytes| {
        let sound = [
            codec::decode::<TurnFrame>(bytes).is_ok_and(|frame| frame.validate().is_ok()),
            codec::decode::<ResultFrame>(bytes).is_ok_and(|frame| frame.validate().is_ok()),
            codec::decode::<Bundle>(bytes).is_ok_and(|bundle| bundle.validate().is_ok()),
            codec::decode::<ReserveFrame>(bytes).is_ok(),
            codec::decode::<ReserveAnswerFrame>(bytes).is_ok(),
            codec::decode::<Vec<TrainCommand>>(bytes).is_ok(),
            codec::decode::<Vec<TrainReply>>(bytes).is_ok(),
        ];
        sound.contains(&true)
    });
}

#[test]
fn control() {
    let seeds = golden(&[
        "beat-agent.json",
        "beat-coordinator.json",
        "command.json",
        "shared-turn.json",
        "shared-end.json",
    ]);
    fuzz("heartbeats, orders, shared turns", &seeds, |bytes| {
        let sound = [
            codec::decode_json::<Beat>(bytes).is_ok(),
            codec::decode_json::<Command>(bytes).is_ok(),
            codec::decode_json::<SharedTurn>(bytes).is_ok(),
            codec::decode_json::<SharedEnd>(bytes).is_ok(),
        ];
        sound.contains(&true)
    });
}

/// Any URL is checked, and shown without its secrets.
#[test]
fn urls() {
    let secret = "s3cret";
    let seeds = [
        "amqp://u:s3cret@h:5672/%2f",
        "amqps://u:s3cret@h.example/v?heartbeat=1",
        "redis://:s3cret@[::1]:6379/0",
    ];
    fuzz("broker URLs", &seeds.map(|url| url.as_bytes().to_vec()), |bytes| {
        let url = String::from_utf8_lossy(bytes);
        let shown = broker::bus::amqp::redact(&url);
        let between = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        // Damage may also have moved the secret into the host.
        let once = url.matches(secret).count() == 1;
        let hidden = once && between.is_some_and(|(credentials, _)| credentials.contains(secret));
        assert!(!hidden || !shown.contains(secret), "{url:?} is shown as {shown:?}");
        let _ = broker::bus::amqp::check_url(&url, false);
        true
    });
}

#[test]
fn configurations() {
    let read = |name: &str| std::fs::read(Program::root().join(name)).unwrap();
    let names = [
        "configs/src/check/everything.toml",
        "configs/signal.toml",
        "configs/arithmetic.toml",
        "configs/programs.toml",
    ];
    let path = Program::root().join("configs/fuzz.toml");
    fuzz("configuration, TOML", &names.map(read), |bytes| {
        RunConfig::parse(&String::from_utf8_lossy(bytes), &path).is_ok()
    });
}

#[test]
fn checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [
        r#"{"format": 1, "serial": 3, "step": 8, "digest": "00", "files":
            {"model.safetensors": {"bytes": 12, "blake3": "00"}, "../x": {"bytes": 0, "blake3": ""}}}"#,
        r#"{"format": 1, "step": 8, "optimizer_steps": 8, "skipped_steps": 0, "seq": 9, "version": [1, 8], "reference": false,
            "dtype": "float32", "digest": "00", "meta": "{}"}"#,
    ];
    fuzz(
        "manifest and state of checkpoints",
        &seeds.map(|text| text.as_bytes().to_vec()),
        |bytes| {
            for name in ["manifest.json", "state.json"] {
                std::fs::write(folder.path().join(name), bytes).unwrap();
            }
            let manifest = Manifest::read(folder.path());
            if let Ok(manifest) = &manifest {
                let sound = manifest.verify(folder.path()).is_ok();
                assert!(!sound || manifest.files.is_empty(), "none of its files exist");
            }
            manifest.is_ok() || TrainerState::read(folder.path()).is_ok()
        },
    );
}

#[test]
fn programs() {
    let task = Task::parse(&golden(&["task-minimal.json"])[0], 1 << 20).unwrap();
    let grade = Question::Grade {
        role: "solver".into(),
        text: "7".into(),
        task: task.clone(),
    };
    let step = Question::Step {
        seed: 1,
        params: serde_json::Value::Null,
        events: Vec::new(),
        task,
    };
    let seeds = [
        r#"{"id": 1, "reward": 0.5}"#,
        r#"{"id": 1, "ask": [{"role": "solver", "seat": 0, "prompt": "1 + 1?", "max_new_tokens": 4, "stop": ["\n"]}]}"#,
        r#"{"id": 1, "done": {"rewards": [{"role": "solver", "parts": {"right": 1.0}}], "metrics": {"success": 1.0}}}"#,
    ];
    fuzz(
        "lines of programs",
        &seeds.map(|line| line.as_bytes().to_vec()),
        |bytes| {
            let line = String::from_utf8_lossy(bytes);
            [&grade, &step]
                .into_iter()
                .any(|question| read_answer(question, &line).is_ok())
        },
    );
}
