//! The engine and the trainer as a worker for `bench/train.py`: runs one GRPO step per line of
//! stdin and writes its figures to a line of stdout.
//!
//! `train_work FOLDER MICRO_BATCH_TOKENS [DEVICE [DTYPE [offload] [recompute]]]`, then lines of
//! `{"prompts": [[1, 2], ...], "samples": 16, "new": 64}`. Each step samples this many answers to
//! each prompt at temperature 1. The reward of an answer is the share of its ids below half the
//! vocabulary. The answers are trained in one optimizer step, and the weights go back to the
//! engine. With `offload` the optimizer's state stays in host memory, with `recompute` layers are
//! computed again in the backward pass.
//!
//! Seconds are the process's processor time, or wall-clock time on a GPU; `sample_seconds`,
//! `gradient_seconds`, `optimizer_seconds` and `publish_seconds` are its parts. Memory is the peak
//! above the process's memory with the model loaded once; `device_mib` is the most that tensors
//! have taken on the GPU so far. A line of `{"score": [[1, 2, ...], ...]}` is answered with the
//! trainer's log-probs of all ids of each row except the first, `{"logprobs": [[...], ...]}`.

#[path = "common/memory.rs"]
mod memory;
#[path = "common/place.rs"]
mod place;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::train::{ForwardWeights, Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand, TrainReply};
use configs::{Dtype, Offload, Swap};
use serde::Deserialize;
use trainer::device::Device;
use trainer::engine::{Engine, EngineOptions, Finished, GenRequest};
use trainer::model::{ModelShape, Weights};
use trainer::sampling::SamplingParams;
use trainer::train::{Trainer, TrainerClient, TrainerOptions};
use trainer::weights::{MemorySink, Published};

use memory::{begin_peak, memory};
use place::Place;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Work {
    prompts: Vec<Vec<u32>>,
    samples: usize,
    new: u32,
    /// Rows for a question about log-probs, without training.
    score: Vec<Vec<u32>>,
}

/// The settings of TRL in `bench/train.py`.
const OPTIM: OptimStep = OptimStep {
    lr: 1e-5,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.0,
    clip_norm: 1.0,
};

struct Worker {
    engine: Engine,
    trainer: Trainer,
    published: Receiver<Published>,
    place: Place,
    step: u64,
}

impl Worker {
    /// Takes what saves memory from `saved`.
    fn new(shape: &ModelShape, weights: Weights, place: Place, saved: TrainerOptions) -> Result<Self> {
        let options = EngineOptions {
            slots: 64,
            prefill_tokens: 4096,
            prefix_cache: 0,
            cache: None,
            swap: Swap::InPlace,
            deterministic: false,
            prepack: true,
        };
        let (send, published) = channel();
        let deliver = Box::new(move |weights| send.send(weights).is_ok());
        let mut sink = MemorySink::of(place.device, place.dtype, deliver);
        let engine = Engine::new(shape, sink.copy(&weights, WeightVersion::default())?, options)?;
        let options = TrainerOptions {
            device: place.device,
            dtype: place.dtype,
            ..saved
        };
        let mut trainer = Trainer::new(shape.clone(), weights, options)?;
        trainer.add_sink(Box::new(sink));
        Ok(Self {
            engine,
            trainer,
            published,
            place,
            step: 0,
        })
    }

    /// Runs a step. Returns its seconds of sampling, gradient, optimizer and publishing.
    fn step(&mut self, work: &Work) -> Result<[f64; 4]> {
        let mut times = [seconds(self.place)?; 5];
        let answers = self.sample(work)?;
        times[1] = seconds(self.place)?;
        let batch = batch(work, &answers, self.engine.shape().vocab);
        self.step += 1;
        let seq = 3 * self.step;
        let loss = Loss::Policy(Policy::clipped(0.2, 0.2));
        let reply = self
            .trainer
            .execute(TrainCommand::ForwardBackward { seq, batch, loss })?;
        match reply {
            TrainReply::Loss(stats) if stats.on_policy_gap < gap(self.place.dtype) => {}
            other => return Err(format!("{other:?}: sampler and trainer disagree").into()),
        }
        times[2] = seconds(self.place)?;
        let params = OPTIM;
        self.trainer.execute(TrainCommand::OptimStep { seq: seq + 1, params })?;
        times[3] = seconds(self.place)?;
        let version = WeightVersion {
            lineage: 0,
            step: self.step,
        };
        self.trainer.execute(TrainCommand::Publish { seq: seq + 2, version })?;
        self.engine.swap(self.published.try_recv()?)?;
        times[4] = seconds(self.place)?;
        Ok([0, 1, 2, 3].map(|part| times[part + 1] - times[part]))
    }

    /// The trainer's log-probs of all ids of each row except the first.
    fn score(&mut self, rows: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        let span = |ids: &Vec<u32>| Span {
            mask: (0..ids.len()).map(|at| at > 0).collect(),
            behaviour_lp: vec![0.0; ids.len()],
            ids: ids.clone(),
            temperature: 1.0,
            ..Span::default()
        };
        let batch = TrainBatch {
            spans: rows.iter().map(span).collect(),
            tokens: rows.iter().map(|ids| ids.len().saturating_sub(1) as u64).sum(),
        };
        self.step += 1;
        let (seq, weights) = (3 * self.step, ForwardWeights::Trained);
        match self.trainer.execute(TrainCommand::Forward { seq, batch, weights })? {
            TrainReply::LogProbs(rows) => Ok(rows.into_iter().map(|row| row[1..].to_vec()).collect()),
            other => Err(format!("{other:?} is no answer to Forward").into()),
        }
    }

    /// Answers in the order of the prompts.
    fn sample(&mut self, work: &Work) -> Result<Vec<Finished>> {
        let none: Arc<[u32]> = Arc::from([]);
        for (at, prompt) in work.prompts.iter().enumerate() {
            let prompt: Arc<[u32]> = Arc::from(prompt.as_slice());
            for sample in 0..work.samples {
                let number = (at * work.samples + sample) as u64;
                self.engine.submit(GenRequest {
                    id: RequestId(u128::from(number).to_be_bytes()),
                    prompt_ids: Arc::clone(&prompt),
                    max_new_tokens: work.new,
                    sampling: SamplingParams::default(),
                    stop_ids: Arc::clone(&none),
                    stop: None,
                    seed: self.step * 1_000_000 + number,
                    keep: false,
                    top: 0,
                    prompt_top: None,
                })?;
            }
        }
        let mut answers = Vec::new();
        while self.engine.pending() > 0 {
            answers.extend(self.engine.step()?);
        }
        answers.sort_by_key(|answer| answer.id.0);
        Ok(answers)
    }
}

/// The largest accepted |ratio - 1| of one token between engine and trainer: the rounding of f32,
/// or of bf16.
fn gap(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 1e-3,
        Dtype::Bf16 => 1.0,
    }
}

/// A forest of the prompts and their answers, with the advantages of GRPO.
fn batch(work: &Work, answers: &[Finished], vocab: usize) -> TrainBatch {
    let tokens: usize = answers.iter().map(|answer| answer.output_ids.len()).sum();
    let mut batch = TrainBatch {
        spans: Vec::new(),
        tokens: tokens as u64,
    };
    for (prompt, group) in work.prompts.iter().zip(answers.chunks(work.samples)) {
        let parent = batch.spans.len() as u32;
        batch.spans.push(Span {
            ids: prompt.clone(),
            mask: vec![false; prompt.len()],
            behaviour_lp: vec![0.0; prompt.len()],
            ..Span::default()
        });
        let advantages = advantages(group, vocab);
        batch
            .spans
            .extend(group.iter().zip(advantages).map(|(answer, advantage)| Span {
                parent: Some(parent),
                ids: answer.output_ids.clone(),
                mask: vec![true; answer.output_ids.len()],
                behaviour_lp: answer.logprobs.clone(),
                advantage,
                weight: 1.0 / tokens as f32,
                temperature: 1.0,
                on_policy: true,
                ..Span::default()
            }));
    }
    batch
}

fn advantages(group: &[Finished], vocab: usize) -> Vec<f32> {
    let low = |answer: &Finished| {
        answer
            .output_ids
            .iter()
            .filter(|id| (**id as usize) < vocab / 2)
            .count()
    };
    let rewards: Vec<f64> = group
        .iter()
        .map(|answer| low(answer) as f64 / answer.output_ids.len() as f64)
        .collect();
    let count = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / count;
    let variance = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let scale = variance.sqrt() + 1e-4;
    rewards.iter().map(|reward| ((reward - mean) / scale) as f32).collect()
}

/// The measured time, read when the device has finished its work.
fn seconds(place: Place) -> Result<f64> {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    place.wait();
    if place.is_gpu() {
        Ok(BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64())
    } else {
        on_processor()
    }
}

/// The processor time of all threads of this process, to 10 ms.
fn on_processor() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 14 and 15, counted after the name in brackets.
    let fields = text.rsplit(") ").next().ok_or("no fields")?;
    let ticks: Vec<u64> = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, micro_batch_tokens, rest @ ..] = arguments.as_slice() else {
        return Err("usage: train_work FOLDER MICRO_BATCH_TOKENS [DEVICE [DTYPE [offload] [recompute]]]".into());
    };
    let place = Place::new(rest)?;
    let folder = std::path::Path::new(folder);
    let shape = ModelShape::load(folder)?;
    let (mut home, mut saved) = (place.device, TrainerOptions::default());
    for word in rest.iter().skip(2) {
        match word.as_str() {
            "offload" => (home, saved.offload) = (Device::Cpu, Offload::Optimizer),
            "recompute" => saved.checkpoint_activations = true,
            other => return Err(format!("{other:?}: write offload or recompute, or nothing").into()),
        }
    }
    let weights = Weights::load_as(&shape, folder, home, Dtype::F32)?;
    let loaded = memory("VmRSS")?;
    // Resets the peak.
    begin_peak()?;
    saved.micro_batch_tokens = micro_batch_tokens.parse()?;
    let mut worker = Worker::new(&shape, weights, place, saved)?;
    for work in std::io::stdin().lock().lines() {
        let work: Work = serde_json::from_str(&work?)?;
        if !work.score.is_empty() {
            println!("{}", serde_json::json!({"logprobs": worker.score(&work.score)?}));
            std::io::stdout().flush()?;
            continue;
        }
        let begun = seconds(place)?;
        let [sample, gradient, optimizer, publish] = worker.step(&work)?;
        let all = seconds(place)? - begun;
        let peak = memory("VmHWM")? - loaded;
        let figures = serde_json::json!({
            "seconds": all,
            "sample_seconds": sample,
            "gradient_seconds": gradient,
            "optimizer_seconds": optimizer,
            "publish_seconds": publish,
            "peak_mib": peak,
            "device_mib": place.peak_mib(),
        });
        println!("{figures}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
