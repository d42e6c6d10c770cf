//! The moving average of the weights.

use broker::ids::WeightVersion;
use broker::protocol::train::ForwardWeights;

use super::*;
use crate::train::EmaOptions;

const DECAY: f64 = 0.75;

fn averaging(seed: u64, is_reference: bool) -> Trainer {
    let ema = EmaOptions {
        decay: DECAY,
        is_reference,
    };
    trainer(
        seed,
        TrainerOptions {
            ema: Some(ema),
            keep_reference: is_reference,
            ..defaults()
        },
    )
}

fn publish(trainer: &mut Trainer, seq: u64, step: u64) {
    let version = WeightVersion { lineage: 1, step };
    trainer.execute(TrainCommand::Publish { seq, version }).unwrap();
}

fn values(weights: &Weights) -> Vec<f32> {
    weights.flat().try_into().unwrap()
}

/// `d^n w_0 + (1 - d) sum_k d^(n-k) w_k`.
#[test]
fn the_average_is_the_closed_form() {
    let mut trainer = averaging(1, false);
    let mut seen = vec![values(trainer.weights())];
    assert_eq!(values(&trainer.average().unwrap()), seen[0], "it begins as the weights");
    for round in 0..5 {
        train(&mut trainer, round);
        seen.push(values(trainer.weights()));
    }
    let got = values(&trainer.average().unwrap());
    for (i, got) in got.iter().enumerate() {
        let mut wanted = f64::from(seen[0][i]);
        for weights in &seen[1..] {
            wanted = DECAY * wanted + (1.0 - DECAY) * f64::from(weights[i]);
        }
        assert!((f64::from(*got) - wanted).abs() < 1e-6, "{got} {wanted}");
    }
    assert_ne!(got, values(trainer.weights()));
}

#[test]
fn it_begins_again_at_version_0_and_a_skipped_step_keeps_it() {
    let mut trainer = averaging(1, false);
    train(&mut trainer, 0);
    publish(&mut trainer, 2, 0);
    let begun = values(&trainer.average().unwrap());
    assert_eq!(begun, values(trainer.weights()), "a warm start is behind it");
    let mut broken = batch(1);
    for span in &mut broken.spans {
        span.weight *= 1e38;
        span.advantage *= 1e30;
    }
    let loss = POLICY;
    trainer
        .execute(TrainCommand::ForwardBackward {
            seq: 3,
            batch: broken,
            loss,
        })
        .unwrap();
    let reply = trainer
        .execute(TrainCommand::OptimStep { seq: 4, params: OPTIM })
        .unwrap();
    assert!(matches!(reply, TrainReply::Step { skipped: true, .. }));
    assert_eq!(values(&trainer.average().unwrap()), begun);
}

#[test]
fn it_is_saved_as_a_model_of_its_own_and_restored_bit_for_bit() {
    tch::set_num_threads(1);
    let root = tempfile::tempdir().unwrap();
    let path = root.path().display().to_string();
    let mut straight = averaging(1, true);
    publish(&mut straight, 1, 0);
    (1..4).for_each(|round| train(&mut straight, round));
    publish(&mut straight, 8, 3);
    let save = |trainer: &mut Trainer, seq: u64, path: &str| {
        let (path, meta) = (path.to_owned(), String::new());
        match trainer.execute(TrainCommand::SaveState { seq, path, meta }).unwrap() {
            TrainReply::Saved { digest } => digest,
            other => panic!("{other:?}"),
        }
    };
    save(&mut straight, 9, &path);
    let folder = root.path().join("step-3");
    let saved = ModelShape::load(&folder.join("ema")).unwrap();
    let average = Weights::load(&saved, &folder.join("ema")).unwrap();
    assert_eq!(values(&average), values(&straight.average().unwrap()));
    assert!(!folder.join("reference").exists(), "the average is the reference");

    let mut second = averaging(99, true);
    second
        .execute(TrainCommand::LoadState {
            seq: 9,
            path: path.clone(),
        })
        .unwrap();
    (5..8).for_each(|round| {
        [&mut straight, &mut second]
            .into_iter()
            .for_each(|trainer| train(trainer, round))
    });
    assert_eq!(digest(&straight), digest(&second));
    assert_eq!(values(&straight.average().unwrap()), values(&second.average().unwrap()));
    let roots: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let [a, b, c] = [0, 1, 2].map(|i: usize| roots[i].path().display().to_string());
    let kept = save(&mut straight, 16, &a);
    assert_eq!(kept, save(&mut second, 16, &b));
    let mut plain = trainer(99, defaults());
    plain.execute(TrainCommand::LoadState { seq: 16, path: a }).unwrap();
    assert_ne!(save(&mut plain, 17, &c), kept, "the digest covers the average");
    let mut late = averaging(7, false);
    late.execute(TrainCommand::LoadState { seq: 18, path: c }).unwrap();
    assert_eq!(values(&late.average().unwrap()), values(late.weights()), "from here on");
}

#[test]
fn as_the_reference_it_moves_with_the_weights() {
    let mut trainer = averaging(1, true);
    publish(&mut trainer, 1, 0);
    train(&mut trainer, 1);
    let logprobs = |trainer: &mut Trainer, seq: u64, weights: ForwardWeights| match trainer
        .execute(TrainCommand::Forward {
            seq,
            batch: batch(9),
            weights,
        })
        .unwrap()
    {
        TrainReply::LogProbs(spans) => spans,
        other => panic!("{other:?}"),
    };
    let said = logprobs(&mut trainer, 4, ForwardWeights::Reference);
    assert_ne!(said, logprobs(&mut trainer, 5, ForwardWeights::Trained));
    let average = trainer.average().unwrap().copied(of_tests(), tch::Kind::Float).unwrap();
    let mut alone = Trainer::new(shape(false), average, defaults()).unwrap();
    assert_eq!(said, logprobs(&mut alone, 0, ForwardWeights::Trained));
}

/// The reference is updated in its own memory. An adapter's reference follows too, although its
/// neighbouring modules are computed as one.
#[test]
fn the_reference_follows_where_it_lies() {
    let ema = EmaOptions {
        decay: DECAY,
        is_reference: true,
    };
    let options = || TrainerOptions {
        ema: Some(ema),
        keep_reference: true,
        ..defaults()
    };
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let base = Weights::random(&shape(false), init, 1).unwrap();
    for dtype in [configs::Dtype::F32, configs::Dtype::Bf16] {
        let base = base.copied_to(of_tests(), dtype).unwrap();
        let options = || TrainerOptions { dtype, ..options() };
        let fresh =
            |adapter: Weights, options| Trainer::with_base(shape(false), base.share(), adapter, options).unwrap();
        let lora = crate::model::LoraShape {
            rank: 4,
            alpha: 8.0,
            targets: crate::model::Module::ALL.into_iter().collect(),
        };
        let adapter = Weights::adapter(&shape(false), &lora, 1).unwrap();
        let mut trainer = fresh(adapter, options());
        publish(&mut trainer, 1, 0);
        let address = |trainer: &Trainer| trainer.reference.as_ref().unwrap().weights.flat().data_ptr();
        let place = address(&trainer);
        (1..4).for_each(|round| train(&mut trainer, round));
        assert_eq!(address(&trainer), place);
        let average = trainer.average().unwrap().copied(of_tests(), tch::Kind::Float).unwrap();
        let mut alone = fresh(average, TrainerOptions { ema: None, ..options() });
        publish(&mut alone, 0, 0);
        let said = |trainer: &mut Trainer, seq: u64, weights: ForwardWeights| {
            let batch = batch(9);
            trainer.execute(TrainCommand::Forward { seq, batch, weights }).unwrap()
        };
        let follows = said(&mut trainer, 8, ForwardWeights::Reference);
        assert_eq!(follows, said(&mut alone, 1, ForwardWeights::Reference), "{dtype:?}");
        assert_ne!(follows, said(&mut trainer, 9, ForwardWeights::Trained), "{dtype:?}");
    }
}
