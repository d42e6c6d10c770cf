//! One trainer of one and of two ranks on this machine's CPU: seconds of a step, in turn.
//!
//! `cargo run -p trainer --example ranks_bench`. The model is random (12 layers of 256), weights
//! f32, one torch thread a rank, connected by Gloo. A step is a batch's gradient and AdamW.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand};
use trainer::collective::{Collective, Gloo, Meeting};
use trainer::device::{self, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const STEPS: u64 = 5;
const ROWS: u32 = 16;
const LENGTH: u32 = 128;

fn shape() -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab: 4096,
        layers: 12,
        hidden: 256,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        intermediate: 768,
        max_context: 1024,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

fn batch() -> TrainBatch {
    let span = |row: u32| Span {
        ids: (0..LENGTH).map(|i| (row * 977 + i * 31 + i * i) % 4096).collect(),
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

fn trainer(group: Option<Box<dyn Collective>>, shard_optimizer: bool) -> Result<Trainer> {
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let options = TrainerOptions {
        micro_batch_tokens: (2 * LENGTH) as usize,
        shard_optimizer,
        ..TrainerOptions::default()
    };
    let weights = Weights::random(&shape(), init, 1)?;
    Ok(match group {
        Some(group) => Trainer::in_group(group, shape(), None, weights, options)?,
        None => Trainer::new(shape(), weights, options)?,
    })
}

/// The median seconds of the gradient and of the optimizer step; the first step is left out.
fn measure(trainer: &mut Trainer) -> Result<(f64, f64)> {
    let params = OptimStep {
        lr: 1e-4,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        clip_norm: 1.0,
    };
    let (mut gradients, mut steps) = (Vec::new(), Vec::new());
    for seq in 0..=STEPS {
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
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    Ok((median(&mut gradients), median(&mut steps)))
}

fn rank(number: usize, ranks: usize, sharded: bool, file: &str) -> Result<()> {
    let group: Option<Box<dyn Collective>> = if ranks > 1 {
        Some(Box::new(Gloo::join(&Meeting {
            file: file.into(),
            name: "bench".into(),
            address: "127.0.0.1".into(),
            rank: number,
            world_size: ranks,
            start: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
        })?))
    } else {
        None
    };
    let mut trainer = trainer(group, sharded)?;
    if number > 0 {
        return Ok(trainer.serve()?);
    }
    let (gradient, step) = measure(&mut trainer)?;
    trainer.end()?;
    println!("{ranks} ranks, sharded {sharded:5}: gradient {gradient:.2} s, optimizer {step:.3} s");
    Ok(())
}

fn main() -> Result<()> {
    device::init(Want::Cpu)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [number, ranks, sharded, file] = arguments.as_slice() {
        return rank(number.parse()?, ranks.parse()?, sharded.parse()?, file);
    }
    for (place, (ranks, sharded)) in [(1, false), (2, false), (2, true), (1, false), (2, true)]
        .into_iter()
        .enumerate()
    {
        let file = std::env::temp_dir().join(format!("ranks-bench-{}-{place}", std::process::id()));
        let start = |number: usize| -> Result<Child> {
            let arguments = [number.to_string(), ranks.to_string(), sharded.to_string()];
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
