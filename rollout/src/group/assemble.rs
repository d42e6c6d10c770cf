//! Assembles the finished conversations of one group into one bundle for each agent that trains.
//!
//! Failed conversations, and seats without a reward, leave all statistics.
//!
//! A group trains if, for every role, at least `ceil(min_group * n)` of its n conversations are
//! valid. A conversation that never reached a role is valid for it. Otherwise the group closes
//! empty for all agents, with one reason.

mod judged;

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::{Attempt, Digest, GroupId, TurnKey};
use broker::protocol::bundle::{Bundle, BundleContent, SampleStatus};
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Finish, Generation};
use broker::{AgentName, RoleName};
use configs::WorkflowConfig;

use self::judged::Judged;
use super::parts::digest;
use crate::workflow::{Outcome, RoleSpec, SeatReward, Workflow, part_weights, shaped};

/// The end of one conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberEnd {
    /// The conversation ended. `turns` are its generations, in any order.
    Ended {
        outcome: Outcome,
        turns: Vec<(TurnKey, Generation)>,
    },
    /// The machinery failed, so there is no answer and no reward. `turns` are the generations
    /// before the failure; they are kept only for people to read.
    Failed {
        failure: Failure,
        turns: Vec<(TurnKey, Generation)>,
    },
}

/// The rules of assembly, the same for all groups of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// The agent that plays each role.
    pub roles: BTreeMap<RoleName, AgentName>,
    /// Agents that train; other agents get no bundle.
    pub training: BTreeSet<AgentName>,
    /// The weight of each reward part, by role: the configuration's, else the workflow's own. It is
    /// 0 where an operator of `[workflow.credit]` replaces the part.
    pub weights: BTreeMap<RoleName, BTreeMap<String, f64>>,
    /// Roles with answers that are compared by length over the group.
    pub compared: BTreeSet<RoleName>,
    /// The least number of tokens of a whole turn, for roles with turns that the game bounds.
    pub whole_turns: BTreeMap<RoleName, u32>,
    /// The number of conversations of a group that must be valid, for every role.
    pub min_valid: usize,
}

impl Rules {
    /// Returns the rules of the groups that `workflow` plays.
    #[must_use]
    pub fn of(config: &WorkflowConfig, workflow: &dyn Workflow, training: BTreeSet<AgentName>) -> Self {
        let whole = |role: &RoleName| Some((role.clone(), workflow.whole_turn(role)?));
        Self {
            whole_turns: config.roles.keys().filter_map(whole).collect(),
            ..Self::new(config, &workflow.roles(), training)
        }
    }

    /// `specs` are the workflow's roles. A part that the configuration does not name keeps the
    /// workflow's weight.
    #[must_use]
    pub fn new(config: &WorkflowConfig, specs: &[RoleSpec], training: BTreeSet<AgentName>) -> Self {
        let least = (config.min_group * f64::from(config.group_size)).ceil().max(1.0);
        let shaped = config.shaping.iter();
        let compared = shaped.filter(|(_, shaping)| shaping.length_penalty.is_some());
        Self {
            roles: config.roles.clone(),
            training,
            weights: shaped::counted(config, specs),
            compared: compared.map(|(role, _)| role.clone()).collect(),
            whole_turns: BTreeMap::new(),
            min_valid: least as usize,
        }
    }

    /// Returns true if its token limit cut this turn off before its natural end. The limit is the
    /// natural end of a turn that the game bounds.
    #[must_use]
    pub fn is_cut(&self, key: &TurnKey, made: &Generation) -> bool {
        let whole = self.whole_turns.get(&key.role);
        made.finish == Finish::Length && whole.is_none_or(|whole| made.output_ids.len() < *whole as usize)
    }

    /// Returns the weighted sum of a seat's parts, in f64 and in the order of the parts. A part
    /// without a weight has weight 1.
    #[must_use]
    pub fn reward(&self, seat: &SeatReward) -> f64 {
        part_weights::total(&self.weights, seat)
    }

    /// Returns the weight of a part of this role; see [`Self::reward`].
    #[must_use]
    pub fn weight(&self, role: &RoleName, part: &str) -> f64 {
        part_weights::of(&self.weights, role, part)
    }
}

/// Figures of a group, for metrics and reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSummary {
    pub conversations: usize,
    /// The number of conversations in which every trained seat counts.
    pub valid: usize,
    /// The number of conversations and seats that left the statistics, by reason.
    pub failed: BTreeMap<Failure, usize>,
    /// The number of trained seats with a turn that its token limit cut off.
    pub truncated: usize,
    /// The mean weighted reward of the seats that count.
    pub rewards: BTreeMap<RoleName, f64>,
    /// Means over the conversations that ended and have the metric.
    pub metrics: BTreeMap<&'static str, f64>,
    /// Tokens sampled by the seats that count.
    pub tokens: u64,
    /// The reason why the group closes empty, if it does.
    pub empty: Option<String>,
}

/// A decided group, with the bundles for every training agent's buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    /// One whole bundle (part 0 of 1) for each agent that plays a role and trains.
    pub bundles: BTreeMap<AgentName, Bundle>,
    pub summary: GroupSummary,
}

/// The origin of a group's bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupHead {
    pub group: GroupId,
    pub attempt: Attempt,
    pub task: String,
    /// The place of its task in the order of admission.
    pub order: u64,
}

impl GroupHead {
    /// Returns a whole bundle of this group with its digest.
    #[must_use]
    pub fn bundle(&self, conversations: u16, content: BundleContent) -> Bundle {
        let mut bundle = Bundle {
            group: self.group,
            task: self.task.clone(),
            order: self.order,
            attempt: self.attempt,
            digest: Digest([0; 16]),
            part: 0,
            parts: 1,
            conversations,
            content,
        };
        bundle.digest = digest(&bundle);
        bundle
    }
}

/// Assembles a group from its conversations, given in the order of their members. It is total and
/// deterministic: the same conversations give the same digests on every machine and at every
/// repetition.
#[must_use]
pub fn assemble(head: &GroupHead, rules: &Rules, members: &[MemberEnd]) -> Assembled {
    let judged: Vec<Judged> = members
        .iter()
        .enumerate()
        .map(|(member, end)| Judged::of(member as u16, end, rules))
        .collect();
    let mut summary = summarise(&judged, members);
    summary.empty = too_few(rules, &judged);
    let agents: BTreeSet<&AgentName> = rules.roles.values().filter(|a| rules.training.contains(*a)).collect();
    let bundle = |agent: &AgentName| match &summary.empty {
        Some(reason) => head.bundle(0, BundleContent::Empty { reason: reason.clone() }),
        None => bundle_of(head, rules, agent, &judged),
    };
    let bundles = agents.into_iter().map(|agent| (agent.clone(), bundle(agent))).collect();
    Assembled { bundles, summary }
}

fn bundle_of(head: &GroupHead, rules: &Rules, agent: &AgentName, judged: &[Judged]) -> Bundle {
    let plays = |role: &RoleName| rules.roles.get(role) == Some(agent);
    let mut samples = Vec::new();
    let mut conversations = 0;
    for conversation in judged.iter().filter(|c| c.failed.is_none()) {
        let before = samples.len();
        samples.extend(
            conversation
                .seats
                .iter()
                .filter(|s| plays(&s.role))
                .filter_map(|s| s.sample.clone().ok()),
        );
        let lost = conversation.seats.iter().any(|s| plays(&s.role) && s.sample.is_err());
        conversations += u16::from(samples.len() > before || !lost);
    }
    if samples.is_empty() {
        let reason = "no seat of this agent has anything to train on".to_owned();
        return head.bundle(0, BundleContent::Empty { reason });
    }
    head.bundle(conversations, BundleContent::Samples(samples))
}

/// Returns the reason why too few conversations are valid, if that is so.
fn too_few(rules: &Rules, judged: &[Judged]) -> Option<String> {
    let short = rules.roles.keys().find_map(|role| {
        let valid = judged.iter().filter(|c| c.valid_for(role)).count();
        (valid < rules.min_valid).then_some((role, valid))
    });
    let (role, valid) = short?;
    let first = judged.iter().find_map(|c| {
        let seat = c
            .seats
            .iter()
            .find(|s| s.role == *role)
            .and_then(|s| s.sample.as_ref().err());
        c.failed.as_ref().or(seat)
    });
    let because = first.map_or_else(String::new, |reason| format!("; first failure: {reason}"));
    Some(format!(
        "{valid} of {} conversations are valid for role {role}, {} are needed{because}",
        judged.len(),
        rules.min_valid
    ))
}

fn summarise(judged: &[Judged], members: &[MemberEnd]) -> GroupSummary {
    let mut summary = GroupSummary {
        conversations: judged.len(),
        valid: judged.iter().filter(|c| c.valid()).count(),
        ..GroupSummary::default()
    };
    let mut rewards: BTreeMap<RoleName, (f64, f64)> = BTreeMap::new();
    for reason in judged.iter().filter_map(|c| c.failed.as_ref()) {
        *summary.failed.entry(reason.clone()).or_default() += 1;
    }
    for seat in judged.iter().flat_map(|c| &c.seats) {
        match &seat.sample {
            Err(reason) => *summary.failed.entry(reason.clone()).or_default() += 1,
            Ok(sample) => {
                summary.truncated += usize::from(sample.status == SampleStatus::Truncated);
                summary.tokens += sample.rows.iter().map(|r| r.trained_tokens() as u64).sum::<u64>();
                let (sum, count) = rewards.entry(seat.role.clone()).or_default();
                *sum += f64::from(sample.reward);
                *count += 1.0;
            }
        }
    }
    summary.rewards = rewards
        .into_iter()
        .map(|(role, (sum, count))| (role, sum / count))
        .collect();
    summary.metrics = metric_means(members);
    summary
}

fn metric_means(members: &[MemberEnd]) -> BTreeMap<&'static str, f64> {
    let mut metrics: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
    for end in members {
        let MemberEnd::Ended { outcome, .. } = end else {
            continue;
        };
        for (name, value) in &outcome.metrics {
            let (sum, count) = metrics.entry(name).or_default();
            *sum += value;
            *count += 1.0;
        }
    }
    metrics
        .into_iter()
        .map(|(name, (sum, count))| (name, sum / count))
        .collect()
}

#[cfg(test)]
mod tests;
