//! The memory that loading a model keeps, and its peak, for each type on disk and in memory.
//!
//! `cargo run -p trainer --example load_bench`. The model is random (12 layers of 512, 51 million
//! parameters), and its temporary folder is removed. Each figure is measured in a separate process:
//! resident memory including mapped files, above the amount before loading.

#[path = "common/memory.rs"]
mod memory;

use std::path::Path;

use configs::Dtype;
use trainer::device::{self, Device, Want};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights, kind_of};

use memory::{apart, begin_peak, memory};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TYPES: [(&str, Dtype); 2] = [("f32", Dtype::F32), ("bf16", Dtype::Bf16)];
/// The size of each file, in the run with shards.
const SHARD: u64 = 20_000_000;

fn shape() -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab: 32_768,
        layers: 12,
        hidden: 512,
        heads: 8,
        kv_heads: 4,
        head_dim: 64,
        intermediate: 1408,
        max_context: 1024,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

/// MiB kept and at the peak.
fn measure(folder: &Path, dtype: Dtype) -> Result<(f64, f64)> {
    device::init(Want::Cpu)?;
    let shape = ModelShape::load(folder)?;
    // Excludes libtorch's one-time memory.
    let _ = Weights::zeros(
        &ModelShape {
            layers: 1,
            vocab: 8,
            ..shape.clone()
        },
        Device::Cpu,
        kind_of(dtype),
    )?;
    let held = memory("VmRSS")?;
    begin_peak()?;
    let weights = Weights::load_as(&shape, folder, Device::Cpu, dtype)?;
    let found = (memory("VmRSS")? - held, memory("VmHWM")? - held);
    drop(weights);
    Ok(found)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [folder, name] = arguments.as_slice() {
        let dtype = TYPES.iter().find(|(known, _)| known == name);
        let (_, dtype) = dtype.ok_or("f32 or bf16")?;
        let (kept, peak) = measure(Path::new(folder), *dtype)?;
        println!("{kept} {peak}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let init = Init {
        embedding_std: 0.02,
        matrix_std: 0.02,
    };
    let weights = Weights::random(&shape(), init, 1)?;
    for (on_disk, dtype) in TYPES {
        for (files, most) in [("one file", u64::MAX), ("shards", SHARD)] {
            weights.save_as(&shape(), folder.path(), kind_of(dtype), most)?;
            for (name, dtype) in TYPES {
                let bytes = weights.layout().numel() * kind_of(dtype).elt_size_in_bytes();
                let values = bytes as f64 / f64::from(1 << 20);
                let (kept, peak) = apart(&[folder.path().to_str().ok_or("no UTF-8")?, name])?;
                println!(
                    "{on_disk:4} in {files:8} as {name:4}: {values:5.0} MiB of values, {kept:5.0} MiB kept, {peak:5.0} MiB at the peak"
                );
            }
        }
    }
    Ok(())
}
