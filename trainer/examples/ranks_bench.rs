//! Measures a trainer of one rank and of two: the seconds of a step, and the share of the exchanges
//! between ranks.
//!
//! `cargo run -p trainer --example ranks_bench [small|gpus]`. The model has the shape of
//! SmolLM2-135M and random weights, in f32 on this machine's CPU. Each rank is a process with one
//! torch thread; Gloo connects them. A step is a batch's gradient and AdamW. The share is the time
//! inside calls of the collective, which includes waiting for a slower rank. `small` takes a small
//! model. `gpus` takes the shape of Qwen3-0.6B in bf16 and two GPUs, which NCCL connects: its calls
//! return before the exchange is done, so their share says little.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand};
use configs::{Dtype, Offload, Shard};
use tch::Tensor;
use trainer::collective::{C10d, Collective, CollectiveError, Meeting, Patience, Store};
use trainer::device::{self, Device, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const STEPS: u64 = 3;
/// A line of the table: ranks, and what they split and offload.
const LINES: [(usize, Shard, Offload); 6] = [
    (1, Shard::None, Offload::None),
    (2, Shard::None, Offload::None),
    (2, Shard::Optimizer, Offload::None),
    (2, Shard::Optimizer, Offload::Optimizer),
    (2, Shard::Gradient, Offload::None),
    (2, Shard::Full, Offload::None),
];

/// A model, a batch and the kind of device.
#[derive(Clone)]
struct Size {
    shape: ModelShape,
    dtype: Dtype,
    rows: u32,
    length: u32,
    /// The rows of a micro-batch.
    together: u32,
    on_gpus: bool,
}

impl Size {
    fn named(name: &str) -> Result<Self> {
        let smol = Self {
            shape: smol(),
            dtype: Dtype::F32,
            rows: 8,
            length: 64,
            together: 2,
            on_gpus: false,
        };
        Ok(match name {
            "smol" => smol,
            "small" => Self {
                shape: ModelShape {
                    vocab: 1024,
                    layers: 4,
                    ..smol.shape
                },
                ..smol
            },
            "gpus" => Self {
                shape: qwen(),
                dtype: Dtype::Bf16,
                rows: 64,
                length: 256,
                together: 16,
                on_gpus: true,
            },
            other => return Err(format!("{other:?} is not a size: write small or gpus, or leave it out").into()),
        })
    }

    /// Sets libtorch up for a rank.
    fn device(&self, rank: usize) -> Result<Device> {
        let want = if self.on_gpus { Want::Cuda(rank) } else { Want::Cpu };
        Ok(device::init(want)?)
    }
}

/// The shape of SmolLM2-135M.
fn smol() -> ModelShape {
    ModelShape {
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
    }
}

/// The shape of Qwen3-0.6B.
fn qwen() -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        vocab: 151_936,
        layers: 28,
        hidden: 1024,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        intermediate: 3072,
        rms_eps: 1e-6,
        rope: Rope::plain(1_000_000.0),
        ..smol()
    }
}

fn batch(size: &Size) -> TrainBatch {
    let (rows, length) = (size.rows, size.length);
    let span = |row: u32| Span {
        ids: (0..length).map(|i| (row * 977 + i * 31 + i * i) % 1024).collect(),
        mask: (0..length).map(|i| i > 0).collect(),
        behaviour_lp: vec![-8.0; length as usize],
        advantage: if row.is_multiple_of(2) { 1.0 } else { -1.0 },
        answer: row,
        weight: 1.0 / (rows * length) as f32,
        temperature: 1.0,
        ..Span::default()
    };
    TrainBatch {
        spans: (0..rows).map(span).collect(),
        tokens: u64::from(rows * (length - 1)),
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

fn trainer(group: Option<Timed>, (shard, offload): (Shard, Offload), size: &Size, device: Device) -> Result<Trainer> {
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let options = TrainerOptions {
        device,
        dtype: size.dtype,
        micro_batch_tokens: (size.together * size.length) as usize,
        checkpoint_activations: true,
        shard,
        offload,
        ..TrainerOptions::default()
    };
    let shape = size.shape.clone();
    let weights = Weights::random(&shape, init, 1)?;
    Ok(match group {
        Some(group) => Trainer::in_group(Box::new(group), shape, None, weights, options)?,
        None => Trainer::new(shape, weights, options)?,
    })
}

/// The median seconds of the gradient, of the optimizer step and of the collectives' calls; the
/// first step is left out.
fn measure(trainer: &mut Trainer, nanoseconds: &AtomicU64, size: &Size) -> Result<[f64; 3]> {
    // A GPU may still compute when a command has returned.
    let wait = || {
        if size.on_gpus {
            tch::Cuda::synchronize(0);
        }
    };
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
        let (batch, loss, begun) = (batch(size), Loss::Policy(Policy::clipped(0.2, 0.2)), Instant::now());
        trainer.execute(TrainCommand::ForwardBackward {
            seq: 2 * seq,
            batch,
            loss,
        })?;
        wait();
        let computed = begun.elapsed();
        trainer.execute(TrainCommand::OptimStep {
            seq: 2 * seq + 1,
            params,
        })?;
        wait();
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

fn rank(number: usize, line: usize, size: &Size, file: &str) -> Result<()> {
    let (ranks, shard, offload) = LINES[line];
    let device = size.device(number)?;
    if size.on_gpus {
        device::open_own()?;
    }
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
            gpu: size.on_gpus.then_some(number),
        })?;
        let nanoseconds = Arc::clone(&nanoseconds);
        Some(Timed { group, nanoseconds })
    } else {
        None
    };
    let mut trainer = trainer(group, (shard, offload), size, device)?;
    if number > 0 {
        return Ok(trainer.serve()?);
    }
    let [gradient, step, calls] = measure(&mut trainer, &nanoseconds, size)?;
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [number, line, size, file] = arguments.as_slice() {
        return rank(number.parse()?, line.parse()?, &Size::named(size)?, file);
    }
    let size = arguments.first().map_or("smol", String::as_str);
    Size::named(size)?;
    println!("| ranks | shard, offload | gradient, s | optimizer, s | step, s | in collectives |");
    println!("|---|---|---|---|---|---|");
    for (line, (ranks, ..)) in LINES.into_iter().enumerate() {
        let file = std::env::temp_dir().join(format!("ranks-bench-{}-{line}", std::process::id()));
        let start = |number: usize| -> Result<Child> {
            let arguments = [number.to_string(), line.to_string(), size.to_owned()];
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
