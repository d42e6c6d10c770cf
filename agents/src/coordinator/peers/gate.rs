//! Computes how many groups may be admitted now, and whether the weights of an evaluation stand
//! still. The gate is pure: heartbeats are its only input.
//!
//! Asynchronous: the least capacity of the agents that train, less what was asked for and is not
//! yet in their heartbeats. Synchronous: nothing until every agent is idle, then one round.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::control::Heartbeat;
use configs::Mode;
use tokio::time::Instant;

use crate::turn::past::Past;

/// The time during which an agent must report that nothing is reserved before it counts as having
/// received all bundles. A bundle that the agent had already (sent again after a takeover) closes
/// nothing, so the goal may never be reached.
const QUIET: Duration = Duration::from_secs(3);

/// One agent that trains, as its heartbeats show it.
#[derive(Debug, Clone)]
struct Seen {
    beat: Heartbeat,
    batch: u64,
    /// The count `closed` that the agent must reach before it can be idle: all that was sent to it
    /// has then arrived.
    closed_goal: u64,
    /// Since when every heartbeat has said that nothing is reserved, with the goal not reached.
    quiet_since: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Gate {
    mode: Mode,
    batches: BTreeMap<AgentName, u64>,
    seen: BTreeMap<AgentName, Seen>,
    renewing: BTreeMap<AgentName, Renewing>,
}

/// An agent that plays with another agent's past, the version that it serves, and its holds.
#[derive(Debug)]
struct Renewing {
    past: Past,
    serves: Option<WeightVersion>,
    holding: Vec<String>,
}

impl Gate {
    /// `batches`: groups per batch of each agent that trains.
    #[must_use]
    pub(crate) fn new(mode: Mode, batches: BTreeMap<AgentName, u64>) -> Self {
        Self {
            mode,
            batches,
            seen: BTreeMap::new(),
            renewing: BTreeMap::new(),
        }
    }

    /// Adds agents that play with the past of those that train. No round begins before they have
    /// renewed themselves.
    #[must_use]
    pub(crate) fn with_pasts(mut self, pasts: impl IntoIterator<Item = (AgentName, Past)>) -> Self {
        let renewing = |past| Renewing {
            past,
            serves: None,
            holding: Vec::new(),
        };
        self.renewing = pasts.into_iter().map(|(name, past)| (name, renewing(past))).collect();
        self
    }

    /// Takes the newest heartbeat of an agent, received at `now`.
    pub(crate) fn beat(&mut self, beat: &Heartbeat, now: Instant) {
        if let Some(renewing) = self.renewing.get_mut(&beat.agent) {
            renewing.serves = beat.serving.then_some(beat.version);
            renewing.holding.clone_from(&beat.holding);
        }
        let Some(batch) = self.batches.get(&beat.agent) else {
            return;
        };
        let fresh = || Seen {
            beat: beat.clone(),
            batch: *batch,
            closed_goal: beat.closed,
            quiet_since: None,
        };
        let seen = self.seen.entry(beat.agent.clone()).or_insert_with(fresh);
        seen.beat = beat.clone();
        if beat.reserved > 0 || beat.closed >= seen.closed_goal {
            seen.quiet_since = None;
        } else if now.duration_since(*seen.quiet_since.get_or_insert(now)) >= QUIET {
            seen.closed_goal = beat.closed;
            seen.quiet_since = None;
        }
    }

    /// A group's bundles have been sent to every agent that trains.
    pub(crate) fn sent(&mut self, groups: u64) {
        for seen in self.seen.values_mut() {
            seen.closed_goal = seen.closed_goal.saturating_add(groups);
            seen.quiet_since = None;
        }
    }

    /// Returns true if a heartbeat of every agent that trains was received.
    #[must_use]
    pub(crate) fn complete(&self) -> bool {
        self.seen.len() == self.batches.len()
    }

    /// Returns true if no agent has rows reserved or a full batch, trains, or is sending weights to
    /// its engine.
    #[must_use]
    pub(crate) fn idle(&self) -> bool {
        self.complete() && self.renewed() && self.seen.values().all(Seen::idle)
    }

    /// Returns true if nothing is reserved, all that was sent has arrived, and every engine serves
    /// what its trainer made.
    #[must_use]
    pub(crate) fn settled(&self) -> bool {
        let settled = |seen: &Seen| {
            let beat = &seen.beat;
            beat.closed >= seen.closed_goal && beat.reserved == 0 && beat.version.step == beat.step
        };
        self.complete() && self.seen.values().all(settled)
    }

    /// The version that each agent serves, if all agents keep this hold, every engine serves what
    /// its trainer made, and agents with a past serve the renewal that is due.
    #[must_use]
    pub(crate) fn held(&self, name: &str) -> Option<BTreeMap<AgentName, WeightVersion>> {
        let keeps = |holding: &[String]| holding.iter().any(|held| held == name);
        let trained = |(agent, seen): (&AgentName, &Seen)| {
            let beat = &seen.beat;
            let held = beat.serving && beat.version.step == beat.step && keeps(&beat.holding);
            held.then(|| (agent.clone(), beat.version))
        };
        let renewing = |(agent, renewing): (&AgentName, &Renewing)| {
            // The past of an agent that does not train never changes.
            let Some(of) = self.seen.get(&renewing.past.config.of) else {
                return renewing.serves.map(|version| (agent.clone(), version));
            };
            // Without rounds the agent may have drawn at a later step, and after a restart the
            // other agent may report an earlier step than before.
            let due = renewing.past.expected(of.beat.step).lineage;
            let serves = renewing.serves.filter(|version| version.lineage >= due);
            serves
                .filter(|_| keeps(&renewing.holding))
                .map(|version| (agent.clone(), version))
        };
        let trained = self.seen.iter().map(trained);
        let all: Option<BTreeMap<_, _>> = trained.chain(self.renewing.iter().map(renewing)).collect();
        all.filter(|_| self.complete())
    }

    /// Returns true if nothing is reserved at any agent, and all that was sent has arrived.
    #[must_use]
    pub(crate) fn nothing_reserved(&self) -> bool {
        let arrived = |seen: &Seen| seen.beat.reserved == 0 && seen.beat.closed >= seen.closed_goal;
        self.complete() && self.seen.values().all(arrived)
    }

    /// Returns true if nothing moves at any agent: all that was sent has arrived, no batch is being
    /// trained or about to be, and the engines serve what the trainers made. Rows may be reserved.
    #[must_use]
    pub(crate) fn still(&self) -> bool {
        self.complete() && self.renewed() && self.seen.values().all(Seen::still)
    }

    /// Returns true if every agent with a past serves the version drawn at the other agent's step.
    fn renewed(&self) -> bool {
        self.unrenewed().is_none()
    }

    /// In rounds, the first agent with a past that does not serve the drawn version yet.
    fn unrenewed(&self) -> Option<(&AgentName, &Past)> {
        let late = |renewing: &Renewing| {
            let of = self.seen.get(&renewing.past.config.of);
            let expected = of.map(|of| renewing.past.expected(of.beat.step));
            expected.is_some() && expected != renewing.serves
        };
        let mut all = self.renewing.iter().filter(|_| self.mode == Mode::Sync);
        let (name, renewing) = all.find(|(_, renewing)| late(renewing))?;
        Some((name, &renewing.past))
    }

    /// The agent that the next round waits for, and its past, if the round waits for nothing else.
    #[must_use]
    pub(crate) fn waits_for(&self) -> Option<(&AgentName, &Past)> {
        let ready = self.complete() && self.seen.values().all(Seen::idle);
        self.unrenewed().filter(|_| ready)
    }

    /// The least order in the run's own source for which some agent has no group.
    #[must_use]
    pub(crate) fn next_order(&self) -> u64 {
        let orders = self.seen.values().map(|seen| seen.beat.next_order);
        orders.min().unwrap_or(0)
    }

    /// The number of groups of a synchronous round, once nothing moves.
    #[must_use]
    pub(crate) fn round(&self) -> u64 {
        let rooms = self
            .seen
            .values()
            .map(|seen| seen.batch.saturating_sub(seen.beat.ready));
        rooms.min().unwrap_or(0)
    }

    /// The most rows that any agent has reserved.
    #[must_use]
    pub(crate) fn reserved(&self) -> u64 {
        self.seen.values().map(|seen| seen.beat.reserved).max().unwrap_or(0)
    }

    /// Groups that may be admitted now. `open`: groups for which this coordinator asked for room
    /// and that it has not sent yet.
    #[must_use]
    pub(crate) fn room(&self, open: u64) -> u64 {
        if !self.complete() {
            return 0;
        }
        let rooms = self.seen.values().map(|seen| match self.mode {
            Mode::Async => {
                // Open groups are reserved there, or will be. A sent group is reserved until it
                // arrives.
                let reserved = i64::try_from(seen.beat.reserved).unwrap_or(i64::MAX);
                let window = u64::try_from(seen.beat.capacity.saturating_add(reserved)).unwrap_or(0);
                let under_way = seen.closed_goal.saturating_sub(seen.beat.closed);
                window.saturating_sub(open.saturating_add(under_way))
            }
            Mode::Sync if open == 0 && seen.idle() && self.renewed() => seen.batch - seen.beat.ready,
            Mode::Sync => 0,
        });
        rooms.min().unwrap_or(0)
    }
}

impl Seen {
    fn idle(&self) -> bool {
        self.still() && self.beat.reserved == 0
    }

    fn still(&self) -> bool {
        let beat = &self.beat;
        let arrived = beat.closed >= self.closed_goal;
        // An agent that holds begins no batch, even a full one.
        let full = beat.ready >= self.batch && beat.holding.is_empty();
        arrived && beat.serving && !full && beat.version.step == beat.step
    }
}

#[cfg(test)]
mod tests;
