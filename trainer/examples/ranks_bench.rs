//! One trainer of one and of two ranks on this machine's CPU: seconds of a step, and the share of
//! the exchanges between ranks.
//!
//! `cargo run -p trainer --example ranks_bench`. The model has the shape of SmolLM2-135M and random
//! weights, in f32. Each rank is a process with one torch thread; Gloo connects them. A step is a
//! batch's gradient and AdamW. The share is the time inside calls of the collective, which
//! includes waiting for a slower rank. `small` as the only argument takes a small model instead.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand};
use configs::{Offload, Shard};
use tch::Tensor;
use trainer::collective::{C10d, Collective, CollectiveError, Meeting, Patience, Store};
use trainer::device::{self, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const STEPS: u64 = 3;
const ROWS: u32 = 8;
const LENGTH: u32 = 64;
/// A line of the table: ranks, and what they split and offload.
const LINES: [(usize, Shard, Offload); 6] = [
    (1, Shard::None, Offload::None),
    (2, Shard::None, Offload::None),
    (2, Shard::Optimizer, Offload::None),
    (2, Shard::Optimizer, Offload::Optimizer),
    (2, Shard::Gradient, Offload::None),
    (2, Shard::Full, Offload::None),
];

/// The shape of SmolLM2-135M, or a small one.
fn shape(small: bool) -> ModelShape {
    let smol = ModelShape {
        arch: Architecture::Llama,
        biases: Biases::default(),
        vocab: 49152,
        layers: 30,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        intermediate: 1536,
        max_context: 1024,
        rms_eps: 1e-5,
        rope: Rope::plain(100_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    };
    if small {
        ModelShape {
            vocab: 1024,
            layers: 4,
            ..smol
        }
    } else {
        smol
    }
}

fn batch() -> TrainBatch {
    let span = |row: u32| Span {
        ids: (0..LENGTH).map(|i| (row * 977 + i * 31 + i * i) % 1024).collect(),
        mask: (0..LENGTH).map(|i| i > 0).collect(),
        behaviour_lp: vec![-8.0; LENGTH as usize],
        advantage: if row.is_multiple_of(2) { 1.0 } else { -1.0 },
        answer: row,
        weight: 1.0 / (ROWS * LENGTH) as f32,
        temperature: 1.0,
        ..Span::default()
    };
    TrainBatch {
        spans: (0..ROWS).map(span).collect(),
        tokens: u64::from(ROWS * (LENGTH - 1)),
    }
}

/// A group that counts the time inside its calls.
struct Timed {
    group: C10d,
    nanoseconds: Arc<AtomicU64>,
}

impl Timed {
    fn count<T>(&self, call: impl FnOnce(&C10d) -> T) -> T {
        let begun = Instant::now();
        let value = call(&self.group);
        let spent = begun.elapsed().as_nanos() as u64;
        self.nanoseconds.fetch_add(spent, Ordering::Relaxed);
        value
    }
}

impl Collective for Timed {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn world_size(&self) -> usize {
        self.group.world_size()
    }

    fn timeout(&self) -> Option<Duration> {
        self.group.timeout()
    }

    fn all_reduce(&self, sum: &mut Tensor) -> std::result::Result<(), CollectiveError> {
        self.count(|group| group.all_reduce(sum))
    }

    fn reduce_scatter(&self, part: &mut Tensor, whole: &Tensor) -> std::result::Result<(), CollectiveError> {
        self.count(|group| group.reduce_scatter(part, whole))
    }

    fn all_gather(&self, whole: &mut Tensor, part: &Tensor) -> std::result::Result<(), CollectiveError> {
        self.count(|group| group.all_gather(whole, part))
    }

    fn broadcast(
        &self,
        value: &mut Tensor,
        root: usize,
        patience: Patience,
    ) -> std::result::Result<(), CollectiveError> {
        self.count(|group| group.broadcast(value, root, patience))
    }

    fn barrier(&self) -> std::result::Result<(), CollectiveError> {
        self.count(|group| group.barrier())
    }
}

fn trainer(group: Option<Timed>, shard: Shard, offload: Offload, small: bool) -> Result<Trainer> {
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let options = TrainerOptions {
        micro_batch_tokens: (2 * LENGTH) as usize,
        checkpoint_activations: true,
        shard,
        offload,
        ..TrainerOptions::default()
    };
    let shape = shape(small);
    let weights = Weights::random(&shape, init, 1)?;
    Ok(match group {
        Some(group) => Trainer::in_group(Box::new(group), shape, None, weights, options)?,
        None => Trainer::new(shape, weights, options)?,
    })
}

/// The median seconds of the gradient, of the optimizer step and of the collectives' calls; the
/// first step is left out.
fn measure(trainer: &mut Trainer, nanoseconds: &AtomicU64) -> Result<[f64; 3]> {
    let params = OptimStep {
        lr: 1e-4,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        clip_norm: 1.0,
    };
    let (mut gradients, mut steps, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for seq in 0..=STEPS {
        nanoseconds.store(0, Ordering::Relaxed);
        let (batch, loss, begun) = (batch(), Loss::Policy(Policy::clipped(0.2, 0.2)), Instant::now());
        trainer.execute(TrainCommand::ForwardBackward {
            seq: 2 * seq,
            batch,
            loss,
        })?;
        let computed = begun.elapsed();
        trainer.execute(TrainCommand::OptimStep {
            seq: 2 * seq + 1,
            params,
        })?;
        if seq > 0 {
            gradients.push(computed);
            steps.push(begun.elapsed() - computed);
            calls.push(Duration::from_nanos(nanoseconds.load(Ordering::Relaxed)));
        }
    }
    Ok([gradients, steps, calls].map(|mut times| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    }))
}

fn rank(number: usize, line: usize, small: bool, file: &str) -> Result<()> {
    let (ranks, shard, offload) = LINES[line];
    let nanoseconds = Arc::new(AtomicU64::new(0));
    let group = if ranks > 1 {
        let group = C10d::join(&Meeting {
            store: Store::File(file.into()),
            name: "bench".into(),
            address: "127.0.0.1".into(),
            rank: number,
            world_size: ranks,
            start: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            gpu: None,
        })?;
        let nanoseconds = Arc::clone(&nanoseconds);
        Some(Timed { group, nanoseconds })
    } else {
        None
    };
    let mut trainer = trainer(group, shard, offload, small)?;
    if number > 0 {
        return Ok(trainer.serve()?);
    }
    let [gradient, step, calls] = measure(&mut trainer, &nanoseconds)?;
    trainer.end()?;
    let share = 100.0 * calls / (gradient + step);
    let split = format!("{shard:?} {offload:?}").to_lowercase();
    println!(
        "| {ranks} | {split:19} | {gradient:6.2} | {step:6.2} | {:6.2} | {share:3.0} % |",
        gradient + step
    );
    Ok(())
}

fn main() -> Result<()> {
    device::init(Want::Cpu)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [number, line, small, file] = arguments.as_slice() {
        return rank(number.parse()?, line.parse()?, small.parse()?, file);
    }
    let small = arguments.iter().any(|argument| argument == "small");
    println!("| ranks | shard, offload | gradient, s | optimizer, s | step, s | in collectives |");
    println!("|---|---|---|---|---|---|");
    for (line, (ranks, ..)) in LINES.into_iter().enumerate() {
        let file = std::env::temp_dir().join(format!("ranks-bench-{}-{line}", std::process::id()));
        let start = |number: usize| -> Result<Child> {
            let arguments = [number.to_string(), line.to_string(), small.to_string()];
            Ok(Command::new(std::env::current_exe()?)
                .args(arguments)
                .arg(&file)
                .spawn()?)
        };
        let started: Result<Vec<Child>> = (0..ranks).map(start).collect();
        for mut child in started? {
            if !child.wait()?.success() {
                return Err("a rank failed".into());
            }
        }
    }
    Ok(())
}
