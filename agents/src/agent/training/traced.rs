//! A trained batch as its trace shows it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use broker::AgentName;
use broker::ids::{GroupId, WeightVersion};
use rollout::batch::{Batch, RoleStats};

use super::step_times::part;
use crate::agent::figures::BatchOutcome;
use crate::traces::TrainedStep;

/// The parts of a step before its batch is formed, in their order.
const BEFORE: [&str; 2] = ["checkpoint", "wait"];

/// Describes a batch that has just been trained. `times` are the parts of its step in seconds;
/// `spent` is the time since the batch was formed.
pub(super) fn trained_step(
    agent: &AgentName,
    version: WeightVersion,
    (batch, outcome): (&Batch, &BatchOutcome),
    times: &[(&'static str, f64)],
    spent: Duration,
) -> TrainedStep {
    let stats = &batch.stats;
    let reward = |(role, found): (&String, &RoleStats)| Some((role.clone(), found.reward.mean.get()?));
    let mut parts: Vec<(&str, Duration)> = times
        .iter()
        .map(|(name, seconds)| (part(name), duration(*seconds)))
        .collect();
    parts.sort_by_key(|(part, _)| BEFORE.iter().position(|before| before == part).unwrap_or(BEFORE.len()));
    let before = parts.iter().filter(|(part, _)| BEFORE.contains(part));
    TrainedStep {
        agent: agent.clone(),
        version,
        groups: stats.groups as u64,
        samples: stats.samples as u64,
        tokens: stats.tokens,
        loss: outcome.stats.loss,
        rewards: stats.by_role.iter().filter_map(reward).collect(),
        mean_staleness: stats.staleness.mean.get(),
        max_staleness: stats.staleness.max,
        conversations: conversations(batch),
        took: before.map(|(_, took)| *took).sum::<Duration>() + spent,
        parts,
        ended_at: SystemTime::now(),
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns the conversations of the batch's groups. Groups that were discarded for it are left out.
fn conversations(batch: &Batch) -> Vec<(GroupId, u16)> {
    let groups: BTreeSet<GroupId> = batch.groups.iter().copied().collect();
    let verdicts = batch.verdicts.iter().filter(|verdict| groups.contains(&verdict.group));
    let found: BTreeSet<(GroupId, u16)> = verdicts.map(|verdict| (verdict.group, verdict.member)).collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use broker::protocol::train::LossStats;
    use rollout::batch::{BatchStats, BatchVerdict, Discard, Mean};

    use super::*;

    fn verdict(group: u8, member: u16, role: &str, outcome: Result<(), Discard>) -> BatchVerdict {
        BatchVerdict {
            group: GroupId([group; 16]),
            member,
            role: role.into(),
            seat: 0,
            outcome,
        }
    }

    fn batch() -> Batch {
        let role = |reward: Option<f64>| {
            let mut found = RoleStats::default();
            if let Some(reward) = reward {
                found.reward.mean = Mean { sum: reward, count: 1 };
            }
            found
        };
        Batch {
            minibatches: Vec::new(),
            answers: Vec::new(),
            roles: Vec::new(),
            groups: vec![GroupId([2; 16]), GroupId([1; 16])],
            verdicts: vec![
                verdict(2, 1, "speaker", Ok(())),
                verdict(2, 1, "listener", Ok(())),
                verdict(2, 0, "speaker", Err(Discard::Stale)),
                verdict(1, 0, "speaker", Ok(())),
                verdict(9, 0, "speaker", Err(Discard::ZeroAdvantage)),
            ],
            stats: BatchStats {
                groups: 2,
                samples: 5,
                tokens: 9,
                by_role: [("speaker".into(), role(Some(0.5))), ("listener".into(), role(None))].into(),
                ..BatchStats::default()
            },
        }
    }

    fn trained(times: &[(&'static str, f64)], spent: Duration) -> TrainedStep {
        let outcome = BatchOutcome {
            stats: LossStats {
                loss: 0.25,
                ..LossStats::default()
            },
            ..BatchOutcome::default()
        };
        let version = WeightVersion { lineage: 1, step: 4 };
        trained_step(
            &AgentName::new("a").unwrap(),
            version,
            (&batch(), &outcome),
            times,
            spent,
        )
    }

    #[test]
    fn a_batch_names_each_conversation_of_its_groups_once() {
        let step = trained(&[], Duration::ZERO);
        let (first, second) = (GroupId([1; 16]), GroupId([2; 16]));
        assert_eq!(step.conversations, [(first, 0), (second, 0), (second, 1)]);
        assert_eq!((step.groups, step.samples, step.tokens, step.loss), (2, 5, 9, 0.25));
        assert_eq!(step.rewards, [("speaker".to_owned(), 0.5)].into());
    }

    #[test]
    fn a_step_begins_with_the_checkpoint_before_it_and_the_wait() {
        let times = [
            ("time/wait_s", 0.5),
            ("time/checkpoint_s", 0.25),
            ("time/ledger_s", 1.0),
            ("time/publish_s", 2.0),
        ];
        let step = trained(&times, Duration::from_secs(4));
        let ms = Duration::from_millis;
        let expected = [
            ("checkpoint", ms(250)),
            ("wait", ms(500)),
            ("ledger", ms(1000)),
            ("publish", ms(2000)),
        ];
        assert_eq!(step.parts, expected);
        assert_eq!(step.took, ms(4750));
    }
}
