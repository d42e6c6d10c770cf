//! Every family and option of models equals transformers, on the folders from `fixtures/models.py`:
//! logits, gradients, greedy text through the engine. transformers reads folders that are saved
//! here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::train::{ForwardWeights, Loss, Span, TrainBatch, TrainCommand, TrainReply};
use configs::{Dtype, Swap};
use safetensors::SafeTensors;
use tch::{Device, Kind, Tensor};

use super::{Trainer, TrainerClient, TrainerOptions, defaults, loss_of};
use crate::device::of_tests;
use crate::engine::{Engine, EngineOptions, Finished, GenRequest};
use crate::model::{Decoder, Init, ModelShape, RowBatch, SHARD_BYTES, Weights, test_shape};
use crate::sampling::SamplingParams;
use crate::weights::Published;

/// The outputs of a model in Python.
pub(super) struct Reference {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Reference {
    pub(super) fn read(folder: &Path) -> Self {
        let path = folder.join("expected.safetensors");
        Self {
            bytes: std::fs::read(&path).unwrap(),
            path,
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Tensor {
        let all = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = all.tensor(name).unwrap();
        let size: Vec<i64> = view.shape().iter().map(|n| *n as i64).collect();
        let kind = match view.dtype() {
            safetensors::Dtype::I32 => Kind::Int,
            _ => Kind::Float,
        };
        Tensor::from_data_size(view.data(), &size, kind)
    }

    /// A row of ids, without the padding of -1.
    pub(super) fn ids(&self, name: &str, row: Option<i64>) -> Vec<u32> {
        let tensor = self.tensor(name);
        let tensor = row.map_or(tensor.shallow_clone(), |row| tensor.get(row));
        let ids: Vec<i32> = tensor.try_into().unwrap();
        ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect()
    }

    /// For `loads.py`.
    pub(super) fn copy_to(&self, folder: &Path) {
        std::fs::copy(&self.path, folder.join("expected.safetensors")).unwrap();
    }
}

/// Runs transformers and peft on every folder below `root` and compares.
pub(super) fn run_python(root: &Path) {
    let Ok(python) = std::env::var("DYAD_PARITY_PYTHON") else {
        println!("Python not asked: DYAD_PARITY_PYTHON names none (`make parity` sets it)");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/loads.py");
    let status = std::process::Command::new(python)
        .arg(script)
        .arg(root)
        .status()
        .unwrap();
    assert!(status.success());
}

/// One model, and its outputs in transformers.
struct Variant {
    name: String,
    shape: ModelShape,
    weights: Weights,
    reference: Reference,
}

impl Variant {
    fn read(folder: PathBuf) -> Self {
        let shape = ModelShape::load(&folder).unwrap();
        Self {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            weights: Weights::load_as(&shape, &folder, of_tests(), Dtype::F32).unwrap(),
            reference: Reference::read(&folder),
            shape,
        }
    }

    fn tensor(&self, name: &str) -> Tensor {
        self.reference.tensor(name)
    }

    fn ids(&self, name: &str, row: Option<i64>) -> Vec<u32> {
        self.reference.ids(name, row)
    }

    fn logits(&self, weights: &Weights) -> Tensor {
        let _guard = tch::no_grad_guard();
        let decoder = Decoder::new(&self.shape, weights).unwrap();
        let batch = RowBatch::new(&self.shape, &[self.ids("ids", None)], of_tests()).unwrap();
        decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap()
    }

    fn weights(&self) -> Weights {
        self.weights.copied(of_tests(), Kind::Float).unwrap()
    }
}

/// The folder of the fixtures: the repository's, or the new ones from `make parity`.
pub(super) fn fixtures() -> PathBuf {
    std::env::var_os("DYAD_PARITY_FIXTURES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"), PathBuf::from)
}

pub(super) fn root() -> PathBuf {
    fixtures().join("models")
}

fn variants() -> Vec<Variant> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("expected.safetensors").is_file())
        .collect();
    folders.sort();
    let variants: Vec<Variant> = folders.into_iter().map(Variant::read).collect();
    for family in ["qwen2", "qwen3", "llama"] {
        assert!(
            variants.iter().any(|variant| variant.name.starts_with(family)),
            "no {family} in {}",
            root().display()
        );
    }
    variants
}

pub(super) fn far(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_device(Device::Cpu), b.to_device(Device::Cpu));
    (a - b).abs().max().double_value(&[])
}

pub(super) fn relative(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (a.to_device(Device::Cpu), b.to_device(Device::Cpu));
    ((a - &b).norm() / b.norm()).double_value(&[])
}

#[test]
fn logits_equal() {
    for variant in variants() {
        let gap = far(&variant.logits(&variant.weights), &variant.tensor("logits"));
        // A GPU adds in another order.
        let bound = if of_tests() == Device::Cpu { 1e-5 } else { 2e-5 };
        assert!(gap < bound, "{}: {gap}", variant.name);
    }
}

/// A batch with the row's mean cross-entropy as its loss, as in the fixtures.
pub(super) fn next_tokens(ids: Vec<u32>) -> TrainBatch {
    let count = ids.len();
    let span = Span {
        mask: (0..count).map(|i| i > 0).collect(),
        behaviour_lp: vec![0.0; count],
        weight: 1.0 / (count - 1) as f32,
        temperature: 1.0,
        ids,
        ..Span::default()
    };
    TrainBatch {
        spans: vec![span],
        tokens: count as u64 - 1,
    }
}

#[test]
fn gradients_of_all_parameters_equal() {
    for variant in variants() {
        let mut trainer = Trainer::new(variant.shape.clone(), variant.weights(), defaults()).unwrap();
        let batch = next_tokens(variant.ids("ids", None));
        let loss = Loss::CrossEntropy;
        let stats = loss_of(
            trainer
                .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
                .unwrap(),
        );
        let want = variant.tensor("loss").double_value(&[]);
        assert!(
            (stats.loss / want - 1.0).abs() < 1e-6,
            "{}: {} {want}",
            variant.name,
            stats.loss
        );
        for spec in variant.weights.params() {
            let want = variant.tensor(&format!("grad.{}", spec.name)).flatten(0, -1);
            let got = trainer.model.grad().narrow(0, spec.offset as i64, spec.numel as i64);
            // A bias added to every key does not change attention: its gradient is rounding on both
            // sides.
            let gap = if want.norm().double_value(&[]) < 1e-5 {
                far(&got, &want)
            } else {
                relative(&got, &want)
            };
            assert!(gap < 1e-4, "{} {}: {gap}", variant.name, spec.name);
        }
    }
}

pub(super) fn request(n: u64, prompt: Vec<u32>, max_new_tokens: u32, temperature: f32) -> GenRequest {
    GenRequest {
        id: RequestId(u128::from(n).to_le_bytes()),
        prompt_ids: Arc::from(prompt),
        max_new_tokens,
        sampling: SamplingParams {
            temperature,
            ..SamplingParams::default()
        },
        stop_ids: Arc::from([]),
        stop: None,
        seed: n,
        keep: false,
        top: 0,
        prompt_top: None,
    }
}

fn generate(shape: &ModelShape, weights: Weights, wave: Vec<GenRequest>) -> Vec<Finished> {
    let options = EngineOptions {
        slots: 32,
        prefill_tokens: 512,
        prefix_cache: 0,
        cache: None,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    let mut engine = Engine::new(shape, Published::new(weights, WeightVersion::default()), options).unwrap();
    engine.run_wave(wave).unwrap()
}

#[test]
fn greedy_text_equals_token_for_token() {
    for variant in variants() {
        let count = variant.tensor("prompts").size()[0];
        let wave = (0..count)
            .map(|row| request(row as u64, variant.ids("prompts", Some(row)), 256, 0.0))
            .collect();
        for (row, finished) in generate(&variant.shape, variant.weights(), wave).iter().enumerate() {
            let want = variant.ids("greedy", Some(row as i64));
            assert_eq!(want.len(), 256);
            let same = finished
                .output_ids
                .iter()
                .zip(&want)
                .take_while(|(a, b)| a == b)
                .count();
            assert_eq!(same, 256, "{} prompt {row} parts at token {same}", variant.name);
        }
    }
}

#[test]
fn saved_folders_are_the_same_model() {
    let saved = tempfile::tempdir().unwrap();
    for (at, variant) in variants().into_iter().enumerate() {
        let folder = saved.path().join(&variant.name);
        // Every second one in shards.
        let most = if at.is_multiple_of(2) { SHARD_BYTES } else { 10_000 };
        let kind = variant.weights.kind();
        variant.weights.save_as(&variant.shape, &folder, kind, most).unwrap();
        let sharded = folder.join("model.safetensors.index.json").is_file();
        assert_eq!(sharded, most < SHARD_BYTES, "{}", variant.name);
        let again = ModelShape::load(&folder).unwrap();
        assert_eq!(again, variant.shape, "{}", variant.name);
        let again = Weights::load(&again, &folder).unwrap();
        assert_eq!(again.digest().unwrap(), variant.weights.digest().unwrap());
        variant.reference.copy_to(&folder);
    }
    run_python(saved.path());
}

/// A model larger than the fixtures, and 64 answers of `length` tokens with the trainer's log-probs
/// of them. Returns the gap of every log-prob.
fn sampled(dtype: Dtype, length: u32) -> Vec<f64> {
    let shape = ModelShape {
        vocab: 512,
        layers: 3,
        hidden: 64,
        intermediate: 160,
        head_dim: 16,
        max_context: 256,
        ..test_shape()
    };
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.12,
    };
    let weights = Weights::random(&shape, init, 5).unwrap();
    let prompt = |n: u64| {
        (0..8 + n % 5)
            .map(|i| ((n * 31 + i * 7) % 512) as u32)
            .collect::<Vec<_>>()
    };
    let wave: Vec<GenRequest> = (0..64)
        .map(|n| request(n, prompt(n / 4 * 4), length, [1.0, 0.8][n as usize % 2]))
        .collect();
    let finished = generate(&shape, weights.copied_to(of_tests(), dtype).unwrap(), wave.clone());
    let spans = wave.iter().zip(&finished).map(|(request, finished)| {
        let (prompt, count) = (&request.prompt_ids, finished.output_ids.len());
        Span {
            ids: [&prompt[..], &finished.output_ids].concat(),
            mask: [vec![false; prompt.len()], vec![true; count]].concat(),
            behaviour_lp: [vec![0.0; prompt.len()], finished.logprobs.clone()].concat(),
            temperature: request.sampling.temperature,
            ..Span::default()
        }
    });
    let batch = TrainBatch {
        spans: spans.collect(),
        tokens: 0,
    };
    let options = TrainerOptions {
        dtype,
        micro_batch_tokens: 4096,
        ..defaults()
    };
    let mut trainer = Trainer::new(shape, weights, options).unwrap();
    let forward = TrainCommand::Forward {
        seq: 0,
        batch: batch.clone(),
        weights: ForwardWeights::Trained,
    };
    let TrainReply::LogProbs(spans) = trainer.execute(forward).unwrap() else {
        panic!()
    };
    let pairs = spans.iter().zip(&batch.spans).flat_map(|(lps, span)| {
        let both = lps.iter().zip(&span.behaviour_lp).zip(&span.mask);
        both.filter(|(_, trained)| **trained)
            .map(|((a, b), _)| f64::from(*a) - f64::from(*b))
    });
    pairs.collect()
}

#[test]
fn engine_and_trainer_agree_over_ten_thousand_tokens() {
    let gaps = sampled(Dtype::F32, 160);
    assert_eq!(gaps.len(), 10_240);
    let mean = gaps.iter().map(|gap| gap.abs()).sum::<f64>() / gaps.len() as f64;
    let widest = gaps.iter().fold(0f64, |widest, gap| widest.max(gap.abs()));
    println!("f32: mean {mean:.2e}, widest {widest:.2e}");
    assert!(mean <= 1e-6 && widest <= 5e-5, "mean {mean:.2e}, widest {widest:.2e}");
}

#[test]
fn in_bf16_they_agree_as_far_as_its_digits_go() {
    let gaps = sampled(Dtype::Bf16, 12);
    // The k3 estimate of the divergence; runs warn above 1e-3.
    let k3 = gaps.iter().map(|d| d.exp_m1() - d).sum::<f64>() / gaps.len() as f64;
    println!("bf16: mean k3 {k3:.2e}");
    // On a GPU both round at the same places.
    let least = if of_tests() == Device::Cpu { 1e-9 } else { 0.0 };
    assert!(k3 > least && k3 <= 1e-3, "mean k3 {k3:.2e}");
}
