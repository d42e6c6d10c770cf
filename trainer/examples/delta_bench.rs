//! The cost of sending an optimizer step to another process: bytes and seconds of a delta and of
//! the whole state, in bf16.
//!
//! ```text
//! cargo run --release -p trainer --example delta_bench -- [HIDDEN [LAYERS]]
//! ```
//!
//! AdamW trains a random model of realistic scale (0.02) on random answers, and its f32 masters are
//! published as bf16. The first steps are not counted: there AdamW moves every weight by the whole
//! learning rate.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use broker::ids::WeightVersion;
use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand};
use configs::Dtype;
use trainer::model::{Architecture, Biases, Init, Layout, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};
use trainer::transfer::{Form, State, apply, delta, full};
use trainer::weights::{SinkError, WeightSink};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WARM: u64 = 10;
const STEPS: u64 = 20;
const VOCAB: usize = 4096;

fn shape(hidden: usize, layers: usize) -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab: VOCAB,
        layers,
        hidden,
        heads: 4,
        kv_heads: 4,
        head_dim: hidden / 4,
        intermediate: 4 * hidden,
        max_context: 128,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

/// Random prompts and answers with advantages of both signs, different at each step.
fn batch(step: u64) -> TrainBatch {
    let ids = |n: u64, salt: u64| -> Vec<u32> {
        let id = |i: u64| ((i * 7919 + salt * 104_729 + step * 1_299_709) % VOCAB as u64) as u32;
        (0..n).map(id).collect()
    };
    let (samples, length) = (16, 24);
    let mut spans = Vec::new();
    for sample in 0..samples {
        let span = |parent, ids: Vec<u32>, trained: bool| Span {
            parent,
            mask: vec![trained; ids.len()],
            behaviour_lp: vec![-(VOCAB as f32).ln(); ids.len()],
            ids,
            advantage: if sample % 2 == 0 { 1.0 } else { -1.0 },
            weight: if trained { 1.0 / (samples * length) as f32 } else { 0.0 },
            temperature: 1.0,
            ..Span::default()
        };
        let parent = spans.len() as u32;
        spans.push(span(None, ids(16, 2 * sample), false));
        spans.push(span(Some(parent), ids(length, 2 * sample + 1), true));
    }
    TrainBatch {
        spans,
        tokens: samples * length,
    }
}

/// Passes on the published weights in an engine's form, bf16.
struct Tap(Sender<Vec<u8>>);

impl WeightSink for Tap {
    fn publish(&mut self, weights: &Weights, version: WeightVersion) -> std::result::Result<(), SinkError> {
        let bytes = weights.to_bytes(Dtype::Bf16);
        let bytes = bytes.map_err(|source| SinkError::Copy { version, source })?;
        self.0.send(bytes).map_err(|_| SinkError::Closed { version })
    }
}

#[derive(Default)]
struct Sums {
    changed: f64,
    bytes: [f64; 2],
    make: [f64; 2],
    take: [f64; 2],
}

fn run(shape: &ModelShape, lr: f64) -> Result<()> {
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let form = Form::of(&Layout::of(shape), Dtype::Bf16, None);
    let mut trainer = Trainer::new(
        shape.clone(),
        Weights::random(shape, init, 1)?,
        TrainerOptions::default(),
    )?;
    let (tap, published) = channel();
    trainer.add_sink(Box::new(Tap(tap)));
    let mut seq = 0;
    let mut held: Option<State> = None;
    let mut sums = Sums::default();
    for step in 0..=WARM + STEPS {
        let version = WeightVersion { lineage: 1, step };
        let params = OptimStep {
            lr,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            clip_norm: 1.0,
        };
        let loss = Loss::Policy(Policy::clipped(0.2, 0.2));
        let batch = batch(step);
        let mut next = || {
            seq += 1;
            seq
        };
        trainer.execute(TrainCommand::ForwardBackward {
            seq: next(),
            batch,
            loss,
        })?;
        trainer.execute(TrainCommand::OptimStep { seq: next(), params })?;
        trainer.execute(TrainCommand::Publish { seq: next(), version })?;
        let state = State::new(form, version, published.recv()?)?;
        if let Some(held) = held.as_ref().filter(|_| step > WARM) {
            measure(&form, held, &state, &mut sums)?;
        }
        held = Some(state);
    }
    report(&form, lr, &sums);
    Ok(())
}

fn measure(form: &Form, held: &State, state: &State, sums: &mut Sums) -> Result<()> {
    let pairs = held.bytes().chunks_exact(2).zip(state.bytes().chunks_exact(2));
    sums.changed += pairs.filter(|(old, new)| old != new).count() as f64;
    for (way, whole) in [false, true].into_iter().enumerate() {
        let began = Instant::now();
        let message = if whole {
            let parts = full(state, true);
            parts.iter().flat_map(|part| part.as_ref().to_vec()).collect()
        } else {
            delta(held, state).ok_or("the delta is no shorter than the whole")?
        };
        sums.make[way] += began.elapsed().as_secs_f64();
        sums.bytes[way] += message.len() as f64;
        let began = Instant::now();
        let taken = apply(form, Some(held.clone()), message)?;
        sums.take[way] += began.elapsed().as_secs_f64();
        if taken.bytes() != state.bytes() {
            return Err("the result differs from the new weights".into());
        }
    }
    Ok(())
}

fn report(form: &Form, lr: f64, sums: &Sums) {
    let mean = |sum: f64| sum / STEPS as f64;
    let raw = form.bytes() as f64;
    println!(
        "lr {lr:.0e}  {:.1} M parameters, {:.2} MB raw, {:.3} % of elements change at a step",
        form.elements as f64 / 1e6,
        raw / 1e6,
        100.0 * mean(sums.changed) / form.elements as f64
    );
    for (way, name) in ["delta", "whole"].into_iter().enumerate() {
        println!(
            "  {name}  {:10.0} bytes (1/{:.1} of raw)  made in {:.2} ms, taken in {:.2} ms",
            mean(sums.bytes[way]),
            raw / mean(sums.bytes[way]),
            1e3 * mean(sums.make[way]),
            1e3 * mean(sums.take[way])
        );
    }
    let bits = 8.0 * mean(sums.bytes[0]) / mean(sums.changed);
    println!("  {bits:.1} bits for each changed element; digest and copy of the whole are in every time");
}

fn main() -> Result<()> {
    tch::set_num_threads(1);
    let mut sizes = std::env::args().skip(1).map(|size| size.parse::<usize>());
    let hidden = sizes.next().transpose()?.unwrap_or(256);
    let layers = sizes.next().transpose()?.unwrap_or(6);
    [1e-6, 5e-6]
        .into_iter()
        .try_for_each(|lr| run(&shape(hidden, layers), lr))
}
