//! Records what the loss makes of recorded tokens, before each optimizer step.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use broker::protocol::train::{ForwardWeights, Loss, Span, TrainBatch};
use rollout::batch::Answer;
use trainer::loss::joint::{Member, Reach, shares};
use trainer::loss::{Token, ratio};

use super::Training;
use crate::run_folder::logs::{TokenOutcome, TokenTraining, TurnTraining};

/// A trained token under the weights before the step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    logprob: f32,
    ratio: f32,
    advantage: f32,
    /// `None` if the loss bounds tokens by others of their micro-batch, which only the trainer
    /// knows.
    clipped: Option<bool>,
}

impl Training {
    /// Writes a record of each turn of `answers`, the recorded samples of `minibatch`. `update` is
    /// the number of the optimizer step within the batch, from 1.
    pub(super) async fn record_tokens(
        &mut self,
        (minibatch, update): (&TrainBatch, u32),
        answers: &[Answer],
        loss: &Loss,
    ) -> anyhow::Result<()> {
        let Some(records) = self.agent.records.clone().filter(|_| !answers.is_empty()) else {
            return Ok(());
        };
        // Answers by themselves suffice, unless their tokens are bounded together with others.
        let part = match Reach::of(loss) {
            Reach::Token | Reach::Answer => only(minibatch, &answers.iter().map(|answer| answer.number).collect()),
            Reach::Microbatch | Reach::Minibatch => minibatch.clone(),
        };
        let logprobs = self.logprobs(part.clone(), ForwardWeights::Trained).await?;
        ensure!(
            part.spans
                .iter()
                .map(|span| span.ids.len())
                .eq(logprobs.iter().map(Vec::len)),
            "the trainer's log-probs do not match the recorded tokens"
        );
        let mut seen = seen(loss, &part, &logprobs);
        let step = self.version.step + 1;
        for answer in answers {
            let mut of_answer = seen.remove(&answer.number).unwrap_or_default().into_iter();
            for record in lines(answer, &mut of_answer, (step, update)) {
                records.write_training(&record);
            }
        }
        Ok(())
    }
}

/// Returns the spans of these answers, with the context before them.
fn only(batch: &TrainBatch, answers: &BTreeSet<u32>) -> TrainBatch {
    let mut kept: BTreeMap<u32, u32> = BTreeMap::new();
    for (at, span) in (0..).zip(&batch.spans) {
        if is_trained(span) && answers.contains(&span.answer) {
            let mut next = Some(at);
            while let Some(at) = next.filter(|at| kept.insert(*at, 0).is_none()) {
                next = batch.spans.get(at as usize).and_then(|span| span.parent);
            }
        }
    }
    for (place, number) in (0..).zip(kept.values_mut()) {
        *number = place;
    }
    let span = |at: &u32| {
        let span = batch.spans.get(*at as usize)?.clone();
        let parent = span.parent.and_then(|parent| kept.get(&parent).copied());
        Some(Span { parent, ..span })
    };
    TrainBatch {
        spans: kept.keys().filter_map(span).collect(),
        tokens: batch.tokens,
    }
}

fn is_trained(span: &Span) -> bool {
    span.mask.iter().any(|trained| *trained)
}

/// Returns the trained tokens of each answer, in their order.
fn seen(loss: &Loss, batch: &TrainBatch, logprobs: &[Vec<f32>]) -> BTreeMap<u32, Vec<Seen>> {
    let members = members(batch, logprobs);
    let clipped: Vec<Option<bool>> = match Reach::of(loss) {
        Reach::Microbatch => vec![None; members.len()],
        Reach::Token | Reach::Answer | Reach::Minibatch => {
            let (shares, _) = shares(loss, &members);
            shares.iter().map(|share| Some(share.clipped)).collect()
        }
    };
    let mut found: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for (member, clipped) in members.iter().zip(clipped) {
        found.entry(member.answer).or_default().push(Seen {
            logprob: member.token.logprob as f32,
            ratio: ratio(member.token.logprob, member.token.old) as f32,
            advantage: member.token.advantage as f32,
            clipped,
        });
    }
    found
}

/// Returns the trained tokens as the loss takes them. Whether a token is clipped depends neither on
/// its entropy nor on the reference.
fn members(batch: &TrainBatch, logprobs: &[Vec<f32>]) -> Vec<Member> {
    let mut members = Vec::new();
    for (place, (span, logprobs)) in batch.spans.iter().zip(logprobs).enumerate() {
        for offset in (0..span.ids.len()).filter(|at| span.mask[*at]) {
            let behaviour = f64::from(span.behaviour_lp[offset]);
            let logprob = f64::from(logprobs[offset]);
            let advantage = span.advantages.get(offset).unwrap_or(&span.advantage);
            members.push(Member {
                token: Token {
                    logprob,
                    old: span.old_lp.get(offset).map_or(behaviour, |old| f64::from(*old)),
                    behaviour,
                    reference: logprob,
                    advantage: f64::from(*advantage),
                    entropy: 0.0,
                },
                weight: f64::from(span.weight),
                answer: span.answer,
                span: place,
                offset,
            });
        }
    }
    members
}

/// Returns a record for each turn of an answer. `seen` are its trained tokens.
fn lines(answer: &Answer, seen: &mut impl Iterator<Item = Seen>, (step, update): (u64, u32)) -> Vec<TokenTraining> {
    let mut lines = Vec::new();
    for (place, stretch) in (0..).zip(&answer.stretches) {
        let tokens: Vec<Option<Seen>> = stretch
            .trained
            .iter()
            .map(|trained| trained.then(|| seen.next()).flatten())
            .collect();
        let finite = |value: f32| Some(value).filter(|value| value.is_finite());
        let values = |of: fn(&Seen) -> f32| tokens.iter().map(|seen| finite(of(seen.as_ref()?))).collect();
        lines.push(TokenTraining {
            conversation: format!("{}/{}", answer.group, answer.member),
            role: answer.role.clone(),
            seat: answer.seat,
            place,
            ids: stretch.ids.clone(),
            training: TurnTraining {
                step,
                update,
                logprobs: values(|seen| seen.logprob),
                ratios: values(|seen| seen.ratio),
                advantages: values(|seen| seen.advantage),
                outcomes: tokens.iter().map(outcome).collect(),
            },
        });
    }
    lines
}

fn outcome(seen: &Option<Seen>) -> TokenOutcome {
    match seen.map(|seen| seen.clipped) {
        None => TokenOutcome::Stale,
        Some(Some(true)) => TokenOutcome::Clipped,
        Some(Some(false)) => TokenOutcome::Trained,
        Some(None) => TokenOutcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::GroupId;
    use broker::protocol::train::Policy;
    use rollout::batch::Stretch;

    use super::*;

    fn span(parent: Option<u32>, answer: u32, mask: &[bool]) -> Span {
        Span {
            parent,
            ids: (0..mask.len() as u32).collect(),
            mask: mask.to_vec(),
            behaviour_lp: vec![-1.0; mask.len()],
            advantage: 0.5,
            answer,
            weight: 1.0,
            temperature: 1.0,
            ..Span::default()
        }
    }

    /// Two answers below one prompt, each a context and trained tokens.
    fn batch() -> TrainBatch {
        TrainBatch {
            spans: vec![
                span(None, 0, &[false, false]),
                span(Some(0), 0, &[false, true]),
                span(Some(0), 1, &[false, true, true]),
                span(Some(2), 1, &[false, true]),
            ],
            tokens: 4,
        }
    }

    #[test]
    fn part_of_a_batch_has_the_context_of_its_answers() {
        let part = only(&batch(), &[1].into());
        let parents: Vec<Option<u32>> = part.spans.iter().map(|span| span.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1)]);
        assert!(part.spans[1..].iter().all(|span| span.answer == 1));
        assert_eq!(only(&batch(), &[0, 1].into()), batch());
    }

    #[test]
    fn each_token_has_its_ratio_and_outcome() {
        let mut batch = batch();
        batch.spans[3].advantages = vec![0.0, -2.0];
        let clipping = Loss::Policy(Policy::clipped(0.2, 0.2));
        let logprobs: Vec<Vec<f32>> = vec![vec![0.0; 2], vec![0.0, -1.0], vec![0.0, -0.5, -1.1], vec![0.0, -1.5]];
        let mut seen = seen(&clipping, &batch, &logprobs);
        assert_eq!(seen[&0].len(), 1);
        let answer = Answer {
            number: 1,
            group: GroupId([7; 16]),
            member: 3,
            role: "solver".into(),
            seat: 0,
            stretches: vec![
                Stretch {
                    ids: vec![1, 9, 2],
                    trained: vec![true, false, true],
                },
                Stretch {
                    ids: vec![1],
                    trained: vec![true],
                },
            ],
        };
        let lines = lines(&answer, &mut seen.remove(&1).unwrap().into_iter(), (12, 2));
        let [first, second] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        use TokenOutcome::{Clipped, Stale, Trained};
        assert_eq!(first.conversation, format!("{}/3", GroupId([7; 16])));
        assert_eq!((first.place, second.place), (0, 1));
        let made = &first.training;
        assert_eq!((made.step, made.update), (12, 2));
        assert_eq!(made.outcomes, [Clipped, Stale, Trained]);
        assert_eq!(made.logprobs, [Some(-0.5), None, Some(-1.1)]);
        assert_eq!(made.advantages, [Some(0.5), None, Some(0.5)]);
        let ratio = made.ratios[0].unwrap();
        assert!((ratio - 0.5_f32.exp()).abs() < 1e-6, "{ratio}");
        // A ratio below the range is clipped where the advantage is negative.
        assert_eq!(second.training.outcomes, [Clipped]);
        assert_eq!(second.training.advantages, [Some(-2.0)]);
    }
}
