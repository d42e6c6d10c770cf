//! The one gate: how many groups may be admitted now, and whether the weights of an evaluation stand still. Pure; fed with heartbeats.
//!
//! Asynchronous: the least capacity of the agents that train, less what was asked for and is not yet in their heartbeats.
//! Synchronous: nothing until every agent is idle, then one round.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::control::Heartbeat;
use configs::Mode;
use tokio::time::Instant;

use crate::turn::past::Past;

/// A bundle that its agent had already (sent again after a takeover) closes nothing, so a goal can be out of reach. An
/// agent that has said for this long that nothing is reserved has everything.
const QUIET: Duration = Duration::from_secs(3);

/// What the coordinator knows of one agent that trains.
#[derive(Debug, Clone)]
struct Seen {
    beat: Heartbeat,
    batch: u64,
    /// `closed` that the agent must reach before it can be idle: all that was sent to it has then arrived.
    closed_goal: u64,
    /// Since when it has said, without exception, that nothing is reserved while the goal is not reached.
    quiet_since: Option<Instant>,
}

#[derive(Debug)]
pub struct Gate {
    mode: Mode,
    batches: BTreeMap<AgentName, u64>,
    seen: BTreeMap<AgentName, Seen>,
    renewing: BTreeMap<AgentName, Renewing>,
}

/// An agent that plays with another's past, what it serves while it serves, and the holds that it keeps.
#[derive(Debug)]
struct Renewing {
    past: Past,
    serves: Option<WeightVersion>,
    holding: Vec<String>,
}

impl Gate {
    /// `batches`: groups per batch of each agent that trains.
    #[must_use]
    pub fn new(mode: Mode, batches: BTreeMap<AgentName, u64>) -> Self {
        Self {
            mode,
            batches,
            seen: BTreeMap::new(),
            renewing: BTreeMap::new(),
        }
    }

    /// With agents that play with the past of those that train: in rounds, nothing begins before they have renewed themselves.
    #[must_use]
    pub fn with_pasts(mut self, pasts: impl IntoIterator<Item = (AgentName, Past)>) -> Self {
        let renewing = |past| Renewing {
            past,
            serves: None,
            holding: Vec::new(),
        };
        self.renewing = pasts.into_iter().map(|(name, past)| (name, renewing(past))).collect();
        self
    }

    /// Takes the newest heartbeat of an agent, heard at `now`.
    pub fn beat(&mut self, beat: &Heartbeat, now: Instant) {
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
    pub fn sent(&mut self, groups: u64) {
        for seen in self.seen.values_mut() {
            seen.closed_goal = seen.closed_goal.saturating_add(groups);
            seen.quiet_since = None;
        }
    }

    /// Every agent that trains has been heard of.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.seen.len() == self.batches.len()
    }

    /// Nothing is reserved, ready for a batch, in training or on its way to the engine, anywhere.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.complete() && self.renewed() && self.seen.values().all(Seen::idle)
    }

    /// Nothing is reserved anywhere, all that was sent has arrived, and every engine serves what its trainer made.
    #[must_use]
    pub fn settled(&self) -> bool {
        let settled = |seen: &Seen| {
            let beat = &seen.beat;
            beat.closed >= seen.closed_goal && beat.reserved == 0 && beat.version.step == beat.step
        };
        self.complete() && self.seen.values().all(settled)
    }

    /// What each agent serves, if all of them keep this hold, every engine serves what its trainer made, and those that play with a
    /// past serve the renewal that is due.
    #[must_use]
    pub fn held(&self, name: &str) -> Option<BTreeMap<AgentName, WeightVersion>> {
        let keeps = |holding: &[String]| holding.iter().any(|held| held == name);
        let trained = |(agent, seen): (&AgentName, &Seen)| {
            let beat = &seen.beat;
            let held = beat.serving && beat.version.step == beat.step && keeps(&beat.holding);
            held.then(|| (agent.clone(), beat.version))
        };
        let renewing = |(agent, renewing): (&AgentName, &Renewing)| {
            // Whose past does not train has one that never changes.
            let Some(of) = self.seen.get(&renewing.past.config.of) else {
                return renewing.serves.map(|version| (agent.clone(), version));
            };
            // Without rounds another step may have been taken than was drawn, and after a restart the other agent may say less than before.
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

    /// Nothing is reserved anywhere, and all that was sent has arrived.
    #[must_use]
    pub fn nothing_reserved(&self) -> bool {
        let arrived = |seen: &Seen| seen.beat.reserved == 0 && seen.beat.closed >= seen.closed_goal;
        self.complete() && self.seen.values().all(arrived)
    }

    /// Nothing moves at any agent: all that was sent has arrived, no batch is being trained, nor full where it would be, and the
    /// engines serve what the trainers made. Rows may be reserved.
    #[must_use]
    pub fn still(&self) -> bool {
        self.complete() && self.renewed() && self.seen.values().all(Seen::still)
    }

    /// Every agent with a past serves what is drawn at the step of the agent whose past it is.
    fn renewed(&self) -> bool {
        self.unrenewed().is_none()
    }

    /// In rounds, the first agent with a past that does not serve what is drawn yet.
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

    /// The agent whose past's weights are all that the next round waits for, and whose past it plays with.
    #[must_use]
    pub fn waits_for(&self) -> Option<(&AgentName, &Past)> {
        let ready = self.complete() && self.seen.values().all(Seen::idle);
        self.unrenewed().filter(|_| ready)
    }

    /// The least place in the run's own source of which some agent has no group.
    #[must_use]
    pub fn next_order(&self) -> u64 {
        let orders = self.seen.values().map(|seen| seen.beat.next_order);
        orders.min().unwrap_or(0)
    }

    /// Groups that a synchronous round has, once nothing moves.
    #[must_use]
    pub fn round(&self) -> u64 {
        let rooms = self
            .seen
            .values()
            .map(|seen| seen.batch.saturating_sub(seen.beat.ready));
        rooms.min().unwrap_or(0)
    }

    /// The most rows that any agent has reserved.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.seen.values().map(|seen| seen.beat.reserved).max().unwrap_or(0)
    }

    /// Groups that may be admitted now. `open`: groups this coordinator has asked room for and not yet sent.
    #[must_use]
    pub fn room(&self, open: u64) -> u64 {
        if !self.complete() {
            return 0;
        }
        let rooms = self.seen.values().map(|seen| match self.mode {
            Mode::Async => {
                // What we have open is reserved there already, or will be; what was sent is reserved until it arrives.
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
        // One that holds begins no batch, however full.
        let full = beat.ready >= self.batch && beat.holding.is_empty();
        arrived && beat.serving && !full && beat.version.step == beat.step
    }
}

#[cfg(test)]
mod tests;
