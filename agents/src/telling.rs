//! What a conversation came to, as a person reads it: the same in a run's transcripts and in `dyad workflow test`.

use std::collections::BTreeMap;

use broker::ids::TurnKey;
use broker::protocol::turn::{Finish, Generation};
use configs::WorkflowConfig;
use rollout::group::{MemberEnd, Rules};
use rollout::workflow::{Outcome, SeatReward, player};

use crate::logs::{Transcript, TranscriptTurn};
use crate::participant::Host;

/// Knows who played and what it was worth.
pub struct Teller<'a> {
    pub config: &'a WorkflowConfig,
    pub host: &'a Host,
    pub rules: &'a Rules,
}

impl Teller<'_> {
    /// Adds how the conversation ended to `transcript`, which says whose it is.
    #[must_use]
    pub fn tell(&self, mut transcript: Transcript, end: &MemberEnd) -> Transcript {
        match end {
            MemberEnd::Failed { reason } => transcript.status = format!("failed: {reason}"),
            MemberEnd::Ended { outcome, turns } => {
                let cut = turns.iter().any(|(_, made)| made.finish == Finish::Length);
                transcript.status = if cut { "truncated" } else { "completed" }.into();
                transcript.turns = turns.iter().map(|(key, made)| self.turn(key, made)).collect();
                transcript.metrics = outcome
                    .metrics
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), *value))
                    .collect();
                transcript.rewards = self.rewards(outcome);
            }
        }
        transcript
    }

    fn turn(&self, key: &TurnKey, made: &Generation) -> TranscriptTurn {
        let player = player(self.config, self.host.workflow(), &key.role);
        let newest = made.spans.last().map_or(made.oldest_kv, |span| span.version);
        TranscriptTurn {
            role: key.role.to_string(),
            seat: key.seat,
            turn: key.turn,
            agent: player.map_or_else(
                || self.host.kind(&key.role).to_owned(),
                |player| player.agent.to_string(),
            ),
            text: made.text.clone(),
            tokens: made.output_ids.len() as u32,
            version: newest.to_string(),
            finish: match made.finish {
                Finish::Stop => "stop",
                Finish::Length => "length",
            }
            .into(),
            logprobs_of: made.logprobs_of.name().into(),
            mean_logprob: f64::from(made.logprobs.iter().sum::<f32>()) / made.logprobs.len().max(1) as f64,
        }
    }

    /// By role, or `role/seat` where a role has several seats: the parts by name and their weighted sum as `total`.
    fn rewards(&self, outcome: &Outcome) -> BTreeMap<String, BTreeMap<String, f64>> {
        let seats = |role| outcome.rewards.iter().filter(|seat| seat.role == role).count();
        let label = |seat: &SeatReward| match seats(seat.role.clone()) {
            0 | 1 => seat.role.to_string(),
            _ => format!("{}/{}", seat.role, seat.seat),
        };
        let parts = |seat: &SeatReward| {
            let mut parts: BTreeMap<String, f64> = seat
                .parts
                .iter()
                .map(|part| (part.name.to_owned(), f64::from(part.value)))
                .collect();
            parts.insert("total".into(), self.rules.reward(seat));
            parts
        };
        outcome.rewards.iter().map(|seat| (label(seat), parts(seat))).collect()
    }
}
