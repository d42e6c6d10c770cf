//! Speed of the embedded engine on one core: tokens per second by batch, and waves of the signal game.
//!
//! `cargo run -p trainer --example engine_bench`. Models are random and tiny (two layers of 64), weights f32, one torch
//! thread. Each number is the best of several repeats, with the median beside it.

use std::sync::Arc;
use std::time::Instant;

use broker::ids::{RequestId, WeightVersion};
use configs::Swap;
use tch::{Device, Kind};
use trainer::device::{self, Want};
use trainer::engine::{Engine, EngineError, EngineOptions, GenRequest};
use trainer::model::{Architecture, Biases, Init, ModelShape, Reading, Rope, Weights};
use trainer::sampling::SamplingParams;
use trainer::weights::Published;

#[path = "common/clock.rs"]
mod clock;

use clock::on_processor;

const REPEATS: usize = 9;

fn shape(vocab: usize, kv_heads: usize) -> ModelShape {
    ModelShape {
        arch: Architecture::Qwen3,
        biases: Biases::default(),
        vocab,
        layers: 2,
        hidden: 64,
        heads: 4,
        kv_heads,
        head_dim: 16,
        intermediate: 256,
        max_context: 512,
        rms_eps: 1e-6,
        rope: Rope::plain(10_000.0),
        tied: false,
        bos: None,
        eos: vec![],
        pad: None,
    }
}

fn engine(shape: &ModelShape) -> Result<Engine, EngineError> {
    let weights = Weights::random(
        shape,
        Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        },
        1,
    )?;
    let options = EngineOptions {
        slots: 256,
        prefill_tokens: 4096,
        prefix_cache: 0,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    Engine::new(shape, Published::new(weights, WeightVersion::default()), options)
}

/// `count` requests over `prompts` distinct prompts of `length` tokens.
fn requests(vocab: u32, count: u64, prompts: u64, length: u64, max_new: impl Fn(u64) -> u32) -> Vec<GenRequest> {
    let prompt = |p: u64| {
        (0..length)
            .map(|i| ((p * 31 + i * 7) % u64::from(vocab)) as u32)
            .collect::<Arc<[u32]>>()
    };
    let prompts: Vec<Arc<[u32]>> = (0..prompts).map(prompt).collect();
    let none: Arc<[u32]> = Arc::from([]);
    let make = |n: u64| GenRequest {
        id: RequestId(u128::from(n).to_le_bytes()),
        prompt_ids: Arc::clone(&prompts[(n % prompts.len() as u64) as usize]),
        max_new_tokens: max_new(n),
        sampling: SamplingParams::default(),
        stop_ids: Arc::clone(&none),
        stop: None,
        seed: n,
        keep: false,
        top: 0,
        prompt_top: None,
    };
    (0..count).map(make).collect()
}

/// Best and median seconds of a wave, and the tokens it made.
fn time(engine: &mut Engine, wave: &[GenRequest]) -> Result<(f64, f64, usize), EngineError> {
    let mut seconds = Vec::new();
    let mut tokens = 0;
    for _ in 0..=REPEATS {
        let wave = wave.to_vec();
        let begun = Instant::now();
        let done = engine.run_wave(wave)?;
        seconds.push(begun.elapsed().as_secs_f64());
        tokens = done.iter().map(|finished| finished.output_ids.len()).sum();
    }
    seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    Ok((seconds[0], seconds[REPEATS / 2], tokens))
}

fn decode(vocab: usize, batch: u64) -> Result<(), EngineError> {
    let mut engine = engine(&shape(vocab, 2))?;
    let (best, median, tokens) = time(&mut engine, &requests(vocab as u32, batch, batch, 8, |_| 64))?;
    let (rate, usual) = (tokens as f64 / best, tokens as f64 / median);
    println!(
        "decode  2x64 vocab {vocab:4}  batch {batch:3}: {rate:9.0} tokens/s (median {usual:9.0}), {:.3} ms/step",
        1e3 * best / 64.0
    );
    Ok(())
}

fn ragged(vocab: usize) -> Result<(), EngineError> {
    let mut engine = engine(&shape(vocab, 2))?;
    let wave = requests(vocab as u32, 512, 64, 8, |n| 1 + (n * n * 37 % 128) as u32);
    let (best, median, tokens) = time(&mut engine, &wave)?;
    let (rate, usual) = (tokens as f64 / best, tokens as f64 / median);
    println!("ragged  2x64 vocab {vocab:4}  512 in 256 slots, 1 to 128 new: {rate:9.0} tokens/s (median {usual:9.0})");
    Ok(())
}

fn signal(vocab: usize) -> Result<(), EngineError> {
    let mut engine = engine(&shape(vocab, 4))?;
    let (best, median, tokens) = time(&mut engine, &requests(vocab as u32, 256, 16, 3, |_| 1))?;
    let (rate, usual) = (tokens as f64 / best, tokens as f64 / median);
    println!(
        "signal  2x64 vocab {vocab:4}  256 requests, 16 prompts, 1 token: {rate:9.0} requests/s (median {usual:9.0}), {:.3} ms/wave",
        1e3 * best
    );
    Ok(())
}

fn swap(vocab: usize) -> Result<(), EngineError> {
    let shape = shape(vocab, 2);
    let mut engine = engine(&shape)?;
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    let mut best = f64::MAX;
    for step in 1..=REPEATS as u64 {
        let weights = Published::new(Weights::random(&shape, init, step)?, WeightVersion { lineage: 1, step });
        let begun = Instant::now();
        engine.swap(weights)?;
        best = best.min(begun.elapsed().as_secs_f64());
    }
    println!("swap    2x64 vocab {vocab:4}: {:.3} ms", 1e3 * best);
    Ok(())
}

/// What `deterministic` costs, and what it buys: each way in turn, and how many requests have other bits than alone.
fn deterministic(batch: u64) -> Result<(), Box<dyn std::error::Error>> {
    let shape = ModelShape {
        layers: 6,
        hidden: 256,
        heads: 4,
        head_dim: 64,
        intermediate: 768,
        ..shape(4096, 2)
    };
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.1,
    };
    let engine = |deterministic: bool| {
        let options = EngineOptions {
            slots: 256,
            prefill_tokens: 4096,
            prefix_cache: 0,
            swap: Swap::InPlace,
            deterministic,
            prepack: true,
        };
        let weights = Weights::random(&shape, init, 1)?;
        Engine::new(&shape, Published::new(weights, WeightVersion::default()), options)
    };
    let mut engines = [engine(false)?, engine(true)?];
    let wave = requests(4096, batch, batch, 96, |_| 32);
    let mut seconds = [vec![], vec![]];
    let mut other = [0, 0];
    for repeat in 0..4 {
        for (way, engine) in engines.iter_mut().enumerate() {
            let begun = on_processor()?;
            let together = engine.run_wave(wave.clone())?;
            if repeat > 0 {
                seconds[way].push((on_processor()? - begun).as_secs_f64());
                continue;
            }
            for (request, together) in wave.iter().zip(together).take(16) {
                let alone = engine.run_wave(vec![request.clone()])?;
                other[way] += usize::from(alone.first() != Some(&together));
            }
        }
    }
    let [usual, fixed] = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        32.0 * batch as f64 / seconds[1]
    });
    println!(
        "deterministic  6x256 vocab 4096  batch {batch:3}, prompts of 96, 32 new: {fixed:6.0} tokens/s, otherwise {usual:6.0} ({:.2} times); \
         of {} requests {} have other bits than alone, otherwise {}",
        usual / fixed,
        batch.min(16),
        other[1],
        other[0]
    );
    Ok(())
}

/// Decode steps of rows of these lengths by each way to read their keys, in turn: tokens per second.
fn readings(kind: Kind, name: &str, lengths: &[u64]) -> Result<(), Box<dyn std::error::Error>> {
    let shape = ModelShape {
        layers: 4,
        hidden: 512,
        heads: 8,
        head_dim: 64,
        intermediate: 1024,
        max_context: 2048,
        ..shape(1024, 4)
    };
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.1,
    };
    let options = EngineOptions {
        slots: 256,
        prefill_tokens: 4096,
        prefix_cache: 0,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    const STEPS: u32 = 48;
    let ways = [Reading::Own, Reading::BUCKETS, Reading::LONGEST];
    let mut seconds = [const { vec![] }; 3];
    for _ in 0..3 {
        for (way, seconds) in ways.into_iter().zip(&mut seconds) {
            let weights = Weights::random(&shape, init, 1)?.copied(Device::Cpu, kind)?;
            let mut engine = Engine::new(&shape, Published::new(weights, WeightVersion::default()), options)?;
            if engine.read_by(way).is_err() {
                continue;
            }
            for (n, length) in lengths.iter().enumerate() {
                let prompts = n as u64 + 1;
                let Some(mut request) = requests(1024, prompts, prompts, *length, |_| 2048).pop() else {
                    continue;
                };
                request.id = RequestId((n as u128).to_le_bytes());
                engine.submit(request)?;
            }
            // Until all prompts are computed, and rows stand as they will.
            while engine.under_way().count() < lengths.len() {
                engine.step()?;
            }
            engine.step()?;
            let begun = on_processor()?;
            for _ in 0..STEPS {
                engine.step()?;
            }
            seconds.push((on_processor()? - begun).as_secs_f64());
        }
    }
    let rates = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        let median = seconds.get(1).copied().unwrap_or(f64::NAN);
        f64::from(STEPS) * lengths.len() as f64 / median
    });
    let [own, buckets, longest] = rates;
    println!(
        "reading  4x512 {kind:?}  {} rows, {name}: each its own keys {own:6.0} tokens/s, by buckets {buckets:6.0}, as many as the longest {longest:6.0} \
         ({:.2}, {:.2} times that)",
        lengths.len(),
        own / longest,
        buckets / longest
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    device::init(Want::Cpu)?;
    for kind in [Kind::Float, Kind::BFloat16] {
        let even = |least: u64, most: u64| {
            (0..48)
                .map(|n| least + n * 29 % 48 * (most - least) / 47)
                .collect::<Vec<u64>>()
        };
        readings(kind, "all of 544", &[544; 48])?;
        readings(kind, "evenly from 64 to 1024", &even(64, 1024))?;
        readings(kind, "evenly from 64 to 256", &even(64, 256))?;
        let one = |n: u64| if n == 20 { 1900 } else { 100 + n };
        readings(kind, "about 120, one of 1900", &(0..48).map(one).collect::<Vec<u64>>())?;
    }
    for batch in [1, 8, 32, 128] {
        deterministic(batch)?;
    }
    for vocab in [40, 512] {
        for batch in [1, 8, 32, 256] {
            decode(vocab, batch)?;
        }
        ragged(vocab)?;
        signal(vocab)?;
        swap(vocab)?;
    }
    Ok(())
}
