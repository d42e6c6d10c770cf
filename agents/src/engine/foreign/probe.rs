//! What a server's log-probs mean, found out from the numbers themselves.
//!
//! One token is asked for with the same prompt at temperature 1 and at 1/2, each time with the most likely tokens beside it. Between
//! two of those the log-probs differ by d: of the distribution that is sampled from, by 2d at temperature 1/2; of the raw logits, by d
//! as before.

use std::sync::Arc;

use broker::protocol::turn::{LogProbs, Sampling};

use super::server::{Ask, Server};
use super::trouble::Trouble;

/// What log-probs are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// log-softmax(logits / temperature): what is sampled from, as the engine of our own says it.
    Tempered,
    /// log-softmax(logits), whatever the temperature.
    Raw,
    /// Of the places that were looked at none tells the two apart: the likely tokens are all alike.
    Unknown,
}

impl Meaning {
    /// Of what the log-probs are of an answer that was sampled so. What a server makes of truncation is not tried: by the servers'
    /// documentation SGLang tells of the distribution before, vLLM of that before or behind, by how it was started.
    pub(super) fn of(self, sampling: &Sampling) -> LogProbs {
        let temperature = sampling.temperature;
        if sampling.truncates() || temperature == 0.0 {
            return match self {
                Self::Raw => LogProbs::Raw,
                Self::Tempered | Self::Unknown => LogProbs::Unknown,
            };
        }
        match self {
            // All the same.
            _ if temperature == 1.0 => LogProbs::Sampled,
            Self::Tempered => LogProbs::Sampled,
            Self::Raw => LogProbs::Raw,
            Self::Unknown => LogProbs::Unknown,
        }
    }
}

/// Tokens that are compared.
const TOP: u32 = 5;
/// Less than this is lost in the rounding of bf16.
const LEAST_GAP: f32 = 0.2;
/// How far the ratio of two gaps may be from 1 or from 2.
const SLACK: f32 = 0.3;

/// Asks at several places until one tells.
///
/// # Errors
/// The server does not answer as documented, or its numbers are no log-probs.
pub(super) async fn probe(
    server: &dyn Server,
    prompts: &[Vec<u32>],
    stop_ids: &Arc<[u32]>,
) -> Result<Meaning, Trouble> {
    for (place, prompt) in prompts.iter().enumerate() {
        let mut top = Vec::new();
        for temperature in [1.0, 0.5] {
            let reply = server.generate(&ask(place, prompt, temperature, stop_ids)).await?;
            let none = || Trouble::Malformed("the most likely tokens were asked for, and it tells none".into());
            top.push(reply.top.into_iter().next().ok_or_else(none)?);
        }
        let meaning = judge(&top[0], &top[1]).map_err(Trouble::Malformed)?;
        if meaning != Meaning::Unknown {
            return Ok(meaning);
        }
    }
    Ok(Meaning::Unknown)
}

fn ask(place: usize, prompt: &[u32], temperature: f32, stop_ids: &Arc<[u32]>) -> Ask {
    Ask {
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

/// What two lists of (token, log-prob) of the same place tell, at temperature 1 and at 1/2.
fn judge(one: &[(u32, f32)], half: &[(u32, f32)]) -> Result<Meaning, String> {
    for list in [one, half] {
        let sum: f32 = list.iter().map(|(_, logprob)| logprob.exp()).sum();
        if list.iter().any(|(_, logprob)| *logprob > 1e-3) || sum > 1.05 {
            return Err(format!(
                "its numbers are no log-probs: the likely tokens' probabilities have the sum {sum}"
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
             times as much, and 1 or 2 is expected"
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The most likely of a distribution, and their log-probs.
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
        fn either_meaning_is_told_or_unknown_and_never_the_other(logits in prop::collection::vec(-4f32..4.0, 8..40)) {
            let (one, half) = (top(&logits, 1.0), top(&logits, 0.5));
            let apart = one[0].1 - one[4].1 >= LEAST_GAP;
            let told = |meaning| if apart { meaning } else { Meaning::Unknown };
            prop_assert_eq!(judge(&one, &half), Ok(told(Meaning::Tempered)));
            prop_assert_eq!(judge(&one, &one), Ok(told(Meaning::Raw)));
            // Rounding to bf16 changes nothing of that.
            let coarse = |list: &[(u32, f32)]| -> Vec<(u32, f32)> {
                list.iter().map(|(id, x)| (*id, f32::from_bits(x.to_bits() & 0xffff_0000).min(0.0))).collect()
            };
            if one[0].1 - one[4].1 > 1.0 {
                prop_assert_eq!(judge(&coarse(&one), &coarse(&half)), Ok(Meaning::Tempered));
            }
        }
    }

    #[test]
    fn what_an_answers_log_probs_are_of_follows_from_the_meaning_and_its_sampling() {
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
    fn numbers_that_are_no_logprobs_are_refused() {
        let logits = [(1, 3.5), (2, 1.0)];
        assert!(judge(&logits, &logits).unwrap_err().contains("no log-probs"));
        let sure = [(1, 0.0), (2, 0.0)];
        assert!(judge(&sure, &sure).is_err(), "two tokens cannot both be certain");
        let odd = ([(1, -0.5), (2, -1.5)], [(1, -0.1), (2, -4.0)]);
        assert!(judge(&odd.0, &odd.1).unwrap_err().contains("neither"));
        assert_eq!(judge(&[(1, -1.0)], &[(2, -1.0)]), Ok(Meaning::Unknown));
    }
}
