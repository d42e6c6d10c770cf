//! `external/fsdp2.py` with two Gloo ranks equals the built-in trainer: log-probs, losses,
//! gradients, steps, files.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use broker::protocol::train::{ForwardWeights, Kl, Loss, Policy, Span, Surrogate, TrainBatch};
use configs::Dtype;
use tch::{Kind, Tensor};

use super::{Driver, External, LOSS, STEP, Seen, apart, options};
use crate::checkpoint::moments;
use crate::model::{ModelShape, Weights};
use crate::train::{Trainer, TrainerClient, TrainerOptions};

/// Starts the program with two ranks and connects to it.
fn connect(
    python: &str,
    folder: &Path,
    shape: &ModelShape,
    options: TrainerOptions,
) -> (Child, Driver<External>, Seen) {
    let home = tempfile::tempdir().unwrap().keep();
    let socket = home.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("external/fsdp2.py");
    let child = Command::new(python)
        .args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
        .arg(script)
        .env("DYAD_TRAINER", &socket)
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut external = External::open(stream, shape.clone(), folder, home.join("exchange"), options).unwrap();
    let seen = Seen::default();
    external.add_sink(Box::new(seen.clone()));
    (child, Driver::new(external), seen)
}

/// Returns two prompts with answers of different lengths. Their log-probs are not those of the
/// model.
fn batch(vocab: u32) -> TrainBatch {
    let mut spans = Vec::new();
    for group in 0..2u32 {
        let ids = |count: u32, salt: u32| {
            (0..count)
                .map(|i| (i * 7 + salt * 5 + group) % vocab)
                .collect::<Vec<u32>>()
        };
        let prompt = 3 + 2 * group as usize;
        let parent = Some(spans.len() as u32);
        spans.push(Span {
            ids: ids(prompt as u32, 1),
            mask: vec![false; prompt],
            behaviour_lp: vec![0.0; prompt],
            ..Span::default()
        });
        for member in 0..4u32 {
            let length = (1 + 2 * member + group) as usize;
            let lps = |shift: f32| (0..length).map(|i| shift - 0.3 * (i % 5) as f32).collect::<Vec<f32>>();
            spans.push(Span {
                parent,
                ids: ids(length as u32, 2 + member),
                mask: (0..length).map(|place| place != 1).collect(),
                behaviour_lp: lps(-3.1),
                old_lp: lps(-3.0),
                advantage: member as f32 - 1.25,
                answer: 4 * group + member,
                role: (member % 2) as u16,
                weight: 0.03 * (1 + member) as f32,
                temperature: if member == 2 { 0.7 } else { 1.0 },
                on_policy: member == 1,
                ..Span::default()
            });
        }
    }
    TrainBatch { spans, tokens: 0 }
}

/// Returns every kind of loss that the program has.
fn losses() -> Vec<Loss> {
    let clipped = |dual| Surrogate::Clipped {
        low: 0.2,
        high: 0.28,
        dual,
    };
    let surrogates = [
        clipped(None),
        clipped(Some(1.5)),
        Surrogate::ImportanceSampling,
        Surrogate::Cispo { low: 0.2, high: 0.3 },
        Surrogate::Dro { beta: 0.5 },
    ];
    let mut losses = vec![Loss::CrossEntropy, LOSS];
    for (surrogate, kl) in surrogates.into_iter().zip([Kl::K1, Kl::K2, Kl::K3, Kl::K3, Kl::K2]) {
        losses.push(Loss::Policy(Policy {
            surrogate,
            kl,
            kl_coef: 0.1,
            entropy_coef: 0.05,
            behaviour_cap: matches!(surrogate, Surrogate::Clipped { dual: None, .. }).then_some(1.02),
        }));
    }
    losses
}

/// Returns the distance of two flat tensors, relative to the norm of the second.
fn gap(a: &Tensor, b: &Tensor) -> f64 {
    ((a - b).norm() / b.norm()).double_value(&[])
}

/// Returns the weights and the first moments of the checkpoint in `root`.
fn state(root: &Path, shape: &ModelShape) -> [Tensor; 2] {
    let folder = crate::checkpoint::find(root, false).unwrap().folder;
    let weights = Weights::load(shape, &folder).unwrap();
    let [first, _] = moments::open(&folder.join("optimizer.safetensors"), weights.layout()).unwrap();
    let first = Weights::copy_of(&first, tch::Device::Cpu, Kind::Float).unwrap();
    [weights.flat().shallow_clone(), first.flat().shallow_clone()]
}

fn compare(python: &str, folder: &Path) {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let shape = ModelShape::load(folder).unwrap();
    // Several micro-batches, and an odd number of them for two ranks.
    let options = TrainerOptions {
        micro_batch_tokens: 24,
        checkpoint_activations: shape.tied,
        ..options()
    };
    let home = tempfile::tempdir().unwrap();
    let roots = ["near", "far"].map(|name| home.path().join(name));
    let near = Trainer::new(shape.clone(), Weights::load(&shape, folder).unwrap(), options.clone()).unwrap();
    let mut near = Driver::new(near);
    let (mut child, mut far, seen) = connect(python, folder, &shape, options);
    near.publish(0);
    far.publish(0);
    assert_eq!(
        seen.digest(),
        near.trainer.weights().digest().unwrap().to_hex().to_string(),
        "{name}: version 0"
    );
    let batch = batch(shape.vocab as u32);
    // A batch without trained tokens still takes a step.
    let mut untrained = batch.clone();
    untrained.spans.iter_mut().for_each(|span| span.mask.fill(false));
    let lost = [near.loss(&untrained, LOSS), far.loss(&untrained, LOSS)].map(|stats| stats.unwrap().loss);
    assert_eq!((lost, near.step(STEP), far.step(STEP)), ([0.0; 2], 0.0, 0.0), "{name}");
    for loss in losses() {
        let (ours, theirs) = (near.loss(&batch, loss).unwrap(), far.loss(&batch, loss).unwrap());
        let wrong = (ours.loss - theirs.loss).abs() / ours.loss.abs();
        assert!(wrong < 1e-5, "{name} {loss:?}: loss {} {}", ours.loss, theirs.loss);
        assert!(apart(&ours, &theirs) < 1e-4, "{name} {loss:?}: {ours:?} {theirs:?}");
        let (a, b) = (near.step(STEP), far.step(STEP));
        assert!((a / b - 1.0).abs() < 1e-5, "{name} {loss:?}: norms {a} {b}");
        for (driver, root) in [(&mut near as &mut dyn Saves, &roots[0]), (&mut far, &roots[1])] {
            driver.save_at(root);
        }
        let ([weights, first], [our_weights, our_first]) = (state(&roots[1], &shape), state(&roots[0], &shape));
        assert!(
            gap(&weights, &our_weights) < 1e-6,
            "{name} {loss:?}: weights {}",
            gap(&weights, &our_weights)
        );
        assert!(
            gap(&first, &our_first) < 1e-5,
            "{name} {loss:?}: gradient {}",
            gap(&first, &our_first)
        );
        // Both continue from the same bits: each trainer loads checkpoints of the other.
        far.load(&roots[0]);
        for weights in [ForwardWeights::Trained, ForwardWeights::Reference] {
            let (a, b) = (
                near.logprobs(&batch, weights).concat(),
                far.logprobs(&batch, weights).concat(),
            );
            let widest = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(widest < 1e-5, "{name} {weights:?}: {widest}");
        }
    }
    near.publish(1);
    far.publish(1);
    assert_eq!(
        seen.digest(),
        near.trainer.weights().digest().unwrap().to_hex().to_string(),
        "{name}: version 1"
    );
    assert_eq!(
        near.save(&roots[0]),
        far.save(&roots[1]),
        "{name}: the same state has the same digest"
    );
    far.trainer.close();
    assert!(child.wait().unwrap().success());
}

/// Saves a checkpoint, on either side.
trait Saves {
    fn save_at(&mut self, root: &Path);
}

impl<T: TrainerClient> Saves for Driver<T> {
    fn save_at(&mut self, root: &Path) {
        self.save(root);
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Covers every family, tied and untied heads, biases, shards and every kind of RoPE scaling.
#[test]
fn parity_of_fsdp2_on_two_ranks() {
    let Ok(python) = std::env::var("DYAD_PARITY_PYTHON") else {
        println!("Python not asked: DYAD_PARITY_PYTHON names none (`make parity` sets it)");
        return;
    };
    for model in [
        "tied",
        "models/qwen2-shards",
        "models/llama-llama3-bias-old",
        "models/qwen3-bias-yarn-tied",
    ] {
        compare(&python, &fixtures().join(model));
    }
}

/// The two sum in different orders, so they agree to the precision of bf16 only.
#[test]
fn parity_of_fsdp2_in_bf16() {
    let Ok(python) = std::env::var("DYAD_PARITY_PYTHON") else {
        return;
    };
    let folder = fixtures().join("untied");
    let shape = ModelShape::load(&folder).unwrap();
    let options = TrainerOptions {
        dtype: Dtype::Bf16,
        ..options()
    };
    let near = Trainer::new(shape.clone(), Weights::load(&shape, &folder).unwrap(), options.clone()).unwrap();
    let mut near = Driver::new(near);
    let (mut child, mut far, seen) = connect(&python, &folder, &shape, options);
    near.publish(0);
    far.publish(0);
    assert!(!seen.digest().is_empty());
    let batch = batch(shape.vocab as u32);
    for _ in 0..3 {
        let (ours, theirs) = (near.loss(&batch, LOSS).unwrap(), far.loss(&batch, LOSS).unwrap());
        assert!(
            (ours.loss - theirs.loss).abs() < 0.02 * ours.loss.abs().max(0.1),
            "{} {}",
            ours.loss,
            theirs.loss
        );
        let (a, b) = (near.step(STEP), far.step(STEP));
        assert!((a / b - 1.0).abs() < 0.05, "{a} {b}");
    }
    // In bf16 these two temperatures are the same number.
    let [cold, warm] = [1.0, 1.003].map(|temperature| {
        let mut batch = batch.clone();
        batch.spans.iter_mut().for_each(|span| span.temperature = temperature);
        far.logprobs(&batch, ForwardWeights::Trained).concat()
    });
    assert_ne!(cold, warm);
    far.trainer.close();
    assert!(child.wait().unwrap().success());
}
