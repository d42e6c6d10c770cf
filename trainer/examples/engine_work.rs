//! Runs the engine as a worker process of `bench/engine.py` and `bench/gpu.py`.
//!
//! `engine_work FOLDER SLOTS [DEVICE [DTYPE]]` loads the model in FOLDER. Each line of stdin is one
//! piece of work: `{"prompts": [[1, 2], ...], "new": [64, ...]}`. Each entry of `new` is a request
//! for this number of tokens. Every prompt has equally many requests: of 8 requests for 2 prompts,
//! the first 4 belong to the first prompt. All are submitted together, at temperature 1.
//!
//! The answer is one line of stdout: `{"seconds": 1.5, "tokens": 512, "device_mib": 0}`. Seconds
//! are this thread's processor time, or wall-clock time on a GPU; `device_mib` is the most memory
//! that tensors have taken on the GPU so far. With `"greedy": true` the most likely tokens are
//! taken, and `"ids"` lists them for each request.

#[path = "common/clock.rs"]
mod clock;
#[path = "common/place.rs"]
mod place;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::ids::{RequestId, WeightVersion};
use configs::Swap;
use serde::Deserialize;
use trainer::engine::{Engine, EngineOptions, GenRequest};
use trainer::model::{ModelShape, Weights};
use trainer::sampling::SamplingParams;
use trainer::weights::Published;

use clock::on_processor;
use place::Place;

#[derive(Deserialize)]
struct Work {
    prompts: Vec<Vec<u32>>,
    /// The number of tokens to generate, for each request.
    new: Vec<u32>,
    #[serde(default)]
    greedy: bool,
}

fn requests(work: &Work, first_seed: u64) -> Vec<GenRequest> {
    let prompts: Vec<Arc<[u32]>> = work.prompts.iter().map(|ids| Arc::from(ids.as_slice())).collect();
    let no_stops: Arc<[u32]> = Arc::from([]);
    let per_prompt = work.new.len() / prompts.len();
    let make = |(i, new): (usize, &u32)| GenRequest {
        id: RequestId((i as u128).to_le_bytes()),
        prompt_ids: Arc::clone(&prompts[i / per_prompt]),
        max_new_tokens: *new,
        sampling: SamplingParams {
            temperature: if work.greedy { 0.0 } else { 1.0 },
            ..SamplingParams::default()
        },
        stop_ids: Arc::clone(&no_stops),
        stop: None,
        seed: first_seed + i as u64,
        keep: false,
        top: 0,
        prompt_top: None,
    };
    work.new.iter().enumerate().map(make).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, slots, rest @ ..] = arguments.as_slice() else {
        return Err("usage: engine_work FOLDER SLOTS [DEVICE [DTYPE]]".into());
    };
    let place = Place::new(rest)?;
    let folder = std::path::Path::new(folder);
    let shape = ModelShape::load(folder)?;
    let weights = Published::new(
        Weights::load_as(&shape, folder, place.device, place.dtype)?,
        WeightVersion::default(),
    );
    let options = EngineOptions {
        slots: slots.parse()?,
        prefill_tokens: 4096,
        prefix_cache: 0,
        cache: None,
        swap: Swap::InPlace,
        deterministic: false,
        prepack: true,
    };
    let mut engine = Engine::new(&shape, weights, options)?;
    for (line, text) in std::io::stdin().lock().lines().enumerate() {
        let work: Work = serde_json::from_str(&text?)?;
        let (began_processor, began_clock) = (on_processor()?, Instant::now());
        for request in requests(&work, line as u64 * 100_000) {
            engine.submit(request)?;
        }
        let mut answers = Vec::new();
        while engine.pending() > 0 {
            answers.extend(engine.step()?);
        }
        place.wait();
        let seconds: Duration = if place.is_gpu() {
            began_clock.elapsed()
        } else {
            on_processor()? - began_processor
        };
        let tokens: usize = answers.iter().map(|done| done.output_ids.len()).sum();
        let mut figures = serde_json::json!({
            "seconds": seconds.as_secs_f64(),
            "tokens": tokens,
            "device_mib": place.peak_mib(),
        });
        if work.greedy {
            answers.sort_by_key(|done| u128::from_le_bytes(done.id.0));
            let ids: Vec<&[u32]> = answers.iter().map(|done| done.output_ids.as_slice()).collect();
            figures["ids"] = serde_json::json!(ids);
        }
        println!("{figures}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
