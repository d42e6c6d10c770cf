//! What a finished group said, as lines a person can read.

use std::collections::BTreeMap;

use broker::ids::{GroupId, TurnKey};
use broker::protocol::turn::{Finish, Generation};
use configs::TranscriptPolicy;
use rollout::group::MemberEnd;
use rollout::workflow::{Outcome, SeatReward, player};

use super::actor::{Coordinator, Open, Purpose};
use crate::logs::{Transcript, TranscriptTurn};

impl Coordinator {
    /// Writes the transcripts of a group's conversations, as far as the configuration wants them.
    pub(super) fn tell(&self, group: GroupId, open: &Open, members: &[MemberEnd], step: u64) {
        let wanted = match (self.env.config.run.transcripts, open.purpose) {
            (_, Purpose::Eval | Purpose::Suite { greedy: true, .. }) | (TranscriptPolicy::All, _) => members.len(),
            (TranscriptPolicy::First, _) => 1,
            (TranscriptPolicy::None, _) => 0,
        };
        for (member, end) in members.iter().take(wanted).enumerate() {
            self.transcripts.write(&self.transcript(group, open, member, end, step));
        }
    }

    fn transcript(&self, group: GroupId, open: &Open, member: usize, end: &MemberEnd, step: u64) -> Transcript {
        let mut transcript = Transcript {
            conversation: format!("{group}/{member}"),
            task: open.task_id.clone(),
            prompt: serde_json::to_value(&open.task.prompt).unwrap_or_default(),
            label: open.task.label.clone(),
            step,
            eval: open.purpose != Purpose::Train,
            ..Transcript::default()
        };
        match end {
            MemberEnd::Failed { reason } => transcript.status = format!("failed: {reason}"),
            MemberEnd::Ended { outcome, turns } => {
                let cut = turns.iter().any(|(_, made)| made.finish == Finish::Length);
                transcript.status = if cut { "truncated" } else { "completed" }.into();
                transcript.turns = turns
                    .iter()
                    .map(|(key, made)| self.turn(open.purpose, key, made))
                    .collect();
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

    fn turn(&self, purpose: Purpose, key: &TurnKey, made: &Generation) -> TranscriptTurn {
        let player = player(&self.env.config.workflow, self.workflow_of(purpose), &key.role);
        let newest = made.spans.last().map_or(made.oldest_kv, |span| span.version);
        TranscriptTurn {
            role: key.role.to_string(),
            seat: key.seat,
            turn: key.turn,
            agent: player.map_or_else(
                || self.host_of(purpose).kind(&key.role).to_owned(),
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
            mean_logprob: f64::from(made.logprobs.iter().sum::<f32>()) / made.logprobs.len().max(1) as f64,
        }
    }

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
