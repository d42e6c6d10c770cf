//! Turns logits into tokens: libtorch computes probabilities, the host draws.

use std::collections::HashMap;

use broker::ids::RequestId;
use broker::protocol::engine::TopLogprob;
use tch::{Kind, Tensor};

use super::request::GenRequest;
use crate::model::Result;
use crate::sampling::{self, Choice, SamplingParams};

/// One token to draw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    request: RequestId,
    /// The row of the logits. Several draws may share a row: samples of one prompt.
    pub(super) row: usize,
    pub(super) params: SamplingParams,
    pub(super) seed: u64,
    pub(super) position: u32,
    /// The number of most likely tokens to report with the drawn one.
    pub(super) top: u8,
}

impl Draw {
    /// The draw of a request's first token.
    pub(super) fn first(row: usize, request: &GenRequest) -> Self {
        Self::next(row, request, 0)
    }

    /// The draw of the next token of a request that has made `position` tokens.
    pub(super) fn next(row: usize, request: &GenRequest, position: u32) -> Self {
        Self {
            request: request.id,
            row,
            params: request.sampling,
            seed: request.seed,
            position,
            top: request.top,
        }
    }
}

/// A drawn token, and the most likely tokens in its place if asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chosen {
    pub(super) token: Choice,
    pub(super) top: Vec<TopLogprob>,
}

/// Tokens in the order of their draws, or the requests with logits that are not finite.
pub(super) type Choices = std::result::Result<Vec<Chosen>, Vec<RequestId>>;

/// Chooses a token for each draw, from logits `[rows, vocab]` in f32.
pub(super) fn choose(logits: &Tensor, draws: &[Draw]) -> Result<Choices> {
    let (rows, vocab) = logits.size2()?;
    // One row for each temperature: draws that share logits but not a temperature need separate
    // rows.
    let mut tempered: Vec<(usize, f32)> = Vec::with_capacity(rows as usize);
    let mut index = HashMap::with_capacity(rows as usize);
    let mut places = Vec::with_capacity(draws.len());
    for draw in draws {
        let divisor = draw.params.divisor();
        places.push(*index.entry((draw.row, divisor.to_bits())).or_insert_with(|| {
            tempered.push((draw.row, divisor));
            tempered.len() - 1
        }));
    }
    let probs = probabilities(logits, &tempered, rows as usize)?;
    let vocab = vocab as usize;
    let mut values = vec![0f32; tempered.len() * vocab];
    probs.f_copy_data(&mut values, tempered.len() * vocab)?;
    let pick = |(draw, place): (&Draw, &usize)| {
        let probs = &values[place * vocab..(place + 1) * vocab];
        let token = sampling::pick(probs, &draw.params, draw.seed, draw.position)?;
        let top = match draw.top {
            0 => Vec::new(),
            count => sampling::top(probs, count.into()),
        };
        Some(Chosen { token, top })
    };
    let (mut chosen, mut failing) = (Vec::with_capacity(draws.len()), Vec::new());
    for one in draws.iter().zip(&places) {
        match pick(one) {
            Some(token) => chosen.push(token),
            None => failing.push(one.0.request),
        }
    }
    Ok(if failing.is_empty() { Ok(chosen) } else { Err(failing) })
}

/// Returns softmax(logits / divisor) of each (row, divisor), contiguous.
fn probabilities(logits: &Tensor, tempered: &[(usize, f32)], rows: usize) -> Result<Tensor> {
    let in_order = tempered.len() == rows && tempered.iter().enumerate().all(|(i, (row, _))| i == *row);
    let logits = if in_order {
        logits.shallow_clone()
    } else {
        let index: Vec<i64> = tempered.iter().map(|(row, _)| *row as i64).collect();
        logits.f_index_select(0, &Tensor::f_from_slice(&index)?.f_to_device(logits.device())?)?
    };
    let logits = if tempered.iter().all(|(_, divisor)| *divisor == 1.0) {
        logits
    } else {
        let divisors: Vec<f32> = tempered.iter().map(|(_, divisor)| *divisor).collect();
        logits.f_div(
            &Tensor::f_from_slice(&divisors)?
                .f_to_device(logits.device())?
                .f_unsqueeze(1)?,
        )?
    };
    Ok(logits.f_softmax(-1, Kind::Float)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(row: usize, temperature: f32, seed: u64) -> Draw {
        Draw {
            request: RequestId([row as u8; 16]),
            row,
            params: SamplingParams {
                temperature,
                ..SamplingParams::default()
            },
            seed,
            position: 0,
            top: 2,
        }
    }

    #[test]
    fn draws_that_share_a_row_equal_draws_of_their_own() {
        let logits = Tensor::from_slice(&[0.1f32, 2.0, -1.0, 0.3, 1.5, 1.4, -0.2, 0.0]).view([2, 4]);
        let draws = [
            draw(0, 1.0, 1),
            draw(1, 0.7, 2),
            draw(0, 0.7, 3),
            draw(0, 1.0, 4),
            draw(1, 0.0, 5),
            draw(0, 0.7, 6),
        ];
        let together = choose(&logits, &draws).unwrap().unwrap();
        for (draw, choice) in draws.iter().zip(&together) {
            let row = logits.narrow(0, draw.row as i64, 1);
            let alone = choose(&row, &[Draw { row: 0, ..*draw }]).unwrap().unwrap();
            assert_eq!(alone, std::slice::from_ref(choice));
            let wanted = (row / f64::from(draw.params.divisor())).log_softmax(-1, Kind::Float);
            for (id, logprob) in std::iter::once((choice.token.id, choice.token.logprob))
                .chain(choice.top.iter().map(|one| (one.id, one.logprob)))
            {
                let wanted = wanted.double_value(&[0, i64::from(id)]);
                assert!((f64::from(logprob) - wanted).abs() < 1e-6);
            }
        }
        assert_eq!(together[4].token.id, 0);
    }

    #[test]
    fn broken_logits_are_noticed() {
        let logits = Tensor::from_slice(&[0.1f32, f32::NAN, -1.0, 0.3]).view([1, 4]);
        assert_eq!(
            choose(&logits, &[draw(0, 1.0, 1)]).unwrap(),
            Err(vec![RequestId([0; 16])])
        );
        assert_eq!(
            choose(&logits, &[draw(0, 0.0, 1)]).unwrap(),
            Err(vec![RequestId([0; 16])])
        );
        let infinite = Tensor::from_slice(&[0.1f32, f32::INFINITY, -1.0, 0.3]).view([1, 4]);
        assert_eq!(
            choose(&infinite, &[draw(0, 1.0, 1)]).unwrap(),
            Err(vec![RequestId([0; 16])])
        );
    }
}
