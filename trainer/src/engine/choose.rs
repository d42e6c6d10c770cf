//! Turns logits into tokens. libtorch computes probabilities. A GPU draws from its own; the host
//! draws on CPUs, and where tokens are truncated or listed.

use std::collections::{BTreeSet, HashMap};

use broker::ids::RequestId;
use broker::protocol::engine::TopLogprob;
use tch::{Kind, Tensor};

use super::draw;
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
    // The host is as fast on its own memory, and its draws have the same bits on every machine.
    let on_device = logits.device().is_cuda();
    chosen(logits, draws, |draw| on_device && draw::is_simple(draw))
}

/// Chooses tokens. If `on_device` returns true, the draw happens where the logits are.
fn chosen(logits: &Tensor, draws: &[Draw], on_device: impl Fn(&Draw) -> bool) -> Result<Choices> {
    let rows = logits.size2()?.0 as usize;
    // One row for each temperature: draws that share logits but not a temperature need separate
    // rows.
    let mut tempered: Vec<(usize, f32)> = Vec::with_capacity(rows);
    let mut index = HashMap::with_capacity(rows);
    let mut places = Vec::with_capacity(draws.len());
    for draw in draws {
        let divisor = draw.params.divisor();
        places.push(*index.entry((draw.row, divisor.to_bits())).or_insert_with(|| {
            tempered.push((draw.row, divisor));
            tempered.len() - 1
        }));
    }
    let probs = probabilities(logits, &tempered, rows)?;
    let (there, here): (Vec<usize>, Vec<usize>) = (0..draws.len()).partition(|&at| on_device(&draws[at]));
    let mut tokens = vec![None; draws.len()];
    if !there.is_empty() {
        let those: Vec<&Draw> = there.iter().map(|&at| &draws[at]).collect();
        let places: Vec<i64> = there.iter().map(|&at| places[at] as i64).collect();
        for (at, token) in there.into_iter().zip(draw::draw(&probs, &those, &places)?) {
            tokens[at] = token.map(|token| Chosen { token, top: Vec::new() });
        }
    }
    if !here.is_empty() {
        let rows = HostRows::copied(&probs, here.iter().map(|&at| places[at]))?;
        for at in here {
            tokens[at] = picked(rows.of(places[at]), &draws[at]);
        }
    }
    let failing = |(token, draw): (&Option<Chosen>, &Draw)| token.is_none().then_some(draw.request);
    let failing: Vec<RequestId> = tokens.iter().zip(draws).filter_map(failing).collect();
    Ok(if failing.is_empty() {
        Ok(tokens.into_iter().flatten().collect())
    } else {
        Err(failing)
    })
}

/// Picks on the host.
fn picked(probs: &[f32], draw: &Draw) -> Option<Chosen> {
    let token = sampling::pick(probs, &draw.params, draw.seed, draw.position)?;
    let top = match draw.top {
        0 => Vec::new(),
        count => sampling::top(probs, count.into()),
    };
    Some(Chosen { token, top })
}

/// Rows of probabilities in host memory.
struct HostRows {
    vocab: usize,
    values: Vec<f32>,
    /// The places of the rows, ascending.
    places: Vec<usize>,
}

impl HostRows {
    /// Copies the rows at `places` and no others.
    fn copied(probs: &Tensor, places: impl Iterator<Item = usize>) -> Result<Self> {
        let places: Vec<usize> = places.collect::<BTreeSet<_>>().into_iter().collect();
        let (rows, vocab) = probs.size2()?;
        let probs = if places.len() as i64 == rows {
            probs.shallow_clone()
        } else {
            let index: Vec<i64> = places.iter().map(|&place| place as i64).collect();
            probs.f_index_select(0, &Tensor::f_from_slice(&index)?.f_to_device(probs.device())?)?
        };
        let vocab = vocab as usize;
        let mut values = vec![0f32; places.len() * vocab];
        probs.f_copy_data(&mut values, places.len() * vocab)?;
        Ok(Self { vocab, values, places })
    }

    fn of(&self, place: usize) -> &[f32] {
        let at = self.places.partition_point(|&other| other < place);
        &self.values[at * self.vocab..(at + 1) * self.vocab]
    }
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

    /// Draws at random logits, on the host and as on a device.
    #[test]
    fn a_device_draws_the_tokens_of_the_host() {
        let logits = Tensor::from_slice(
            &(0..6 * 997)
                .map(|i| ((i * 7919 % 1000) as f32) / 150.0)
                .collect::<Vec<_>>(),
        );
        let logits = logits.view([6, 997]);
        let draws: Vec<Draw> = (0..600)
            .map(|i| Draw {
                top: 0,
                position: i as u32,
                ..draw(i % 6, [1.0, 0.7, 0.0, 1.5][i / 6 % 4], i as u64)
            })
            .collect();
        let here = chosen(&logits, &draws, |_| false).unwrap().unwrap();
        let there = chosen(&logits, &draws, |_| true).unwrap().unwrap();
        let alternating = |draw: &Draw| draw.position.is_multiple_of(2);
        let mixed = chosen(&logits, &draws, alternating).unwrap().unwrap();
        assert_eq!(mixed.len(), 600);
        let distinct: BTreeSet<u32> = here.iter().map(|one| one.token.id).collect();
        assert!(distinct.len() > 100, "{}", distinct.len());
        for (at, here) in here.iter().enumerate() {
            for other in [&there[at], &mixed[at]] {
                assert_eq!(other.token.id, here.token.id, "{:?}", draws[at]);
                assert!((other.token.logprob - here.token.logprob).abs() < 1e-6);
                assert_eq!(other.token.log_kept, 0.0);
            }
        }
    }

    /// Frequencies of the draws of a device equal the probabilities, and impossible tokens are
    /// never drawn.
    #[test]
    fn a_device_draws_each_token_as_often_as_it_is_likely() {
        let logits =
            Tensor::from_slice(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 2.0, 0.0, f32::NEG_INFINITY]).view([1, 6]);
        let draws: Vec<Draw> = (0..20_000)
            .map(|i| Draw {
                top: 0,
                ..draw(0, 1.0, i)
            })
            .collect();
        let found = chosen(&logits, &draws, |_| true).unwrap().unwrap();
        let share = |id: u32| found.iter().filter(|one| one.token.id == id).count() as f64 / 20_000.0;
        let total = 1f64.exp() + 2f64.exp() + 1.0;
        for (id, wanted) in [
            (0, 0.0),
            (1, 1f64.exp() / total),
            (2, 0.0),
            (3, 2f64.exp() / total),
            (4, 1.0 / total),
            (5, 0.0),
        ] {
            assert!((share(id) - wanted).abs() < 0.015, "{id}: {} and {wanted}", share(id));
        }
    }

    #[test]
    fn a_device_leaves_truncated_and_listed_draws_to_the_host() {
        let plain = Draw {
            top: 0,
            ..draw(0, 1.0, 1)
        };
        let with = |change: &dyn Fn(&mut SamplingParams)| {
            let mut other = plain;
            change(&mut other.params);
            draw::is_simple(&other)
        };
        assert!(with(&|_| {}) && with(&|params| params.temperature = 0.3));
        assert!(!with(&|params| params.top_k = 5) && !with(&|params| params.top_p = 0.9));
        assert!(!with(&|params| params.min_p = 0.1));
        // Greedy choices do not truncate.
        assert!(with(&|params| (params.temperature, params.top_k) = (0.0, 5)));
        assert!(!draw::is_simple(&draw(0, 1.0, 1)));
    }

    #[test]
    fn broken_logits_are_noticed() {
        for wrong in [f32::NAN, f32::INFINITY] {
            let logits = Tensor::from_slice(&[0.1f32, wrong, -1.0, 0.3]).view([1, 4]);
            for (temperature, on_device) in [(1.0, false), (0.0, false), (1.0, true), (0.0, true)] {
                let found = chosen(&logits, &[draw(0, temperature, 1)], |_| on_device).unwrap();
                assert_eq!(
                    found,
                    Err(vec![RequestId([0; 16])]),
                    "{wrong} {temperature} {on_device}"
                );
            }
        }
    }
}
