//! Speed of the embedded engine on one core.
//!
//! `cargo run -p trainer --example engine_bench [-- PART ...]`, random models, one torch thread:
//! - `deterministic`: the cost and the effect of `engine.deterministic` (6 layers of 256, f32;
//!   medians of 3).
//! - `small`: tokens per second by batch, and waves of the signal game (2 layers of 64, f32; the
//!   best of several repeats, and the median).
//! - `readings`: rows of different lengths by each way to read their keys (4 layers of 512, f32 and
//!   bf16; medians of 3).

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

const OPTIONS: EngineOptions = EngineOptions {
    slots: 256,
    prefill_tokens: 4096,
    prefix_cache: 0,
    cache: None,
    swap: Swap::InPlace,
    deterministic: false,
    prepack: true,
};

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
    Engine::new(shape, Published::new(weights, WeightVersion::default()), OPTIONS)
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

/// Best and median seconds of a wave, and its number of tokens.
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

/// The cost and the effect of `deterministic`: each way in turn, and the number of requests with
/// bits that differ from those alone.
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
            deterministic,
            ..OPTIONS
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
         of {} requests {} differ from their bits alone, otherwise {}",
        usual / fixed,
        batch.min(16),
        other[1],
        other[0]
    );
    Ok(())
}

/// An engine of 4 layers of 512 that reads keys in this way; `None` if it cannot.
fn reader(kind: Kind, way: Reading, slots: usize) -> Result<Option<Engine>, EngineError> {
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
    let options = EngineOptions { slots, ..OPTIONS };
    let weights = Weights::random(&shape, init, 1)?.copied(Device::Cpu, kind)?;
    let mut engine = Engine::new(&shape, Published::new(weights, WeightVersion::default()), options)?;
    Ok(engine.read_by(way).is_ok().then_some(engine))
}

/// One request for each of these pairs: the length of a unique prompt, and the number of new
/// tokens.
fn unlike(pairs: &[(u64, u32)]) -> Vec<GenRequest> {
    let of = |(n, &(length, new)): (u64, &(u64, u32))| {
        let mut request = requests(1024, n + 1, n + 1, length, |_| new).pop();
        request.iter_mut().for_each(|request| request.seed = n);
        request
    };
    (0..).zip(pairs).filter_map(of).collect()
}

/// Tokens per second by each way to read keys, in turn. `run` returns seconds and tokens.
fn by_reading(
    kind: Kind,
    slots: usize,
    name: &str,
    run: impl Fn(&mut Engine) -> Result<(f64, usize), Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let ways = [Reading::Own, Reading::BUCKETS, Reading::LONGEST];
    let mut rates = [const { vec![] }; 3];
    for _ in 0..3 {
        for (way, rates) in ways.into_iter().zip(&mut rates) {
            if let Some(mut engine) = reader(kind, way, slots)? {
                let (seconds, tokens) = run(&mut engine)?;
                rates.push(tokens as f64 / seconds);
            }
        }
    }
    let [own, buckets, longest] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates.get(1).copied().unwrap_or(f64::NAN)
    });
    println!(
        "reading  4x512 {kind:?}  {name}: each its own keys {own:6.0} tokens/s, by buckets {buckets:6.0}, as many as the longest {longest:6.0} \
         ({:.2}, {:.2} times that)",
        own / longest,
        buckets / longest
    );
    Ok(())
}

/// 48 decode steps of a fixed set of rows with these lengths.
fn staying(kind: Kind, name: &str, lengths: &[u64]) -> Result<(), Box<dyn std::error::Error>> {
    const STEPS: usize = 48;
    let pairs: Vec<(u64, u32)> = lengths.iter().map(|length| (*length, 2048)).collect();
    by_reading(kind, lengths.len(), name, |engine| {
        for request in unlike(&pairs) {
            engine.submit(request)?;
        }
        while engine.under_way().count() < pairs.len() {
            engine.step()?;
        }
        let begun = on_processor()?;
        for _ in 0..STEPS {
            engine.step()?;
        }
        Ok(((on_processor()? - begun).as_secs_f64(), STEPS * pairs.len()))
    })
}

/// 144 requests in 48 slots. The time includes their prompts, and rows that come and go.
fn coming(kind: Kind) -> Result<(), Box<dyn std::error::Error>> {
    let pairs: Vec<(u64, u32)> = (0..144)
        .map(|n| (64 + n * 101 % 144 * 4, 16 + (n * 37 % 128) as u32))
        .collect();
    by_reading(
        kind,
        48,
        "144 requests in 48 slots, prompts from 64 to 636, 16 to 143 new",
        |engine| {
            let wave = unlike(&pairs);
            let begun = on_processor()?;
            let done = engine.run_wave(wave)?;
            let tokens = done.iter().map(|finished| finished.output_ids.len()).sum();
            Ok(((on_processor()? - begun).as_secs_f64(), tokens))
        },
    )
}

fn readings() -> Result<(), Box<dyn std::error::Error>> {
    let even = |least: u64, most: u64| (0..48).map(move |n| least + n * 29 % 48 * (most - least) / 47);
    let one = |n: u64| if n == 20 { 1900 } else { 100 + n };
    for kind in [Kind::Float, Kind::BFloat16] {
        staying(kind, "48 rows of about 544", &[544; 48])?;
        staying(
            kind,
            "48 rows evenly from 64 to 1024",
            &even(64, 1024).collect::<Vec<_>>(),
        )?;
        staying(
            kind,
            "48 rows evenly from 64 to 256",
            &even(64, 256).collect::<Vec<_>>(),
        )?;
        staying(
            kind,
            "47 rows about 120, one of 1900",
            &(0..48).map(one).collect::<Vec<_>>(),
        )?;
        coming(kind)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let known = ["deterministic", "small", "readings"];
    if let Some(other) = asked.iter().find(|asked| !known.contains(&asked.as_str())) {
        return Err(format!(
            "{other:?} is not a part of this bench: choose from {}",
            known.join(", ")
        )
        .into());
    }
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    device::init(Want::Cpu)?;
    for batch in [1, 8, 32, 128].into_iter().filter(|_| wanted("deterministic")) {
        deterministic(batch)?;
    }
    for vocab in [40, 512].into_iter().filter(|_| wanted("small")) {
        for batch in [1, 8, 32, 256] {
            decode(vocab, batch)?;
        }
        ragged(vocab)?;
        signal(vocab)?;
        swap(vocab)?;
    }
    if wanted("readings") {
        readings()?;
    }
    Ok(())
}
