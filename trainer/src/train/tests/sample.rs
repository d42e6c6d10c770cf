//! Sampling between commands.

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::train::{Drawn, ForwardWeights, SampleParams};
use configs::{Dtype, Swap};

use super::*;
use crate::engine::{Engine, EngineOptions, GenRequest};
use crate::model::{LoraShape, Module};
use crate::sampling::SamplingParams;
use crate::weights::Published;

const GREEDY: SampleParams = SampleParams {
    temperature: 0.0,
    top_p: 1.0,
    top_k: 0,
    min_p: 0.0,
    max_new_tokens: 6,
    stop_ids: vec![],
    seed: 1,
};

const VERSION: WeightVersion = WeightVersion { lineage: 1, step: 0 };

fn prompts() -> Vec<Vec<u32>> {
    vec![vec![3, 7, 1], vec![5], vec![3, 7, 1]]
}

fn ask(trainer: &mut Trainer, seq: u64, params: SampleParams) -> (Option<WeightVersion>, Vec<Drawn>) {
    let prompts = prompts();
    match trainer.execute(TrainCommand::Sample { seq, prompts, params }).unwrap() {
        TrainReply::Samples { version, answers } => (version, answers),
        other => panic!("{other:?}"),
    }
}

fn publish(trainer: &mut Trainer, seq: u64) {
    let version = VERSION;
    trainer.execute(TrainCommand::Publish { seq, version }).unwrap();
}

/// The answers of a separate engine with the trainer's weights.
fn engines(trainer: &Trainer, base: Option<&Weights>) -> Vec<(Vec<u32>, Vec<f32>)> {
    let weights = trainer.weights().copied_to(of_tests(), Dtype::F32).unwrap();
    let weights = Published::new(weights, VERSION);
    let options = EngineOptions {
        slots: 32,
        prefill_tokens: 4096,
        prefix_cache: 0,
        cache: None,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    let mut engine = match base {
        Some(base) => Engine::with_base(&shape(false), base.share(), weights, options).unwrap(),
        None => Engine::new(&shape(false), weights, options).unwrap(),
    };
    let request = |(at, prompt): (u128, Vec<u32>)| GenRequest {
        id: RequestId(at.to_le_bytes()),
        prompt_ids: prompt.into(),
        max_new_tokens: 6,
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        stop_ids: Arc::from([]),
        stop: None,
        seed: 9,
        keep: false,
        top: 0,
        prompt_top: None,
    };
    let wave = (0..).zip(prompts()).map(request).collect();
    let finished = engine.run_wave(wave).unwrap();
    finished.into_iter().map(|one| (one.output_ids, one.logprobs)).collect()
}

fn said(answers: Vec<Drawn>) -> Vec<(Vec<u32>, Vec<f32>)> {
    answers.into_iter().map(|one| (one.ids, one.logprobs)).collect()
}

#[test]
fn greedy_answers_are_the_engines_of_the_weights_as_they_are() {
    tch::set_num_threads(1);
    let base = trainer(1, defaults()).weights_snapshot().unwrap();
    let base = base.copied_to(of_tests(), Dtype::F32).unwrap();
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: Module::ALL.into_iter().collect(),
    };
    let adapter = Weights::adapter(&shape(false), &lora, 3).unwrap();
    let adapted = Trainer::with_base(shape(false), base.share(), adapter, defaults()).unwrap();
    for (mut trainer, base) in [(trainer(1, defaults()), None), (adapted, Some(base))] {
        publish(&mut trainer, 1);
        let (version, first) = ask(&mut trainer, 2, GREEDY);
        assert_eq!(version, Some(VERSION));
        assert!(first.iter().all(|one| one.ids.len() == 6 && one.logprobs.len() == 6));
        assert_eq!(said(first), engines(&trainer, base.as_ref()));
        // Before they are published again, the new weights have no version, and they give the
        // answers.
        let before = digest(&trainer);
        let (batch, loss) = (batch(1), POLICY);
        trainer
            .execute(TrainCommand::ForwardBackward { seq: 3, batch, loss })
            .unwrap();
        let params = OptimStep { lr: 0.1, ..OPTIM };
        trainer.execute(TrainCommand::OptimStep { seq: 4, params }).unwrap();
        assert_ne!(before, digest(&trainer));
        let (version, moved) = ask(&mut trainer, 5, GREEDY);
        assert_eq!(version, None);
        assert_eq!(said(moved), engines(&trainer, base.as_ref()));
    }
}

#[test]
fn a_repeat_gets_the_first_reply_and_sampling_changes_nothing() {
    let mut asked = trainer(1, defaults());
    publish(&mut asked, 1);
    let params = SampleParams {
        temperature: 1.0,
        ..GREEDY
    };
    let first = ask(&mut asked, 2, params.clone());
    assert_ne!(first.1[0].ids, first.1[2].ids, "equal prompts draw by themselves");
    let again = ask(&mut asked, 3, params.clone());
    assert_eq!(again, first, "the same seed, the same weights");
    let (batch, loss) = (batch(2), POLICY);
    let forward = TrainCommand::ForwardBackward { seq: 4, batch, loss };
    asked.execute(forward.clone()).unwrap();
    asked
        .execute(TrainCommand::OptimStep { seq: 5, params: OPTIM })
        .unwrap();
    assert_eq!(
        ask(&mut asked, 2, params.clone()),
        first,
        "though the weights have moved"
    );
    let prompts = vec![vec![1]];
    let other = TrainCommand::Sample {
        seq: 2,
        prompts,
        params,
    };
    assert!(user(asked.execute(other).unwrap_err()).contains("another command"));
    // The same as without the question.
    let mut alone = trainer(1, defaults());
    publish(&mut alone, 3);
    alone.execute(forward).unwrap();
    alone
        .execute(TrainCommand::OptimStep { seq: 5, params: OPTIM })
        .unwrap();
    assert_eq!(digest(&alone), digest(&asked));
}

#[test]
fn a_restored_trainer_says_the_version_that_it_would_have_said() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().display().to_string();
    let mut straight = trainer(1, defaults());
    publish(&mut straight, 1);
    for (seq, moved) in [(2, false), (6, true)] {
        if moved {
            train(&mut straight, 2);
        }
        let (path, meta) = (path.clone(), String::new());
        straight
            .execute(TrainCommand::SaveState {
                seq,
                path: path.clone(),
                meta,
            })
            .unwrap();
        let mut restored = trainer(9, defaults());
        restored.execute(TrainCommand::LoadState { seq, path }).unwrap();
        let said = ask(&mut restored, seq + 1, GREEDY);
        assert_eq!(said.0, (!moved).then_some(VERSION));
        assert_eq!(said, ask(&mut straight, seq + 1, GREEDY));
    }
}

#[test]
fn its_logprobs_are_those_of_a_forward_pass_at_its_temperature() {
    let mut trainer = trainer(1, defaults());
    publish(&mut trainer, 1);
    let params = SampleParams {
        temperature: 0.7,
        ..GREEDY
    };
    let answers = ask(&mut trainer, 2, params).1;
    let span = |(prompt, answer): (Vec<u32>, &Drawn)| Span {
        mask: [vec![false; prompt.len()], vec![true; answer.ids.len()]].concat(),
        behaviour_lp: vec![-1.0; prompt.len() + answer.ids.len()],
        ids: [prompt, answer.ids.clone()].concat(),
        temperature: 0.7,
        ..Span::default()
    };
    let batch = TrainBatch {
        spans: prompts().into_iter().zip(&answers).map(span).collect(),
        tokens: 18,
    };
    let weights = ForwardWeights::Trained;
    let reply = trainer
        .execute(TrainCommand::Forward { seq: 3, batch, weights })
        .unwrap();
    let TrainReply::LogProbs(found) = reply else {
        panic!("{reply:?}")
    };
    for ((prompt, answer), found) in prompts().iter().zip(&answers).zip(found) {
        for (a, b) in answer.logprobs.iter().zip(&found[prompt.len()..]) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

#[test]
fn an_unanswerable_prompt_is_reported_by_its_place() {
    let mut trainer = trainer(1, defaults());
    let mut refused = |prompts: Vec<Vec<u32>>, params: SampleParams| {
        let command = TrainCommand::Sample {
            seq: 1,
            prompts,
            params,
        };
        user(trainer.execute(command).unwrap_err())
    };
    let said = refused(vec![vec![1], vec![24]], GREEDY);
    assert!(said.contains("prompt 1") && said.contains("token id 24"), "{said}");
    assert!(refused(vec![vec![]], GREEDY).contains("empty"));
    assert!(refused(vec![vec![1; 32]], GREEDY).contains("32 tokens"));
    let cold = SampleParams {
        temperature: -1.0,
        ..GREEDY
    };
    let stop = SampleParams {
        stop_ids: vec![99],
        ..GREEDY
    };
    let nothing = SampleParams {
        max_new_tokens: 0,
        ..GREEDY
    };
    for (params, why) in [
        (cold, "temperature"),
        (stop, "token id 99"),
        (nothing, "max_new_tokens"),
    ] {
        for prompts in [vec![vec![1]], vec![]] {
            let said = refused(prompts, params.clone());
            assert!(said.contains("sampling is impossible") && said.contains(why), "{said}");
            assert!(!said.contains("prompt 0"), "{said}");
        }
    }
    // The command was rejected, so the number is still free.
    assert_eq!(ask(&mut trainer, 1, GREEDY).0, None, "never published");
}

#[test]
fn no_prompts_have_no_answers() {
    let mut trainer = trainer(1, defaults());
    publish(&mut trainer, 1);
    let command = TrainCommand::Sample {
        seq: 2,
        prompts: Vec::new(),
        params: GREEDY,
    };
    let TrainReply::Samples { version, answers } = trainer.execute(command).unwrap() else {
        panic!("another reply")
    };
    assert_eq!((version, answers), (Some(VERSION), Vec::new()));
}
