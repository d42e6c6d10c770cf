//! Determines the meaning of a server's log-probs from the numbers themselves.
//!
//! One token is requested with the same prompt at temperature 1 and at 1/2, each time with the most
//! likely tokens. If two of those differ by d at temperature 1, they differ at temperature 1/2 by
//! 2d for the distribution sampled from, and by d for the raw logits.

use std::sync::Arc;

use broker::protocol::turn::{LogProbs, Sampling};

use super::server::{Server, ServerCall, another_model};
use super::trouble::Trouble;

/// The meaning of log-probs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// log-softmax(logits / temperature): the distribution sampled from, as our own engine reports
    /// it.
    Tempered,
    /// log-softmax(logits), at every temperature.
    Raw,
    /// No position distinguishes the two: the likely tokens are equally likely.
    Unknown,
}

impl Meaning {
    /// Returns the distribution of the log-probs of an answer with this sampling. The effect of
    /// truncation is not probed. According to their documentation, SGLang reports the distribution
    /// before truncation, and vLLM before or after it, depending on its start options.
    pub(super) fn of(self, sampling: &Sampling) -> LogProbs {
        let temperature = sampling.temperature;
        if sampling.truncates() || temperature == 0.0 {
            return match self {
                Self::Raw => LogProbs::Raw,
                Self::Tempered | Self::Unknown => LogProbs::Unknown,
            };
        }
        match self {
            // Equal at temperature 1.
            _ if temperature == 1.0 => LogProbs::Sampled,
            Self::Tempered => LogProbs::Sampled,
            Self::Raw => LogProbs::Raw,
            Self::Unknown => LogProbs::Unknown,
        }
    }
}

/// Number of tokens that are compared.
const TOP: u32 = 5;
/// A smaller gap is lost in the rounding of bf16.
const LEAST_GAP: f32 = 0.2;
/// The allowed distance of the ratio of two gaps from 1 or 2.
const SLACK: f32 = 0.3;

/// Probes several prompts until one decides.
///
/// # Errors
/// The server does not answer as documented, its numbers are not log-probs, or it makes tokens
/// outside the vocabulary. The last is an error before weights are sent: vLLM ends when it reads
/// those of another model.
pub(super) async fn probe(
    server: &dyn Server,
    prompts: &[Vec<u32>],
    stop_ids: &Arc<[u32]>,
    vocab: usize,
) -> Result<Meaning, Trouble> {
    for (place, prompt) in prompts.iter().enumerate() {
        let mut top = Vec::new();
        for temperature in [1.0, 0.5] {
            let reply = server.generate(&ask(place, prompt, temperature, stop_ids)).await?;
            if let Some(id) = reply.unknown_id(vocab) {
                return Err(Trouble::Unfit(another_model(id, vocab)));
            }
            let none = || Trouble::Malformed("the most likely tokens were requested, but it reports none".into());
            top.push(reply.top.into_iter().next().ok_or_else(none)?);
        }
        let meaning = judge(&top[0], &top[1]).map_err(Trouble::Malformed)?;
        if meaning != Meaning::Unknown {
            return Ok(meaning);
        }
    }
    Ok(Meaning::Unknown)
}

fn ask(place: usize, prompt: &[u32], temperature: f32, stop_ids: &Arc<[u32]>) -> ServerCall {
    ServerCall {
        id: format!("dyad-probe-{}", uuid::Uuid::new_v4().simple()),
        prompt: prompt.to_vec(),
        sampling: Arc::new(Sampling {
            temperature,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: 1,
            max_context: None,
            stop: Vec::new(),
        }),
        max_new_tokens: 1,
        seed: place as u64,
        stop_ids: stop_ids.clone(),
        adapter: None,
        top: TOP,
    }
}

/// Returns the meaning from two lists of (token, log-prob) at one position, at temperature 1 and
/// 1/2.
fn judge(one: &[(u32, f32)], half: &[(u32, f32)]) -> Result<Meaning, String> {
    for list in [one, half] {
        let sum: f32 = list.iter().map(|(_, logprob)| logprob.exp()).sum();
        if list.iter().any(|(_, logprob)| *logprob > 1e-3) || sum > 1.05 {
            return Err(format!(
                "its numbers are not log-probs: the likely tokens' probabilities sum to {sum}"
            ));
        }
    }
    let other = |id: u32| half.iter().find(|(known, _)| *known == id).map(|(_, logprob)| *logprob);
    let common: Vec<(f32, f32)> = one.iter().filter_map(|(id, a)| Some((*a, other(*id)?))).collect();
    let by_first = |a: &&(f32, f32), b: &&(f32, f32)| a.0.total_cmp(&b.0);
    let (Some(most), Some(least)) = (common.iter().max_by(by_first), common.iter().min_by(by_first)) else {
        return Ok(Meaning::Unknown);
    };
    let (gap, gap_at_half) = (most.0 - least.0, most.1 - least.1);
    if gap < LEAST_GAP {
        return Ok(Meaning::Unknown);
    }
    let ratio = gap_at_half / gap;
    if (ratio - 2.0).abs() < SLACK {
        Ok(Meaning::Tempered)
    } else if (ratio - 1.0).abs() < SLACK {
        Ok(Meaning::Raw)
    } else {
        Err(format!(
            "its log-probs are neither of the logits nor of the tempered logits: at half the temperature two of them differ by {ratio} \
             times as much, but 1 or 2 was expected"
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the most likely tokens of a distribution, and their log-probs.
    fn top(logits: &[f32], temperature: f32) -> Vec<(u32, f32)> {
        let sum: f32 = logits.iter().map(|x| (x / temperature).exp()).sum();
        let mut list: Vec<(u32, f32)> = logits
            .iter()
            .enumerate()
            .map(|(id, x)| (id as u32, x / temperature - sum.ln()))
            .collect();
        list.sort_by(|a, b| b.1.total_cmp(&a.1));
        list.truncate(TOP as usize);
        list
    }

    proptest! {
        #[test]
        fn a_meaning_is_found_or_unknown_and_never_confused(logits in prop::collection::vec(-4f32..4.0, 8..40)) {
            let (one, half) = (top(&logits, 1.0), top(&logits, 0.5));
            let apart = one[0].1 - one[4].1 >= LEAST_GAP;
            let expected = |meaning| if apart { meaning } else { Meaning::Unknown };
            prop_assert_eq!(judge(&one, &half), Ok(expected(Meaning::Tempered)));
            prop_assert_eq!(judge(&one, &one), Ok(expected(Meaning::Raw)));
            // Rounding to bf16 does not change the result.
            let coarse = |list: &[(u32, f32)]| -> Vec<(u32, f32)> {
                list.iter().map(|(id, x)| (*id, f32::from_bits(x.to_bits() & 0xffff_0000).min(0.0))).collect()
            };
            if one[0].1 - one[4].1 > 1.0 {
                prop_assert_eq!(judge(&coarse(&one), &coarse(&half)), Ok(Meaning::Tempered));
            }
        }
    }

    #[test]
    fn an_answers_log_probs_follow_from_meaning_and_sampling() {
        let at = |meaning: Meaning, temperature, top_p| {
            let stop_ids: Arc<[u32]> = [].into();
            let sampling = ask(0, &[1], temperature, &stop_ids).sampling;
            meaning.of(&Sampling {
                top_p,
                ..(*sampling).clone()
            })
        };
        for (meaning, one, half, cut, greedy) in [
            (
                Meaning::Tempered,
                LogProbs::Sampled,
                LogProbs::Sampled,
                LogProbs::Unknown,
                LogProbs::Unknown,
            ),
            (
                Meaning::Raw,
                LogProbs::Sampled,
                LogProbs::Raw,
                LogProbs::Raw,
                LogProbs::Raw,
            ),
            (
                Meaning::Unknown,
                LogProbs::Sampled,
                LogProbs::Unknown,
                LogProbs::Unknown,
                LogProbs::Unknown,
            ),
        ] {
            assert_eq!((at(meaning, 1.0, 1.0), at(meaning, 0.5, 1.0)), (one, half));
            assert_eq!((at(meaning, 0.5, 0.9), at(meaning, 0.0, 1.0)), (cut, greedy));
        }
    }

    #[test]
    fn numbers_that_are_not_logprobs_are_rejected() {
        let logits = [(1, 3.5), (2, 1.0)];
        assert!(judge(&logits, &logits).unwrap_err().contains("not log-probs"));
        let sure = [(1, 0.0), (2, 0.0)];
        assert!(judge(&sure, &sure).is_err(), "two tokens cannot both be certain");
        let odd = ([(1, -0.5), (2, -1.5)], [(1, -0.1), (2, -4.0)]);
        assert!(judge(&odd.0, &odd.1).unwrap_err().contains("neither"));
        assert_eq!(judge(&[(1, -1.0)], &[(2, -1.0)]), Ok(Meaning::Unknown));
    }
}
