//! Figures of the conversations that train, over all agents: one line per batch of the lead, and a
//! warning when one role dominates.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::TurnKey;
use broker::protocol::turn::Generation;
use broker::{AgentName, RoleName};
use configs::RunConfig;
use rollout::group::MemberEnd;
use rollout::workflow::unanswered::is_silent;
use rollout::workflow::{Outcome, SeatReward, Workflow};

use crate::run_folder::metrics::Metrics;

/// The number of standard errors that two means must be apart to count as different.
const APART: f64 = 4.0;

/// Statistics of the conversations since the last line.
pub(crate) struct ConversationStats {
    /// Groups of one line: a batch of the lead.
    groups: u64,
    most_turns: Option<usize>,
    /// Roles that take turns: neither graders, nor programs, nor tools.
    roles: BTreeSet<RoleName>,
    /// Roles that may take an empty turn when the context has no room.
    left_out: BTreeSet<RoleName>,
    /// Roles that earn something and are played by agents that train.
    trained: BTreeSet<RoleName>,
    /// The largest share of the trained tokens that one role may have.
    bound: f64,
    window: Window,
    dominant: Option<RoleName>,
    /// The window in which the team did best.
    best: Option<Means>,
    eating: Option<RoleName>,
}

#[derive(Default)]
struct Window {
    groups: u64,
    conversations: u64,
    turns: u64,
    early: u64,
    truncated: u64,
    /// Generated tokens of each conversation.
    tokens: Vec<u64>,
    tokens_by_role: BTreeMap<RoleName, u64>,
    reward: Moments,
    reward_by_role: BTreeMap<RoleName, Moments>,
    success: Moments,
}

/// The sums from which a mean and its standard error are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

/// A window's success, and each role's reward.
struct Means {
    success: Moments,
    rewards: BTreeMap<RoleName, Moments>,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The squared standard error of the mean.
    fn error(self) -> Option<f64> {
        let mean = self.mean()?;
        (self.count > 1.0).then(|| ((self.squares / self.count - mean * mean) / (self.count - 1.0)).max(0.0))
    }

    /// Returns true if this mean is clearly above the other.
    fn above(self, other: Self) -> bool {
        let both = || Some((self.mean()? - other.mean()?, (self.error()? + other.error()?).sqrt()));
        both().is_some_and(|(difference, error)| difference > 1e-6 && difference > APART * error)
    }
}

impl ConversationStats {
    #[must_use]
    pub(crate) fn new(config: &RunConfig, workflow: &dyn Workflow) -> Self {
        let lead = config.lead().and_then(|lead| config.agents.get(lead));
        let trains = |agent: &AgentName| config.agents.get(agent).is_some_and(|agent| agent.train.enabled);
        let specs = workflow.roles();
        let earns = |role: &RoleName| specs.iter().any(|spec| spec.name == *role && !spec.parts.is_empty());
        let roles = &config.workflow.roles;
        let trained = roles.iter().filter(|(role, agent)| trains(agent) && earns(role));
        Self {
            groups: lead.map_or(1, |agent| agent.train.batch_groups as u64).max(1),
            most_turns: workflow.most_turns(),
            trained: trained.map(|(role, _)| role.clone()).collect(),
            roles: roles.keys().cloned().collect(),
            left_out: roles
                .keys()
                .filter(|role| workflow.goes_on_without(role))
                .cloned()
                .collect(),
            bound: config.workflow.dominance,
            window: Window::default(),
            dominant: None,
            best: None,
            eating: None,
        }
    }

    /// Counts a group's conversations. `reward` returns the weighted sum of a seat's parts,
    /// `is_cut` returns true for a turn that its token limit cut off.
    pub(crate) fn add(
        &mut self,
        members: &[MemberEnd],
        reward: impl Fn(&SeatReward) -> f64,
        is_cut: impl Fn(&TurnKey, &Generation) -> bool,
    ) {
        self.window.groups += 1;
        for member in members {
            if let MemberEnd::Ended { outcome, turns } = member {
                let is_said = |(key, made): &&(TurnKey, Generation)| {
                    let is_left_out = self.left_out.contains(&key.role) && is_silent(made);
                    self.roles.contains(&key.role) && !is_left_out
                };
                let spoken = turns.iter().filter(is_said).count();
                self.window.turns += spoken as u64;
                self.window.early += u64::from(self.most_turns.is_some_and(|most| spoken < most));
                self.window.truncated += u64::from(turns.iter().any(|(key, made)| is_cut(key, made)));
                self.window.add(outcome, turns, &self.trained, &reward);
            }
        }
    }

    /// The figures, once a batch of groups is complete. Warns if a role dominates.
    pub(crate) fn line(&mut self, step: u64) -> Option<Metrics> {
        if self.window.groups < self.groups {
            return None;
        }
        let window = std::mem::take(&mut self.window);
        if window.conversations == 0 {
            return None;
        }
        self.watch(step, &window);
        Some(window.line(step, self.most_turns.is_some()))
    }

    fn watch(&mut self, step: u64, window: &Window) {
        let several = self.trained.len() > 1;
        let dominant = window.dominant(self.bound).filter(|_| several);
        if let Some((role, share)) = &dominant
            && self.dominant.as_ref() != Some(role)
        {
            tracing::warn!(%role, step, share, bound = self.bound, "one role says nearly everything that is trained on: shorten its answers (max_new_tokens, its prompt) or set role_weights; see workflow.dominance");
        }
        self.dominant = dominant.map(|(role, _)| role);
        let now = Means {
            success: window.success,
            rewards: window.reward_by_role.clone(),
        };
        let eating = self.best.as_ref().and_then(|best| now.eats(best));
        if let Some(role) = &eating
            && self.eating.as_ref() != Some(role)
        {
            tracing::warn!(%role, step, success = now.success.mean(), "one role earns more while the team does worse than it did: look at workflow.reward");
        }
        self.eating = eating;
        let better = |best: &Means| now.success.mean() > best.success.mean();
        if self.best.as_ref().is_none_or(better) {
            self.best = Some(now);
        }
    }
}

impl Means {
    /// The role that earns clearly more than in the best window, if the team does clearly worse.
    fn eats(&self, best: &Self) -> Option<RoleName> {
        if !best.success.above(self.success) {
            return None;
        }
        let gains = |(role, now): (&RoleName, &Moments)| {
            let before = best.rewards.get(role)?;
            now.above(*before).then(|| role.clone())
        };
        self.rewards.iter().find_map(gains)
    }
}

impl Window {
    fn add(
        &mut self,
        outcome: &Outcome,
        turns: &[(TurnKey, Generation)],
        trained: &BTreeSet<RoleName>,
        reward: &impl Fn(&SeatReward) -> f64,
    ) {
        self.conversations += 1;
        let said = turns.iter().map(|(_, made)| made.output_ids.len() as u64);
        self.tokens.push(said.sum());
        // Tokens of a seat that earns nothing are in no loss.
        let earns = |key: &TurnKey| {
            let mut seats = outcome.rewards.iter().filter(|seat| !seat.parts.is_empty());
            trained.contains(&key.role) && seats.any(|seat| (&seat.role, seat.seat) == (&key.role, key.seat))
        };
        for (key, made) in turns.iter().filter(|(key, _)| earns(key)) {
            *self.tokens_by_role.entry(key.role.clone()).or_default() += made.output_ids.len() as u64;
        }
        for seat in &outcome.rewards {
            let earned = reward(seat);
            self.reward.add(earned);
            self.reward_by_role.entry(seat.role.clone()).or_default().add(earned);
        }
        let success = outcome.metrics.iter().find(|(name, _)| *name == "success");
        if let Some((_, success)) = success {
            self.success.add(*success);
        }
    }

    /// Each role's share of the trained tokens.
    fn split(&self) -> impl Iterator<Item = (&RoleName, f64)> {
        let all = self.tokens_by_role.values().sum::<u64>().max(1) as f64;
        self.tokens_by_role
            .iter()
            .map(move |(role, tokens)| (role, *tokens as f64 / all))
    }

    /// The role with the largest share, if it is above the bound. Silent roles count too.
    fn dominant(&self, bound: f64) -> Option<(RoleName, f64)> {
        let (role, share) = self.split().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (share > bound).then(|| (role.clone(), share))
    }

    fn line(mut self, step: u64, may_end_early: bool) -> Metrics {
        let conversations = self.conversations as f64;
        self.tokens.sort_unstable();
        let tokens: u64 = self.tokens.iter().sum();
        // Nearest rank: the least that 95 of 100 do not exceed.
        let p95 = self.tokens.get((self.tokens.len() * 95).div_ceil(100).max(1) - 1);
        let mut line = Metrics::new("conversations", step)
            .with("conversations", self.conversations)
            .with("multi_agent/avg_turns", self.turns as f64 / conversations)
            .with("multi_agent/conversation_token_count", tokens as f64 / conversations)
            .with("multi_agent/conversation_token_count/p95", p95.copied())
            .with("multi_agent/truncation_rate", self.truncated as f64 / conversations)
            .with("reward/avg", self.reward.mean())
            .with("success", self.success.mean());
        if may_end_early {
            line.set("multi_agent/early_termination_rate", self.early as f64 / conversations);
        }
        let largest = self.split().map(|(_, share)| share).fold(0.0, f64::max);
        line.set("loss_mask/role_split", largest);
        for (role, share) in self.split() {
            line.set(&format!("loss_mask/role_split/{role}"), share);
        }
        for (role, earned) in &self.reward_by_role {
            line.set(&format!("reward/avg/{role}"), earned.mean());
        }
        line
    }
}

#[cfg(test)]
mod tests;
