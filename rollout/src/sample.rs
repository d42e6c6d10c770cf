//! Turns the generations of one seat into training rows: each sampled token exactly once, never
//! re-tokenised.
//!
//! A row is one generation, or a chain of turns in which each prompt's ids extend the previous
//! prompt and output. A history that was cut (reasoning stripped) does not extend, so its next turn
//! begins a new row.

use broker::protocol::bundle::{Row, Segment};
use broker::protocol::turn::Generation;
use broker::protocol::validate::ROUNDING;

/// The reason why a generation cannot be trained on or used at all. An engine that returns such a
/// generation is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("its prompt has no ids, so its first token has no context")]
    NoPrompt,
    #[error("its prompt begins with {kept} held ids, and its seat holds {held}")]
    Kept { kept: usize, held: usize },
    #[error("it sampled no token")]
    NoOutput,
    #[error("it has {ids} output ids and {logprobs} log-probs: there must be one for each")]
    LogprobCount { ids: usize, logprobs: usize },
    #[error("the log-prob of output token {0} is not a finite number of at most 0")]
    Logprob(usize),
    #[error("its version spans do not cover its {0} output ids in order and without gaps")]
    Spans(usize),
    #[error("its temperature is not a finite number of at least 0")]
    Temperature,
}

/// Checks that a generation is consistent with its request, which held `held` ids. Call it before
/// the generation is committed.
pub fn check(generation: &Generation, held: usize) -> Result<(), Malformed> {
    let Generation {
        kept,
        prompt_ids,
        output_ids,
        logprobs,
        temperature,
        ..
    } = generation;
    let kept = *kept as usize;
    if kept > held {
        return Err(Malformed::Kept { kept, held });
    }
    if kept == 0 && prompt_ids.is_empty() {
        return Err(Malformed::NoPrompt);
    }
    if output_ids.is_empty() {
        return Err(Malformed::NoOutput);
    }
    if output_ids.len() != logprobs.len() {
        return Err(Malformed::LogprobCount {
            ids: output_ids.len(),
            logprobs: logprobs.len(),
        });
    }
    let broken = |lp: &f32| !lp.is_finite() || *lp > ROUNDING;
    if let Some(at) = logprobs.iter().position(broken) {
        return Err(Malformed::Logprob(at));
    }
    if !spans_cover(generation) {
        return Err(Malformed::Spans(output_ids.len()));
    }
    if !temperature.is_finite() || *temperature < 0.0 {
        return Err(Malformed::Temperature);
    }
    Ok(())
}

fn spans_cover(generation: &Generation) -> bool {
    let end = generation
        .spans
        .iter()
        .try_fold(0, |at, span| (span.start == at && span.end > at).then_some(span.end));
    end.is_some_and(|end| end as usize == generation.output_ids.len())
}

/// Returns the rows of one seat's generations, given in the order of its turns. Every generation
/// must have passed [`check`] and be complete ([`Generation::complete`]).
#[must_use]
pub fn rows<'a>(turns: impl IntoIterator<Item = &'a Generation>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for turn in turns {
        match rows.last_mut() {
            Some(row) if turn.prompt_ids.starts_with(&row.ids) => {
                row.ids.extend_from_slice(&turn.prompt_ids[row.ids.len()..]);
                append(row, turn);
            }
            _ => {
                let mut row = Row {
                    ids: turn.prompt_ids.clone(),
                    segments: Vec::new(),
                    logprobs: Vec::new(),
                };
                append(&mut row, turn);
                rows.push(row);
            }
        }
    }
    rows
}

/// Adds the output of `turn` to a row that ends with its prompt.
fn append(row: &mut Row, turn: &Generation) {
    row.segments.push(Segment {
        start: row.ids.len() as u32,
        len: turn.output_ids.len() as u32,
        temperature: turn.temperature,
        logprobs_of: turn.logprobs_of,
        spans: turn.spans.clone(),
        oldest_kv: turn.oldest_kv,
    });
    row.ids.extend_from_slice(&turn.output_ids);
    row.logprobs.extend_from_slice(&turn.logprobs);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use broker::ids::WeightVersion;
    use broker::protocol::turn::{Finish, LogProbs, VersionSpan};
    use proptest::prelude::*;

    pub(crate) fn version(step: u64) -> WeightVersion {
        WeightVersion { lineage: 1, step }
    }

    /// A generation with log-probs that name its tokens: `-id / 1000`.
    pub(crate) fn generation(prompt: &[u32], output: &[u32]) -> Generation {
        Generation {
            kept: 0,
            prompt_ids: prompt.to_vec(),
            output_ids: output.to_vec(),
            logprobs: output.iter().map(|id| -(*id as f32) / 1000.0).collect(),
            logprobs_of: LogProbs::Sampled,
            spans: vec![VersionSpan {
                version: version(0),
                start: 0,
                end: output.len() as u32,
            }],
            oldest_kv: version(0),
            temperature: 1.0,
            finish: Finish::Stop,
            text: format!("{output:?}"),
        }
    }

    /// A token: its context, itself and the bits of its log-prob.
    type Token = (Vec<u32>, u32, u32);

    /// Every token that turns sampled, sorted.
    pub(crate) fn sampled(turns: &[Generation]) -> Vec<Token> {
        let mut sampled = Vec::new();
        for turn in turns {
            let mut context = turn.prompt_ids.clone();
            for (id, lp) in turn.output_ids.iter().zip(&turn.logprobs) {
                sampled.push((context.clone(), *id, lp.to_bits()));
                context.push(*id);
            }
        }
        sampled.sort();
        sampled
    }

    /// Every token that rows are trained on, with repeats, sorted.
    pub(crate) fn trained(rows: &[Row]) -> Vec<Token> {
        let mut trained = Vec::new();
        for row in rows {
            let mut logprobs = row.logprobs.iter();
            for segment in &row.segments {
                for at in segment.start..segment.start + segment.len {
                    let context = row.ids[..at as usize].to_vec();
                    trained.push((context, row.ids[at as usize], logprobs.next().unwrap().to_bits()));
                }
            }
            assert!(logprobs.next().is_none());
        }
        trained.sort();
        trained
    }

    #[test]
    fn a_conversation_that_extends_is_one_row() {
        let turns = [generation(&[1, 2], &[3, 4]), generation(&[1, 2, 3, 4, 9, 9], &[5])];
        let rows = rows(&turns);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].ids, [1, 2, 3, 4, 9, 9, 5]);
        let places: Vec<_> = rows[0].segments.iter().map(|s| (s.start, s.len)).collect();
        assert_eq!(places, [(2, 2), (6, 1)]);
        assert_eq!(rows[0].logprobs, [-0.003, -0.004, -0.005]);
    }

    #[test]
    fn a_cut_history_begins_a_new_row() {
        // The second prompt leaves out token 3 (reasoning); the third extends the second.
        let turns = [
            generation(&[1], &[3, 4]),
            generation(&[1, 4, 9], &[5]),
            generation(&[1, 4, 9, 5, 8], &[6]),
        ];
        let rows = rows(&turns);
        assert_eq!(
            rows.iter().map(|r| r.ids.clone()).collect::<Vec<_>>(),
            [vec![1, 3, 4], vec![1, 4, 9, 5, 8, 6]]
        );
        assert_eq!(rows.iter().map(Row::trained_tokens).sum::<usize>(), 4);
    }

    #[test]
    fn broken_generations_are_refused() {
        let good = generation(&[1], &[2, 3]);
        assert_eq!(check(&good, 0), Ok(()));
        let broken = |change: fn(&mut Generation)| {
            let mut generation = good.clone();
            change(&mut generation);
            check(&generation, 3).unwrap_err()
        };
        assert_eq!(broken(|g| g.prompt_ids.clear()), Malformed::NoPrompt);
        assert_eq!(broken(|g| g.kept = 4), Malformed::Kept { kept: 4, held: 3 });
        assert_eq!(broken(|g| g.output_ids.clear()), Malformed::NoOutput);
        assert_eq!(
            broken(|g| g.logprobs.truncate(1)),
            Malformed::LogprobCount { ids: 2, logprobs: 1 }
        );
        assert_eq!(broken(|g| g.logprobs[1] = f32::NAN), Malformed::Logprob(1));
        assert_eq!(broken(|g| g.logprobs[0] = 0.5), Malformed::Logprob(0));
        assert_eq!(broken(|g| g.spans[0].start = 1), Malformed::Spans(2));
        assert_eq!(broken(|g| g.spans[0].end = 1), Malformed::Spans(2));
        assert_eq!(broken(|g| g.spans[0].end = 3), Malformed::Spans(2));
        assert_eq!(broken(|g| g.spans.clear()), Malformed::Spans(2));
        assert_eq!(broken(|g| g.temperature = f32::INFINITY), Malformed::Temperature);
    }

    /// Turns of one seat: each keeps the history before it, or cuts it to a few ids.
    fn turns() -> impl Strategy<Value = Vec<Generation>> {
        let ids = |least| prop::collection::vec(0u32..4, least..5);
        prop::collection::vec((any::<bool>(), ids(1), ids(1)), 1..7).prop_map(|plan| {
            let mut history: Vec<u32> = Vec::new();
            let mut turns = Vec::new();
            for (cut, bridge, output) in plan {
                if cut {
                    history.truncate(history.len() / 2);
                }
                history.extend(bridge);
                turns.push(generation(&history, &output));
                history.extend(output);
            }
            turns
        })
    }

    proptest! {
        #[test]
        fn each_sampled_token_is_trained_once_in_its_own_context(turns in turns()) {
            prop_assert_eq!(trained(&rows(&turns)), sampled(&turns));
        }

        #[test]
        fn rows_are_as_few_as_chains(turns in turns()) {
            let breaks = turns.windows(2).filter(|pair| {
                let held = [&pair[0].prompt_ids[..], &pair[0].output_ids[..]].concat();
                !pair[1].prompt_ids.starts_with(&held)
            }).count();
            prop_assert_eq!(rows(&turns).len(), breaks + 1);
        }
    }
}
