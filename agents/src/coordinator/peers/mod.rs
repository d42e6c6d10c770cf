//! The agents and the other coordinators of the run, as their heartbeats show them.

mod gate;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::AgentName;
use broker::protocol::control::{CoordinatorBeat, Heartbeat, RunPhase, RunState, Saved};
use tokio::time::Instant;

use super::env::Env;

pub(crate) use gate::Gate;

/// Silence after which another coordinator is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The newest heartbeats, and what follows from them.
pub(crate) struct Peers {
    gate: Gate,
    /// Silence after which a peer counts as gone.
    lease: Duration,
    participants: Vec<AgentName>,
    agents: BTreeMap<AgentName, (Heartbeat, Instant)>,
    /// Other coordinators of the run, by incarnation.
    others: BTreeMap<String, (CoordinatorBeat, Instant)>,
    /// Agents that have ended, as far as the run folder shows.
    over: BTreeSet<AgentName>,
}

impl Peers {
    #[must_use]
    pub(crate) fn new(env: &Env) -> Self {
        Self {
            gate: Gate::new(env.config.run.mode, env.batches()).with_pasts(env.pasts()),
            lease: env.config.run.lease.0,
            participants: env.participants(),
            agents: BTreeMap::new(),
            others: BTreeMap::new(),
            over: env.ended_agents(),
        }
    }

    #[must_use]
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// A group's bundles have been sent to every agent that trains.
    pub(crate) fn sent_group(&mut self) {
        self.gate.sent(1);
    }

    /// Takes an agent's heartbeat. Returns true if the agent has just begun to serve.
    ///
    /// The run's state in it is for coordinators that start: it gives no orders to those that have
    /// begun.
    pub(crate) fn take_agent_beat(&mut self, beat: Heartbeat) -> bool {
        let known = self.agents.get(&beat.agent).map(|(old, _)| old);
        let restarted = known.is_none_or(|old| old.incarnation != beat.incarnation);
        if !restarted && known.is_some_and(|old| old.seq >= beat.seq) {
            return false;
        }
        let begins = beat.serving && (restarted || known.is_some_and(|old| !old.serving));
        let now = Instant::now();
        self.gate.beat(&beat, now);
        self.agents.insert(beat.agent.clone(), (beat, now));
        begins
    }

    /// Takes the heartbeat of another coordinator.
    pub(crate) fn take_coordinator_beat(&mut self, beat: CoordinatorBeat) {
        self.others.retain(|_, (_, at)| at.elapsed() < FORGOTTEN);
        self.others.insert(beat.incarnation.clone(), (beat, Instant::now()));
    }

    /// The newest step of an agent, 0 before its first heartbeat.
    #[must_use]
    pub(crate) fn step(&self, agent: &AgentName) -> u64 {
        self.agents.get(agent).map_or(0, |(beat, _)| beat.step)
    }

    /// The newest step of an agent, and its groups from which it could learn nothing.
    #[must_use]
    pub(crate) fn learning(&self, agent: &AgentName) -> (u64, u64) {
        let newest = self.agents.get(agent);
        newest.map_or((0, 0), |(beat, _)| (beat.step, beat.idle_groups))
    }

    /// Returns true if the agent serves and sent a heartbeat within a lease. An agent that is away
    /// still has its requests in its queue: repeating them would only make the queue longer.
    #[must_use]
    pub(crate) fn is_alive(&self, agent: &AgentName) -> bool {
        let newest = self.agents.get(agent);
        newest.is_some_and(|(beat, at)| beat.serving && at.elapsed() < self.lease)
    }

    #[must_use]
    pub(crate) fn alive(&self) -> BTreeSet<AgentName> {
        self.agents
            .keys()
            .filter(|agent| self.is_alive(agent))
            .cloned()
            .collect()
    }

    /// The newest state of the run that any agent knows.
    #[must_use]
    pub(crate) fn known_state(&self) -> RunState {
        let known = self.agents.values().map(|(beat, _)| beat.run);
        known.max().unwrap_or_default()
    }

    #[must_use]
    pub(crate) fn all_serve(&self) -> bool {
        let serves = |name: &AgentName| self.agents.get(name).is_some_and(|(beat, _)| beat.serving);
        self.participants.iter().all(serves)
    }

    /// Returns true if every agent knows that the run is closed. An agent that ended before this
    /// coordinator started sends no heartbeat.
    #[must_use]
    pub(crate) fn all_closed(&self) -> bool {
        let closed = |name: &AgentName| {
            let newest = self.agents.get(name);
            self.over.contains(name) || newest.is_some_and(|(beat, _)| beat.phase == RunPhase::Closed)
        };
        self.participants.iter().all(closed)
    }

    /// Looks at the run folder again for agents that have ended.
    pub(crate) fn look_for_ended(&mut self, env: &Env) {
        self.over = env.ended_agents();
    }

    #[must_use]
    pub(crate) fn any_ended(&self) -> bool {
        !self.over.is_empty()
    }

    /// Returns true if no other coordinator that is alive holds anything.
    #[must_use]
    pub(crate) fn others_drained(&self) -> bool {
        self.others_within(self.lease)
            .all(|beat| beat.drained || beat.phase == RunPhase::Closed)
    }

    /// Heartbeats of other coordinators that were received within `patience`.
    pub(crate) fn others_within(&self, patience: Duration) -> impl Iterator<Item = &CoordinatorBeat> {
        let alive = self.others.values().filter(move |(_, at)| at.elapsed() < patience);
        alive.map(|(beat, _)| beat)
    }

    /// The newest checkpoint of an agent that was saved for a joint snapshot.
    #[must_use]
    pub(crate) fn saved(&self, agent: &AgentName) -> Option<&Saved> {
        self.agents.get(agent)?.0.saved.as_ref()
    }
}

/// Returns true if the coordinator `ours` of a synchronous run leaves it to `other`. A coordinator
/// that has begun stays. If both have begun, or neither has, the lesser name stays.
#[must_use]
pub(crate) fn yields_run(ours: (&str, RunPhase), other: (&str, RunPhase)) -> bool {
    let ((our_name, our_phase), (name, phase)) = (ours, other);
    if phase == RunPhase::Closed || our_phase == RunPhase::Closed {
        return false;
    }
    let begun = |phase| phase != RunPhase::Starting;
    match (begun(our_phase), begun(phase)) {
        (false, true) => true,
        (true, false) => false,
        _ => name < our_name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::actor::bench::{Bench, beat};

    #[tokio::test(start_paused = true)]
    async fn an_agent_is_alive_while_its_heartbeats_arrive() {
        let bench = Bench::new(|_| {}).await;
        let mut peers = Peers::new(bench.env());
        let agent = AgentName::new("a").unwrap();
        assert!(!peers.is_alive(&agent) && !peers.all_serve());
        assert!(peers.take_agent_beat(beat(&agent, 0)), "it begins to serve");
        assert!(!peers.take_agent_beat(beat(&agent, 0)), "the heartbeat is an old one");
        let next = Heartbeat {
            seq: 2,
            step: 7,
            ..beat(&agent, 0)
        };
        assert!(!peers.take_agent_beat(next));
        assert_eq!((peers.step(&agent), peers.alive().len()), (7, 1));
        tokio::time::advance(bench.env().config.run.lease.0).await;
        assert!(!peers.is_alive(&agent));
    }

    #[test]
    fn a_coordinator_that_has_begun_keeps_the_run() {
        use RunPhase::{Closed, Running, Starting};
        assert!(yields_run(("a", Starting), ("b", Running)));
        assert!(!yields_run(("b", Running), ("a", Starting)));
        for phase in [Starting, Running] {
            assert!(yields_run(("b", phase), ("a", phase)));
            assert!(!yields_run(("a", phase), ("b", phase)));
        }
        assert!(!yields_run(("b", Closed), ("a", Running)));
    }
}
