//! The cost of a checkpoint: seconds of the wall clock, and bytes that the process reads and writes
//! by system calls, for a save, a verification and a load of a full trainer.
//!
//! ```text
//! cargo run -p trainer --example checkpoint_bench -- FOLDER [LAYERS]
//! ```
//!
//! The model is random and has SmolLM2-135M's shape (30 layers), weights f32, so its state is
//! 1.6 GB. A folder in memory (`/dev/shm`) leaves out the disk.

#[path = "common/memory.rs"]
mod memory;

use std::path::Path;
use std::time::Instant;

use broker::protocol::train::{TrainCommand, TrainReply};
use trainer::checkpoint;
use trainer::device::{self, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

use memory::{begin_peak, memory};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const REPEATS: u64 = 3;

fn shape(layers: usize) -> ModelShape {
    ModelShape {
        arch: Architecture::Llama,
        biases: Biases::default(),
        vocab: 49152,
        layers,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        intermediate: 1536,
        max_context: 2048,
        rms_eps: 1e-5,
        rope: Rope::plain(100_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

/// Bytes that this process has read and written so far, in MB.
fn moved() -> Result<[f64; 2]> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let megabytes = |name: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.ok_or("no such line")?.trim().parse::<f64>()? / 1e6)
    };
    Ok([megabytes("rchar:")?, megabytes("wchar:")?])
}

/// Runs `act` and prints its cost.
fn measured<T>(name: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let [read, written] = moved()?;
    let begun = Instant::now();
    let outcome = act()?;
    let seconds = begun.elapsed().as_secs_f64();
    let after = moved()?;
    println!(
        "{name:12} {seconds:6.2} s, {:6.0} MB read, {:6.0} MB written",
        after[0] - read,
        after[1] - written
    );
    Ok(outcome)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder to write to")?;
    let layers = arguments.next().map_or(Ok(30), |layers| layers.parse())?;
    device::init(Want::Cpu)?;
    tch::set_num_threads(1);
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let root = Path::new(&folder).join("checkpoint-bench");
    let path = root.display().to_string();
    let weights = Weights::random(&shape(layers), init, 1)?;
    let mut trainer = Trainer::new(shape(layers), weights, TrainerOptions::default())?;
    let held = memory("VmRSS")?;
    begin_peak()?;
    for round in 0..REPEATS {
        let (seq, path, meta) = (2 * round, path.clone(), "{}".to_owned());
        let save = TrainCommand::SaveState {
            seq,
            path: path.clone(),
            meta,
        };
        let reply = measured("save", || Ok(trainer.execute(save)?))?;
        let found = measured("verification", || Ok(checkpoint::find(&root, false)?))?;
        let load = TrainCommand::LoadState { seq: seq + 1, path };
        measured("load", || Ok(trainer.execute(load)?))?;
        if let TrainReply::Saved { digest } = reply {
            let model = &found.manifest.files["model.safetensors"].blake3;
            println!("digests      state {:.16}, model {model:.16}", digest);
        }
    }
    println!("memory       {:.0} MiB more at the peak", memory("VmHWM")? - held);
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
