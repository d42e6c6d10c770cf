//! The settings of groups: the workflow, programs, rules and sampling of each purpose. Nothing here
//! changes after the start.

mod suite;

use std::sync::Arc;

use broker::ids::{Attempt, GroupId};
use broker::protocol::task::Task;
use broker::protocol::turn::TurnPrompt;
use broker::{AgentName, RoleName};
use configs::RunConfig;
use rollout::group::{Rules, RunSpec};
use rollout::workflow::{Player, Workflow, player};

use super::env::Env;
use crate::participant::{Host, RemoteConnection};
use crate::turn::frames::OutgoingTurn;
use crate::turn::image_support;
use crate::turn::sampling::sampling;

pub(crate) use suite::Suite;

/// The reason why a group is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Train,
    /// Greedy, in no ledger, without effect except on metrics.
    Eval,
    /// An evaluation that samples as training does.
    Vote,
    /// A task of an evaluation's suite, by the suite's index.
    Suite {
        at: usize,
        greedy: bool,
    },
}

impl Purpose {
    #[must_use]
    pub fn is_greedy(self) -> bool {
        matches!(self, Self::Eval | Self::Suite { greedy: true, .. })
    }
}

/// The group that a turn belongs to, as far as its request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPlace {
    pub group: GroupId,
    pub attempt: Attempt,
    pub order: u64,
    pub purpose: Purpose,
}

/// The settings that the groups of a run are played with.
pub struct GroupSpecs {
    config: Arc<RunConfig>,
    workflow: Arc<dyn Workflow>,
    rules: Rules,
    /// The run's own programs, tools and judges.
    host: Arc<Host>,
    suites: Vec<Suite>,
}

impl GroupSpecs {
    /// Starts the run's programs and opens its suites. `line` asks remote participants, if any.
    pub fn open(env: &Env, line: Option<&Arc<RemoteConnection>>) -> anyhow::Result<Self> {
        let host = Host::start(env.workflow.clone(), line.cloned());
        let suites = Suite::open_all(&env.config, &host, line)?;
        Ok(Self {
            config: env.config.clone(),
            workflow: env.workflow.clone(),
            rules: Rules::of(&env.config.workflow, &*env.workflow, env.training_set()),
            host: Arc::new(host),
            suites,
        })
    }

    #[must_use]
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    #[must_use]
    pub fn suites(&self) -> &[Suite] {
        &self.suites
    }

    /// The spec of a group that the run's own workflow plays.
    #[must_use]
    pub fn run_spec(&self, task: &Arc<Task>, task_id: &str, group_size: u16) -> RunSpec {
        RunSpec {
            workflow: self.workflow.clone(),
            task: task.clone(),
            task_id: task_id.to_owned(),
            run_seed: self.config.run.seed,
            group_size,
            retries: self.config.workflow.retries,
            min_valid: if group_size == 1 { 1 } else { self.rules.min_valid },
        }
    }

    /// The programs, tools and judges of groups of this purpose.
    #[must_use]
    pub fn host(&self, purpose: Purpose) -> &Arc<Host> {
        self.suite(purpose).map_or(&self.host, Suite::host)
    }

    /// Returns why a program of the run or of its suites cannot be used: [`Host::take_broken`].
    #[must_use]
    pub fn take_broken(&self) -> Option<String> {
        self.host.take_broken()
    }

    #[must_use]
    pub fn workflow(&self, purpose: Purpose) -> &dyn Workflow {
        let own = || &*self.workflow;
        self.suite(purpose).map_or_else(own, |suite| &**suite.workflow())
    }

    /// The agent that plays a role in groups of this purpose.
    #[must_use]
    pub fn player(&self, purpose: Purpose, role: &RoleName) -> Option<Player> {
        player(&self.config.workflow, self.workflow(purpose), role)
    }

    /// The request for a turn. None if no agent plays its role.
    #[must_use]
    pub fn request(&self, place: &GroupPlace, turn: rollout::group::Wanted) -> Option<OutgoingTurn> {
        let GroupPlace { group, purpose, .. } = *place;
        let played = self.player(purpose, &turn.key.role)?;
        let agent = &played.agent;
        let settings = self.config.agents.get(agent)?;
        let of_role = self.config.workflow.sampling.get(&turn.key.role);
        let (limit, stop, greedy) = (turn.ask.max_new_tokens, turn.ask.stop, purpose.is_greedy());
        let mut sampling = sampling(settings.sampling, of_role, limit, stop, greedy);
        if !greedy {
            let own = played.temperature.or(self.temperature(purpose));
            sampling.temperature = own.unwrap_or(sampling.temperature);
        }
        let place_of_role = (agent, &turn.key.role);
        let messages = turn.ask.messages;
        let messages = image_support::shown(self.workflow(purpose), place_of_role, settings.engine.kind, messages);
        let policy = self.config.run.token_records;
        let is_recorded = policy.records(purpose.is_greedy(), turn.key.member);
        Some(OutgoingTurn {
            agent: agent.clone(),
            group,
            attempt: place.attempt,
            task_order: place.order,
            key: turn.key,
            prompt: TurnPrompt {
                held: turn.held,
                sampled: turn.sampled,
                messages,
            },
            sampling,
            seed: turn.seed,
            is_recorded,
        })
    }

    /// The most tokens that a turn of this role may have, with the workflow's own limit for it.
    #[must_use]
    pub fn limit(&self, agent: &AgentName, role: &RoleName, limit: Option<u32>) -> Option<u32> {
        let settings = self.config.agents.get(agent)?;
        let of_role = self.config.workflow.sampling.get(role);
        Some(sampling(settings.sampling, of_role, limit, Vec::new(), false).max_new_tokens)
    }

    /// The temperature of a suite's samples, which replaces each agent's own.
    fn temperature(&self, purpose: Purpose) -> Option<f32> {
        match purpose {
            Purpose::Suite { greedy: false, .. } => self.suite(purpose).map(Suite::temperature),
            _ => None,
        }
    }

    fn suite(&self, purpose: Purpose) -> Option<&Suite> {
        match purpose {
            Purpose::Suite { at, .. } => self.suites.get(at),
            Purpose::Train | Purpose::Eval | Purpose::Vote => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use configs::TokenRecordPolicy;

    use super::*;

    #[test]
    fn greedy_evaluations_are_recorded_unless_nothing_is() {
        let suite = |greedy| Purpose::Suite { at: 0, greedy };
        let recorded = |policy: TokenRecordPolicy| {
            let of = |purpose: Purpose| [0, 1].map(|member| policy.records(purpose.is_greedy(), member));
            [of(Purpose::Train), of(Purpose::Eval), of(suite(true)), of(suite(false))]
        };
        let (no, first, yes) = ([false, false], [true, false], [true, true]);
        assert_eq!(recorded(TokenRecordPolicy::None), [no, no, no, no]);
        assert_eq!(recorded(TokenRecordPolicy::Eval), [no, yes, yes, no]);
        assert_eq!(recorded(TokenRecordPolicy::First), [first, yes, yes, first]);
        assert_eq!(recorded(TokenRecordPolicy::All), [yes, yes, yes, yes]);
    }
}
