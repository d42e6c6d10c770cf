//! The cost of continuing a conversation: turns computed from their first token, or after the cache
//! of earlier turns.
//!
//! `cargo run -p trainer --example turns_bench [CONVERSATIONS]`. A random model of 6 layers of 256,
//! f32, one torch thread. A prompt of 128 tokens is followed by 8 turns of 32 new tokens, with 32
//! tokens of another speaker between them. Prints the processor seconds of both ways, in turn,
//! three times; medians by turn.

#[path = "common/clock.rs"]
mod clock;

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use configs::Swap;
use trainer::device::{self, Want};
use trainer::engine::{Engine, EngineError, EngineOptions, GenRequest};
use trainer::model::{Architecture, Biases, Init, ModelShape, Rope, Weights};
use trainer::sampling::SamplingParams;
use trainer::weights::Published;

use clock::on_processor;

const TURNS: usize = 8;
const REPEATS: usize = 3;

fn shape() -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab: 2048,
        layers: 6,
        hidden: 256,
        heads: 8,
        kv_heads: 4,
        head_dim: 32,
        intermediate: 768,
        max_context: 2048,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied: true,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

fn engine(prefix_cache: usize) -> Result<Engine, EngineError> {
    let init = Init {
        embedding_std: 0.5,
        matrix_std: 0.05,
    };
    let options = EngineOptions {
        slots: 256,
        prefill_tokens: 4096,
        prefix_cache,
        cache: None,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    let weights = Published::new(Weights::random(&shape(), init, 1)?, WeightVersion::default());
    Engine::new(&shape(), weights, options)
}

/// Seconds of each turn of all conversations together, and the share of prompt tokens that was
/// reused.
fn play(conversations: usize, prefix_cache: usize) -> Result<(Vec<f64>, f64), Box<dyn std::error::Error>> {
    let mut engine = engine(prefix_cache)?;
    let token = |n: usize, salt: usize| ((n * 31 + salt * 7 + n * n) % 2048) as u32;
    let mut said: Vec<Vec<u32>> = (0..conversations)
        .map(|c| (0..128).map(|i| token(i, c)).collect())
        .collect();
    let none: Arc<[u32]> = Arc::from([]);
    let (mut seconds, mut asked, mut reused) = (Vec::new(), 0, 0);
    for turn in 0..TURNS {
        let begun = on_processor()?;
        for (c, said) in said.iter().enumerate() {
            asked += said.len();
            engine.submit(GenRequest {
                id: RequestId((c as u128).to_le_bytes()),
                prompt_ids: said.as_slice().into(),
                max_new_tokens: 32,
                sampling: SamplingParams::default(),
                stop_ids: Arc::clone(&none),
                stop: None,
                seed: (turn * conversations + c) as u64,
                keep: true,
                top: 0,
                prompt_top: None,
            })?;
        }
        while !engine.is_idle() {
            for one in engine.step()? {
                let c = u128::from_le_bytes(one.id.0) as usize;
                reused += one.reused;
                said[c].extend(&one.output_ids);
                said[c].extend((0..32).map(|i| token(i, turn + c + 5)));
            }
        }
        seconds.push((on_processor()? - begun).as_secs_f64());
    }
    Ok((seconds, reused as f64 / asked as f64))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    device::init(Want::Cpu)?;
    let conversations = std::env::args().nth(1).map_or(Ok(32), |text| text.parse())?;
    let (mut whole, mut behind, mut share) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..REPEATS {
        whole.push(play(conversations, 0)?.0);
        let (seconds, reused) = play(conversations, 1 << 30)?;
        behind.push(seconds);
        share = reused;
    }
    println!("{conversations} conversations; seconds of a turn, from the first token, and from the cache:");
    let of = |all: &[Vec<f64>], turn: usize| median(all.iter().map(|one| one[turn]).collect());
    for turn in 0..TURNS {
        let (whole, behind) = (of(&whole, turn), of(&behind, turn));
        println!("  turn {}: {whole:.3} {behind:.3}  x{:.2}", turn + 1, whole / behind);
    }
    let all = |all: &[Vec<f64>]| median(all.iter().map(|one| one.iter().sum()).collect());
    let (whole, behind) = (all(&whole), all(&behind));
    println!(
        "  together: {whole:.3} {behind:.3}  x{:.2}; {:.0}% of the prompts' tokens came from the cache",
        whole / behind,
        100.0 * share
    );
    Ok(())
}
