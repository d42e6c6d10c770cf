//! Conversations, judged seat by seat: a sample, or the reason why there is none.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::bundle::{Sample, SampleStatus};
use broker::protocol::failure::Failure;
use broker::protocol::turn::Generation;

use super::{MemberEnd, Rules};
use crate::group::parts::reward_parts;
use crate::sample;
use crate::workflow::SeatReward;

/// One conversation, seat by seat.
pub(super) struct Judged {
    pub(super) failed: Option<Failure>,
    /// Seats in the order of (role, seat).
    pub(super) seats: Vec<JudgedSeat>,
}

pub(super) struct JudgedSeat {
    pub(super) role: RoleName,
    /// The sample, or the reason why the seat leaves all statistics.
    pub(super) sample: Result<Sample, Failure>,
}

impl Judged {
    pub(super) fn of(member: u16, end: &MemberEnd, rules: &Rules) -> Self {
        let (outcome, turns) = match end {
            MemberEnd::Failed { failure, .. } => {
                return Self {
                    failed: Some(failure.clone()),
                    seats: Vec::new(),
                };
            }
            // An ungraded seat is in no statistics, and has no reward of 0.
            MemberEnd::Ended { outcome, .. } if outcome.is_ungraded() => {
                return Self {
                    failed: Some(Failure::other("an answer stays without a grade")),
                    seats: Vec::new(),
                };
            }
            MemberEnd::Ended { outcome, turns } => (outcome, turns),
        };
        let mut spoke: BTreeMap<(&RoleName, u16), BTreeMap<u16, &Generation>> = BTreeMap::new();
        for (key, generation) in turns {
            spoke
                .entry((&key.role, key.seat))
                .or_default()
                .insert(key.turn, generation);
        }
        let is_cut = |reward: &SeatReward| {
            let mut turns = turns
                .iter()
                .filter(|(key, _)| (&key.role, key.seat) == (&reward.role, reward.seat));
            turns.any(|(key, made)| rules.is_cut(key, made))
        };
        let mut rewards: Vec<&SeatReward> = outcome.rewards.iter().collect();
        rewards.sort_by(|a, b| (&a.role, a.seat).cmp(&(&b.role, b.seat)));
        let twice = |reward: &SeatReward| {
            rewards
                .iter()
                .filter(|r| (&r.role, r.seat) == (&reward.role, reward.seat))
                .count()
                > 1
        };
        let judge = |reward: &&SeatReward| {
            let turns = spoke.get(&(&reward.role, reward.seat));
            let sample = match twice(reward) {
                true => Err("the workflow rewarded one seat twice".to_owned()),
                false => judge_seat(member, reward, turns, is_cut(reward), rules),
            };
            JudgedSeat {
                role: reward.role.clone(),
                sample: sample.map_err(Failure::other),
            }
        };
        Self {
            failed: None,
            seats: rewards.iter().map(judge).collect(),
        }
    }

    pub(super) fn valid_for(&self, role: &RoleName) -> bool {
        self.failed.is_none() && self.seats.iter().all(|s| s.role != *role || s.sample.is_ok())
    }

    pub(super) fn valid(&self) -> bool {
        self.failed.is_none() && self.seats.iter().all(|s| s.sample.is_ok())
    }
}

fn judge_seat(
    member: u16,
    reward: &SeatReward,
    turns: Option<&BTreeMap<u16, &Generation>>,
    truncated: bool,
    rules: &Rules,
) -> Result<Sample, String> {
    let turns = turns.ok_or("a seat was rewarded that never spoke")?;
    let value = rules.reward(reward) as f32;
    if !value.is_finite() || reward.parts.is_empty() {
        return Err("its reward is missing".into());
    }
    let trained = rules
        .roles
        .get(&reward.role)
        .is_some_and(|agent| rules.training.contains(agent));
    for generation in turns.values() {
        sample::check(generation, 0).map_err(|error| format!("a generation is broken: {error}"))?;
        // A partner that is not trained may use greedy decoding.
        if trained && generation.temperature == 0.0 {
            return Err("it was sampled greedily".into());
        }
        if trained && !generation.logprobs_of.are_of_behaviour() {
            return Err(format!(
                "its log-probs are not of what it was sampled from ({}): no ratio can be taken to them",
                generation.logprobs_of.name()
            ));
        }
    }
    Ok(Sample {
        member,
        role: reward.role.as_str().to_owned(),
        seat: reward.seat,
        subkey: reward.subkey.clone(),
        target: reward.target.clone(),
        status: if truncated {
            SampleStatus::Truncated
        } else {
            SampleStatus::Completed
        },
        reward: value,
        parts: reward_parts(&reward.parts),
        rows: sample::rows(turns.values().copied()),
    })
}
