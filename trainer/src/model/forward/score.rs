//! Log-probs of given tokens, from the states that predict them. It computes a chunk of logits at a
//! time, as in training ([`crate::loss::head`]), so the logits of a long prompt are never all in
//! memory.

use broker::protocol::engine::TopLogprob;
use tch::Tensor;

use super::decoder::Decoder;
use super::fixed_rows::BLOCK;
use super::row_batch::to_device;
use crate::loss::head::chunk_elements;
use crate::model::error::Result;

/// Log-probs of given tokens.
#[derive(Debug, Default)]
pub(crate) struct Scored {
    /// One per token.
    pub(crate) logprobs: Vec<f32>,
    /// The most likely tokens in the place of each, most likely first, the lower id first among
    /// equals. Empty if none were asked for.
    pub(crate) top: Vec<Vec<TopLogprob>>,
}

impl Decoder {
    /// Returns the f32 log-softmax over the whole vocabulary of each of `targets`, and the `top`
    /// most likely tokens in its place. `states` are `[targets, hidden]`, before the final norm.
    /// With `fixed`, the bits of a row do not depend on the other rows.
    pub(crate) fn score(&self, states: &Tensor, targets: &[u32], top: usize, fixed: bool) -> Result<Scored> {
        let most = chunk_elements(self.device()) as usize / self.shape.vocab.max(1);
        let rows = if fixed { BLOCK } else { most.max(1) };
        let (mut scored, mut start) = (Scored::default(), 0);
        for targets in targets.chunks(rows) {
            let count = targets.len() as i64;
            let states = states.f_narrow(0, start, count)?;
            let logits = if fixed {
                self.fixed_logits(&states)?
            } else {
                self.next_logits(&states)?
            };
            scored.take(&logits.f_log_softmax(-1, tch::Kind::Float)?, targets, top)?;
            start += count;
        }
        Ok(scored)
    }
}

impl Scored {
    /// `logprobs` are `[targets, vocab]`.
    fn take(&mut self, logprobs: &Tensor, targets: &[u32], top: usize) -> Result<()> {
        let targets: Vec<i64> = targets.iter().map(|&id| i64::from(id)).collect();
        let index = to_device(&targets, logprobs.device())?.f_unsqueeze(1)?;
        let own = logprobs.f_gather(1, &index, false)?.f_squeeze_dim(1)?;
        self.logprobs.extend(Vec::<f32>::try_from(own.f_contiguous()?)?);
        if top > 0 {
            self.top.extend(likeliest(logprobs, top)?);
        }
        Ok(())
    }
}

/// The `count` most likely tokens of each row of `[rows, vocab]`, or all tokens of a smaller
/// vocabulary.
fn likeliest(logprobs: &Tensor, count: usize) -> Result<Vec<Vec<TopLogprob>>> {
    // One more than needed: if it equals the last needed one, ids decide, and the whole row is
    // examined.
    let most = (count as i64 + 1).min(logprobs.size2()?.1);
    let (values, ids) = logprobs.f_topk(most, -1, true, true)?;
    let values = Vec::<Vec<f32>>::try_from(values.f_contiguous()?)?;
    let ids = Vec::<Vec<i64>>::try_from(ids.f_contiguous()?)?;
    let mut places = Vec::with_capacity(values.len());
    for (row, (values, ids)) in values.iter().zip(&ids).enumerate() {
        let open = values
            .get(count)
            .is_some_and(|next| values.get(count - 1) == Some(next));
        places.push(if open {
            let all = Vec::<f32>::try_from(logprobs.f_get(row as i64)?.f_contiguous()?)?;
            ranked(all.into_iter().zip(0..), count)
        } else {
            ranked(values.iter().copied().zip(ids.iter().map(|&id| id as u32)), count)
        });
    }
    Ok(places)
}

/// The first `count`, most likely first, the lower id first among equals.
fn ranked(all: impl Iterator<Item = (f32, u32)>, count: usize) -> Vec<TopLogprob> {
    let mut all: Vec<(f32, u32)> = all.collect();
    all.sort_unstable_by(|(one, a), (other, b)| other.total_cmp(one).then(a.cmp(b)));
    all.truncate(count);
    let likely = |(logprob, id)| TopLogprob { id, logprob };
    all.into_iter().map(likely).collect()
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::{Init, Weights};

    fn ids(place: &[TopLogprob]) -> Vec<u32> {
        place.iter().map(|one| one.id).collect()
    }

    #[test]
    fn among_equals_the_lower_id_comes_first_even_when_cut() {
        let rows = Tensor::from_slice(&[-1f32, -3.0, -1.0, -2.0, -1.0, -3.0, -2.0, -2.0, -1.0, -2.0]).view([2, 5]);
        let of = |count| -> Vec<Vec<u32>> {
            likeliest(&rows, count)
                .unwrap()
                .iter()
                .map(|place| ids(place))
                .collect()
        };
        assert_eq!(of(1), [[0], [3]]);
        assert_eq!(of(2), [[0, 2], [3, 1]]);
        assert_eq!(of(4), [[0, 2, 4, 3], [3, 1, 2, 4]]);
        assert_eq!(of(9), [[0, 2, 4, 3, 1], [3, 1, 2, 4, 0]], "all there are");
    }

    /// More tokens than a block holds, so that several chunks are joined.
    #[test]
    fn scores_are_the_log_softmax_of_the_logits_in_both_ways() {
        let _guard = tch::no_grad_guard();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let shape = tiny();
        let weights = Weights::random(&shape, init, 3).unwrap();
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let count = 2 * BLOCK as i64 + 5;
        let states = Tensor::arange(count * shape.hidden as i64, (Kind::Float, Device::Cpu)).sin();
        let states = states.view([count, shape.hidden as i64]);
        let targets: Vec<u32> = (0..count as u32).map(|i| i * 7 % 40).collect();
        let all = decoder.next_logits(&states).unwrap().log_softmax(-1, Kind::Float);
        for fixed in [false, true] {
            let scored = decoder.score(&states, &targets, 3, fixed).unwrap();
            assert_eq!(
                (scored.logprobs.len(), scored.top.len()),
                (targets.len(), targets.len())
            );
            for (place, (target, logprob)) in targets.iter().zip(&scored.logprobs).enumerate() {
                let wanted = all.double_value(&[place as i64, i64::from(*target)]);
                assert!((f64::from(*logprob) - wanted).abs() < 1e-5, "{logprob} {wanted}");
                let top = &scored.top[place];
                assert!(top.len() == 3 && top.is_sorted_by(|a, b| a.logprob >= b.logprob));
                let most = all.get(place as i64).max().double_value(&[]);
                assert!((f64::from(top[0].logprob) - most).abs() < 1e-5);
                // Equal to the bit, so that a caller can find out whether a token was the most
                // likely one.
                let own = top.iter().find(|one| one.id == *target);
                assert!(own.is_none_or(|own| own.logprob.to_bits() == logprob.to_bits()));
            }
            let plain = decoder.score(&states, &targets, 0, fixed).unwrap();
            assert!(plain.top.is_empty() && plain.logprobs == scored.logprobs);
        }
    }
}
