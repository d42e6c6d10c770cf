//! A conversation as people read it, in a run's transcripts and in `dyad workflow test`.

use std::collections::BTreeMap;

use broker::ids::TurnKey;
use broker::protocol::turn::{Finish, Generation, VersionSpan};
use configs::{RoleName, WorkflowConfig};
use rollout::group::{MemberEnd, Rules};
use rollout::workflow::shaped::{CREDIT, OWN};
use rollout::workflow::{Outcome, Part, SeatReward, player};

use crate::coordinator::play::TurnTimes;
use crate::participant::Host;
use crate::run_folder::logs::{Credited, Earned, EarnedPart, Transcript, TranscriptTurn};

pub use super::compared::Comparisons;

/// Builds the transcripts of a group.
pub struct TranscriptBuilder<'a> {
    pub config: &'a WorkflowConfig,
    pub host: &'a Host,
    pub rules: &'a Rules,
    /// The comparisons of the group's seats.
    pub comparisons: &'a Comparisons,
    /// The times of the group's turns, if they were measured.
    pub times: Option<&'a TurnTimes>,
}

impl TranscriptBuilder<'_> {
    /// Adds the end of conversation `member` of its group to `transcript`, which names the
    /// conversation.
    #[must_use]
    pub fn build(&self, mut transcript: Transcript, member: u16, end: &MemberEnd) -> Transcript {
        transcript.status = status(self.rules, end);
        match end {
            MemberEnd::Failed { turns, .. } => {
                transcript.turns = turns.iter().map(|(key, made)| self.turn(key, made)).collect();
            }
            MemberEnd::Ended { outcome, turns } => {
                transcript.turns = turns.iter().map(|(key, made)| self.turn(key, made)).collect();
                transcript.metrics = outcome
                    .metrics
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), *value))
                    .collect();
                transcript.rewards = by_seat(outcome, |seat| self.parts(seat));
                transcript.earned = by_seat(outcome, |seat| self.earned(member, seat));
            }
        }
        transcript
    }

    fn turn(&self, key: &TurnKey, made: &Generation) -> TranscriptTurn {
        let player = player(self.config, self.host.workflow(), &key.role);
        TranscriptTurn {
            role: key.role.to_string(),
            seat: key.seat,
            turn: key.turn,
            agent: player.map_or_else(
                || self.host.kind(&key.role).to_owned(),
                |player| player.agent.to_string(),
            ),
            reads: Vec::new(),
            text: made.text.clone(),
            tokens: made.output_ids.len() as u32,
            version: made.newest().to_string(),
            versions: changed(&made.spans),
            finish: match made.finish {
                Finish::Stop => "stop",
                Finish::Length => "length",
            }
            .into(),
            logprobs_of: made.logprobs_of.name().into(),
            time: self.times.and_then(|times| times.of(key)),
            mean_logprob: made.mean_logprob(),
        }
    }

    /// The parts by name and their weighted sum as `total`.
    fn parts(&self, seat: &SeatReward) -> BTreeMap<String, f64> {
        let parts = seat.parts.iter();
        let mut parts: BTreeMap<String, f64> = parts
            .map(|part| (part.name.to_owned(), f64::from(part.value)))
            .collect();
        parts.insert("total".into(), self.rules.reward(seat));
        parts
    }

    /// The parts with their weights, credit and advantage.
    fn earned(&self, member: u16, seat: &SeatReward) -> Earned {
        let part = |part: &Part| EarnedPart {
            name: part.name.to_owned(),
            value: f64::from(part.value),
            weight: self.rules.weight(&seat.role, part.name),
        };
        let (compared, not_compared) = self.comparisons.seat(member, self.rules.roles.get(&seat.role), seat);
        Earned {
            parts: seat.parts.iter().map(part).collect(),
            total: self.rules.reward(seat),
            credit: self.credit(seat),
            compared,
            not_compared,
        }
    }

    /// The effect of the role's operator, if it has one that changes something.
    fn credit(&self, seat: &SeatReward) -> Option<Credited> {
        let operator = self.config.credit.get(&seat.role)?;
        let value = |name: &str| {
            let part = seat.parts.iter().find(|part| part.name == name);
            part.map(|part| f64::from(part.value))
        };
        Some(Credited {
            operator: operator.clone(),
            own: value(OWN)?,
            credit: value(CREDIT)?,
        })
    }
}

/// Returns the versions in `spans` in order without repeats; none if there is only one.
fn changed(spans: &[VersionSpan]) -> Vec<String> {
    let mut versions = Vec::new();
    for span in spans {
        let version = span.version.to_string();
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    if versions.len() > 1 { versions } else { Vec::new() }
}

/// Returns how a conversation ended: `completed`, `truncated`, or `failed: ` with the reason.
pub(crate) fn status(rules: &Rules, end: &MemberEnd) -> String {
    match end {
        MemberEnd::Failed { failure, .. } => format!("failed: {failure}"),
        MemberEnd::Ended { turns, .. } if turns.iter().any(|(key, made)| rules.is_cut(key, made)) => "truncated".into(),
        MemberEnd::Ended { .. } => "completed".into(),
    }
}

/// Values by role, or by `role/seat` if a role has several seats.
pub(crate) fn by_seat<T>(outcome: &Outcome, show: impl Fn(&SeatReward) -> T) -> BTreeMap<String, T> {
    let seats = |role: &RoleName| outcome.rewards.iter().filter(|seat| seat.role == *role).count();
    let label = |seat: &SeatReward| match seats(&seat.role) {
        0 | 1 => seat.role.to_string(),
        _ => format!("{}/{}", seat.role, seat.seat),
    };
    outcome.rewards.iter().map(|seat| (label(seat), show(seat))).collect()
}

#[cfg(test)]
mod tests {
    use broker::ids::WeightVersion;

    use super::*;

    #[test]
    fn versions_are_those_of_the_spans_if_they_differ() {
        let of = |steps: &[u64]| {
            let span = |&step: &u64| VersionSpan {
                version: WeightVersion { lineage: 1, step },
                start: 0,
                end: 1,
            };
            changed(&steps.iter().map(span).collect::<Vec<_>>())
        };
        assert_eq!(of(&[3, 4, 3, 5]), ["1.3", "1.4", "1.5"]);
        for same in [&[][..], &[3], &[3, 3]] {
            assert!(of(same).is_empty(), "{same:?}");
        }
    }
}
