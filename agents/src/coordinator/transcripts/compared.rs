//! Compares the seats of a group, under the configuration of the agents that train on them.
//!
//! Agents compute advantages when a batch is formed, from the bundle that the coordinator sends.
//! [`advantage::comparisons`] of the same bundle gives the same figures when the group closes. A
//! later change by a batch is named.

use std::collections::BTreeMap;

use broker::AgentName;
use broker::protocol::bundle::{BundleContent, Sample};
use configs::{AgentConfig, LossKind, TrainConfig};
use rollout::advantage::{self, Comparison};
use rollout::group::Assembled;
use rollout::workflow::SeatReward;

use crate::run_folder::logs::Compared;

/// The comparisons of a decided group's seats, for each agent that trains on them. Empty if no
/// agent trains on the group.
#[derive(Debug, Default)]
pub struct Comparisons(BTreeMap<AgentName, OfAgent>);

#[derive(Debug)]
enum OfAgent {
    /// By (member, role, seat).
    Compared(BTreeMap<(u16, String, u16), Compared>),
    /// The reason why no seat is compared.
    Not(String),
}

impl Comparisons {
    /// `assembled` has one bundle for each agent that plays and trains.
    #[must_use]
    pub fn of(agents: &BTreeMap<AgentName, AgentConfig>, assembled: &Assembled) -> Self {
        let bundles = assembled.bundles.iter();
        let known = bundles.filter_map(|(name, bundle)| Some((name, &agents.get(name)?.train, &bundle.content)));
        Self(
            known
                .map(|(name, train, content)| (name.clone(), OfAgent::new(train, content)))
                .collect(),
        )
    }

    /// Returns the comparison of this seat of conversation `member`, played by `agent`, or the
    /// reason why it has none. Both are `None` in a group that no agent trains on.
    #[must_use]
    pub fn seat(
        &self,
        member: u16,
        agent: Option<&AgentName>,
        seat: &SeatReward,
    ) -> (Option<Compared>, Option<String>) {
        if self.0.is_empty() {
            return (None, None);
        }
        match agent.and_then(|agent| self.0.get(agent)) {
            None => (None, Some("its agent does not train".into())),
            Some(OfAgent::Not(why)) => (None, Some(why.clone())),
            Some(OfAgent::Compared(seats)) => {
                let found = seats.get(&(member, seat.role.to_string(), seat.seat)).cloned();
                let missing = found
                    .is_none()
                    .then(|| "it is left out of the group's statistics".into());
                (found, missing)
            }
        }
    }
}

impl OfAgent {
    fn new(train: &TrainConfig, content: &BundleContent) -> Self {
        let samples = match content {
            BundleContent::Empty { reason } | BundleContent::Dead { reason } => {
                return Self::Not(format!("the group closes empty: {reason}"));
            }
            BundleContent::Samples(_) if train.loss.kind == LossKind::CrossEntropy => {
                return Self::Not("it is trained on known answers, whatever it earned".into());
            }
            BundleContent::Samples(samples) => samples,
        };
        let key = |sample: &Sample| (sample.member, sample.role.clone(), sample.seat);
        let compared = advantage::comparisons(train.advantage, samples);
        let compared = compared.into_iter().map(|comparison| compared_seat(train, comparison));
        Self::Compared(samples.iter().map(key).zip(compared).collect())
    }
}

fn compared_seat(train: &TrainConfig, comparison: Comparison) -> Compared {
    Compared {
        kind: train.advantage,
        conversations: comparison.conversations,
        mean: comparison.mean,
        std: comparison.std,
        baseline: comparison.baseline,
        scale: comparison.scale,
        advantage: comparison.advantage,
        then: then(train),
    }
}

/// The changes that the batch makes to an advantage, in its order.
fn then(train: &TrainConfig) -> Vec<String> {
    let kl = format!("less {} x the KL, token by token", train.kl.coef);
    let z_score = "z-score over the batch's tokens".to_owned();
    [(train.kl_in_reward(), kl), (train.advantage.is_of_batch(), z_score)]
        .into_iter()
        .filter_map(|(does, what)| does.then_some(what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::ids::{Attempt, GroupId, WeightVersion};
    use broker::protocol::bundle::{Row, SampleStatus, Segment};
    use broker::protocol::turn::LogProbs;
    use configs::{Advantage, RoleName};
    use rollout::group::{GroupHead, GroupSummary};

    fn sample(member: u16, reward: f32) -> Sample {
        Sample {
            member,
            role: "solver".into(),
            seat: 0,
            subkey: String::new(),
            target: None,
            status: SampleStatus::Completed,
            reward,
            parts: vec![],
            rows: vec![Row {
                ids: vec![1, 2],
                segments: vec![Segment {
                    start: 1,
                    len: 1,
                    temperature: 1.0,
                    logprobs_of: LogProbs::Sampled,
                    spans: vec![],
                    oldest_kv: WeightVersion::default(),
                }],
                logprobs: vec![-1.0],
            }],
        }
    }

    fn seat() -> SeatReward {
        SeatReward {
            role: RoleName::new("solver").unwrap(),
            seat: 0,
            subkey: String::new(),
            target: None,
            parts: Vec::new(),
        }
    }

    fn agent(train: &str) -> AgentConfig {
        let model =
            "model.random = { layers = 1, hidden = 8, heads = 2, max_context = 16, tokenizer = { words = [\"a\"] } }";
        toml::from_str(&format!("{model}\n{train}")).unwrap()
    }

    fn comparisons(train: &str, content: BundleContent) -> Comparisons {
        let name = AgentName::new("a").unwrap();
        let head = GroupHead {
            group: GroupId([7; 16]),
            attempt: Attempt([0; 16]),
            task: "t".into(),
            order: 0,
        };
        let assembled = Assembled {
            bundles: [(name.clone(), head.bundle(2, content))].into(),
            summary: GroupSummary::default(),
        };
        Comparisons::of(&[(name, agent(train))].into(), &assembled)
    }

    #[test]
    fn a_seat_is_reported_as_its_agent_will_train_it() {
        let name = AgentName::new("a").unwrap();
        let samples = || BundleContent::Samples(vec![sample(0, 1.0), sample(1, 0.0), sample(2, 0.0)]);
        let loo = comparisons("", samples());
        let first = loo.seat(0, Some(&name), &seat()).0.unwrap();
        assert_eq!((first.kind, first.conversations), (Advantage::Loo, 3));
        assert_eq!((first.baseline, first.scale, first.advantage), (0.0, 1.0, 1.0));
        assert!(first.then.is_empty());
        // The others of the second have 1 and 0.
        assert_eq!(loo.seat(1, Some(&name), &seat()).0.unwrap().advantage, -0.5);
        let of_batch = comparisons("train.advantage = \"reinforce_plus_plus\"", samples());
        let first = of_batch.seat(0, Some(&name), &seat()).0.unwrap();
        assert_eq!(first.advantage, 1.0);
        assert_eq!(first.then, ["z-score over the batch's tokens"]);
    }

    #[test]
    fn the_reason_why_a_seat_is_not_compared_is_reported() {
        let name = AgentName::new("a").unwrap();
        let why = |comparisons: &Comparisons, member, agent: Option<&AgentName>| {
            let (found, why) = comparisons.seat(member, agent, &seat());
            assert!(found.is_none());
            why
        };
        let some = comparisons("", BundleContent::Samples(vec![sample(0, 1.0), sample(1, 0.0)]));
        assert_eq!(
            why(&some, 5, Some(&name)).unwrap(),
            "it is left out of the group's statistics"
        );
        assert_eq!(why(&some, 0, None).unwrap(), "its agent does not train");
        let empty = comparisons(
            "",
            BundleContent::Empty {
                reason: "too few".into(),
            },
        );
        assert_eq!(why(&empty, 0, Some(&name)).unwrap(), "the group closes empty: too few");
        let imitates = comparisons(
            "train.loss.kind = \"cross_entropy\"",
            BundleContent::Samples(vec![sample(0, 1.0)]),
        );
        assert!(why(&imitates, 0, Some(&name)).unwrap().contains("known answers"));
        assert_eq!(why(&Comparisons::default(), 0, Some(&name)), None);
    }
}
