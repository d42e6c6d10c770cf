//! Activation checkpointing: memory and time of a batch's gradient with it and without, in turn.
//!
//! `cargo run -p trainer --example memory_bench`. The model is random (12 layers of 256), weights
//! f32, one torch thread. Each figure is measured in a separate process. Memory is the peak above
//! the amount before the first batch. Seconds are the processor time of the second batch.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/memory.rs"]
mod memory;

use broker::protocol::train::{Loss, Policy, Span, TrainBatch, TrainCommand};
use trainer::device::{self, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

use clock::on_processor;
use memory::{apart, begin_peak, memory};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const REPEATS: usize = 3;
const WAYS: [&str; 2] = ["graph", "checkpointed"];

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

/// Rows without a common beginning.
fn batch(rows: u32, length: u32) -> TrainBatch {
    let span = |row: u32| Span {
        ids: (0..length).map(|i| (row * 977 + i * 31 + i * i) % 4096).collect(),
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

fn trainer(checkpoint_activations: bool) -> Result<Trainer> {
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let options = TrainerOptions {
        checkpoint_activations,
        ..TrainerOptions::default()
    };
    Ok(Trainer::new(shape(), Weights::random(&shape(), init, 1)?, options)?)
}

/// Seconds and MiB of one way, in this process.
fn measure(checkpoint_activations: bool, rows: u32, length: u32) -> Result<(f64, f64)> {
    device::init(Want::Cpu)?;
    let mut trainer = trainer(checkpoint_activations)?;
    let held = memory("VmRSS")?;
    begin_peak()?;
    let mut seconds = 0.0;
    for seq in 0..2 {
        let (batch, loss) = (batch(rows, length), Loss::Policy(Policy::clipped(0.2, 0.2)));
        let begun = on_processor()?;
        trainer.execute(TrainCommand::ForwardBackward { seq, batch, loss })?;
        seconds = (on_processor()? - begun).as_secs_f64();
    }
    Ok((seconds, memory("VmHWM")? - held))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [way, rows, length] = arguments.as_slice() {
        let (seconds, peak) = measure(way == WAYS[1], rows.parse()?, length.parse()?)?;
        println!("{seconds} {peak}");
        return Ok(());
    }
    for (rows, length) in [(8, 128), (8, 512)] {
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..REPEATS {
            for (way, figures) in WAYS.into_iter().zip(&mut figures) {
                figures.push(apart(&[way, &rows.to_string(), &length.to_string()])?);
            }
        }
        for (way, mut figures) in WAYS.into_iter().zip(figures) {
            figures.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (seconds, _) = figures[figures.len() / 2];
            let peak = figures.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
            println!(
                "{rows} rows of {length}, 12x256, vocab 4096, {way:12}: {seconds:6.2} s, {peak:5.0} MiB at the peak"
            );
        }
    }
    Ok(())
}
