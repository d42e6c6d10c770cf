//! Draws tokens where the probabilities are, so that three numbers a token cross to the host
//! instead of the whole vocabulary (608 KB a row at 151,936 words).
//!
//! The rule is that of [`sampling::pick`] without truncation: the first place where the running
//! sum in f64 exceeds `uniform x total`. Sums on a device add in another order, so a uniform number
//! at the edge of a token's share may take its neighbour.

use tch::{Kind, Tensor};

use super::choose::Draw;
use crate::model::Result;
use crate::sampling::{self, Choice};

/// Returns true if the device can draw: nothing is truncated and no list of likely tokens is asked
/// for.
pub(super) fn is_simple(draw: &Draw) -> bool {
    draw.top == 0 && (draw.params.temperature == 0.0 || !draw.params.truncates())
}

/// Draws one token for each place, a row of `probs` (`[rows, vocab]` in f32). `None` stands for a
/// row that is no distribution.
pub(super) fn draw(probs: &Tensor, draws: &[&Draw], places: &[i64]) -> Result<Vec<Option<Choice>>> {
    let device = probs.device();
    let index = Tensor::f_from_slice(places)?.f_to_device(device)?;
    let is_greedy = |draw: &&Draw| draw.params.temperature == 0.0;
    // A negative number marks a greedy draw.
    let uniform = |draw: &&Draw| match is_greedy(draw) {
        true => -1.0,
        false => sampling::uniform(draw.seed, draw.position),
    };
    let uniforms: Vec<f64> = draws.iter().map(uniform).collect();
    let uniforms = Tensor::f_from_slice(&uniforms)?.f_to_device(device)?.f_unsqueeze(1)?;
    let sums = probs.f_cumsum(-1, Kind::Double)?;
    let in_order = places.len() as i64 == probs.size()[0] && places.iter().enumerate().all(|(i, p)| i as i64 == *p);
    let (probs, sums) = if in_order {
        (probs.shallow_clone(), sums)
    } else {
        (probs.f_index_select(0, &index)?, sums.f_index_select(0, &index)?)
    };
    let totals = sums.f_narrow(1, sums.size()[1] - 1, 1)?.f_contiguous()?;
    let mut ids = inverted(&sums, &totals, &uniforms)?;
    if draws.iter().any(is_greedy) {
        let (_, likeliest) = probs.f_max_dim(-1, true)?;
        ids = likeliest.f_where_self(&uniforms.f_lt(0.0)?, &ids)?;
    }
    let logprobs = probs.f_gather(1, &ids, false)?.f_log()?;
    let found = Tensor::f_cat(
        &[ids.f_to_kind(Kind::Double)?, logprobs.f_to_kind(Kind::Double)?, totals],
        1,
    )?;
    let mut values = vec![0f64; draws.len() * 3];
    found.f_contiguous()?.f_copy_data(&mut values, draws.len() * 3)?;
    Ok(values
        .chunks_exact(3)
        .map(|row| choice(row[0], row[1], row[2]))
        .collect())
}

/// The first place of each row where the running sum exceeds its uniform number's part of the
/// total.
fn inverted(sums: &Tensor, totals: &Tensor, uniforms: &Tensor) -> Result<Tensor> {
    // Below the total even when the product rounds up to it.
    let below = totals.f_mul_scalar(1.0 - f64::EPSILON)?;
    let targets = totals.f_mul(uniforms)?.f_minimum(&below)?;
    let ids = targets.f_searchsorted(sums, false, true, "right", None::<Tensor>)?;
    Ok(ids.f_clamp(0, sums.size()[1] - 1)?)
}

fn choice(id: f64, logprob: f64, total: f64) -> Option<Choice> {
    (total > 0.5 && total < 2.0 && logprob.is_finite()).then_some(Choice {
        id: id as u32,
        logprob: logprob as f32,
        log_kept: 0.0,
    })
}
