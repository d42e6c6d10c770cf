//! A generation of a fake server of either kind.

use std::sync::atomic::{AtomicU64, Ordering};

use super::model::log_softmax;
use super::{FakeFault, Shared};
use crate::engine::foreign::server::CallEnd;

/// A request, parsed from either interface.
pub(super) struct Call {
    pub(super) prompt: Vec<u32>,
    pub(super) max_new_tokens: usize,
    pub(super) temperature: f32,
    pub(super) seed: Option<u64>,
    pub(super) stop_ids: Vec<u32>,
    pub(super) stop: Vec<String>,
    pub(super) adapter: Option<String>,
    pub(super) top: usize,
}

pub(super) struct FakeMade {
    pub(super) ids: Vec<u32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) top: Vec<Vec<(u32, f32)>>,
    pub(super) end: CallEnd,
    pub(super) label: String,
    pub(super) fault: Option<FakeFault>,
}

/// Counts a call while this lives, whatever happens to its connection.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

pub(super) async fn generate(shared: &Shared, call: &Call) -> FakeMade {
    shared.running.send_modify(|running| *running += 1);
    let _running = Running(shared);
    let (mut aborts, mut allowed) = (shared.aborts.subscribe(), shared.allowed.subscribe());
    let fault = shared.faults.lock().unwrap().pop_front();
    let mut made = FakeMade {
        ids: Vec::new(),
        logprobs: Vec::new(),
        top: Vec::new(),
        end: CallEnd::Length,
        label: String::new(),
        fault,
    };
    while made.ids.len() < call.max_new_tokens {
        let enough = made.ids.len();
        tokio::select! {
            biased;
            _ = aborts.changed() => {
                made.end = CallEnd::Aborted;
                break;
            }
            _ = allowed.wait_for(|allowed| *allowed > enough) => {}
        }
        let last = one(shared, call, &mut made);
        shared.made.send_modify(|made| *made += 1);
        if last {
            made.end = CallEnd::Stop;
            break;
        }
    }
    let mut held = shared.held.lock().unwrap();
    if shared.meddled.load(Ordering::Relaxed) {
        held.label = "foreign".into();
    }
    made.label.clone_from(&held.label);
    drop(held);
    made
}

/// Makes one token; returns true if it is the last.
fn one(shared: &Shared, call: &Call, made: &mut FakeMade) -> bool {
    let held = shared.held.lock().unwrap();
    let model = call.adapter.as_ref().map_or(&held.model, |name| &held.adapters[name]);
    let context: Vec<u32> = call.prompt.iter().chain(&made.ids).copied().collect();
    let logits = model.logits(&context);
    let tempered = log_softmax(&logits, if call.temperature == 0.0 { 1.0 } else { call.temperature });
    let reported = if shared.raw.load(Ordering::Relaxed) {
        log_softmax(&logits, 1.0)
    } else {
        tempered.clone()
    };
    let id = if call.temperature == 0.0 {
        (0..reported.len())
            .max_by(|a, b| reported[*a].total_cmp(&reported[*b]))
            .unwrap()
    } else {
        choose(&tempered, random(call.seed, made.ids.len()))
    };
    let mut order: Vec<u32> = (0..reported.len() as u32).collect();
    order.sort_by(|a, b| reported[*b as usize].total_cmp(&reported[*a as usize]));
    order.truncate(call.top);
    made.top
        .push(order.into_iter().map(|id| (id, reported[id as usize])).collect());
    made.ids.push(id as u32);
    made.logprobs.push(reported[id]);
    // Includes reasoning: a server does not know of it here.
    let text = shared.text.text(&made.ids);
    call.stop_ids.contains(&(id as u32))
        || model.shape.eos.contains(&(id as u32))
        || call.stop.iter().any(|stop| text.contains(stop.as_str()))
}

fn choose(logprobs: &[f32], at: f64) -> usize {
    let mut sum = 0.0;
    let place = logprobs.iter().position(|logprob| {
        sum += f64::from(*logprob).exp();
        sum > at
    });
    place.unwrap_or(logprobs.len() - 1)
}

/// Returns a number from 0 to 1: by seed and position, or a new one each time.
fn random(seed: Option<u64>, place: usize) -> f64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let seed = seed.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let mut x = seed.wrapping_add((place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
