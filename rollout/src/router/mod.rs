//! Which engine of an agent computes which request: a pure policy, driven by the one consumer of the agent's turn queue.
//!
//! - A group's first turns go to one engine, which then computes their shared prompt once; a conversation stays where its KV
//!   cache is.
//! - Where that engine is full, or loaded by [`Limits::imbalance`] more than the least loaded, the least loaded takes over.
//! - An engine whose weights are further behind than [`Limits::max_lag`] gets nothing new.
//! - At most [`Limits::in_flight`] requests are with one engine; what is more waits in the queue, by a typed refusal.
//! - When an engine dies, its requests come back to be assigned anew, and nothing sticks to it any longer.

mod affinity;

use std::collections::BTreeMap;

use broker::ids::{GroupId, RequestId};

use affinity::Affinity;

/// An engine by its place in the agent's list.
pub type EngineId = u32;

/// Bounds of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests with one engine at most.
    pub in_flight: usize,
    /// Steps that an engine's weights may be behind the newest.
    pub max_lag: u64,
    /// Requests that an engine may have more than the least loaded and still keep what sticks to it.
    pub imbalance: usize,
    /// Groups remembered for stickiness; the oldest are forgotten beyond it, which costs computation only.
    pub groups: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: 256,
            max_lag: 1,
            imbalance: 64,
            groups: 65_536,
        }
    }
}

/// Why a request was not assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request is already with engine {0}")]
    Assigned(EngineId),
    #[error("every engine that may take it has its {limit} requests: wait for one to finish")]
    Full { limit: usize },
    #[error("none of {up} engines may take it: {behind} have weights too far behind")]
    NoEngine { up: usize, behind: usize },
}

/// Engines, what is with them, and what sticks to them.
#[derive(Debug, Clone)]
pub struct Router {
    limits: Limits,
    engines: BTreeMap<EngineId, Engine>,
    in_flight: BTreeMap<RequestId, EngineId>,
    affinity: Affinity,
    /// The newest published step.
    newest: u64,
}

#[derive(Debug, Clone, Copy)]
struct Engine {
    /// Step of the weights it serves, along the current lineage.
    step: u64,
    load: usize,
}

impl Router {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            engines: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            affinity: Affinity::new(limits.groups),
            newest: 0,
        }
    }

    /// An engine serves weights of `step`: it is new, or was updated. An engine that began anew must be reported by
    /// [`Router::engine_down`] first.
    pub fn engine_up(&mut self, engine: EngineId, step: u64) {
        self.engines.entry(engine).or_insert(Engine { step, load: 0 }).step = step;
    }

    /// Weights of `step` were published, or were restored: engines behind by more than the limit get nothing new.
    pub fn published(&mut self, step: u64) {
        self.newest = step;
    }

    /// An engine is gone. Its requests, in the order of their ids, are in flight no longer: assign them anew.
    #[must_use = "these requests are lost unless they are assigned anew"]
    pub fn engine_down(&mut self, engine: EngineId) -> Vec<RequestId> {
        self.engines.remove(&engine);
        self.affinity.drop_engine(engine);
        let lost: Vec<RequestId> = self
            .in_flight
            .iter()
            .filter(|(_, with)| **with == engine)
            .map(|(request, _)| *request)
            .collect();
        for request in &lost {
            self.in_flight.remove(request);
        }
        lost
    }

    /// Chooses an engine for a request of conversation `member` of `group`, and counts it there. A refusal changes nothing.
    pub fn assign(&mut self, request: RequestId, group: GroupId, member: u16) -> Result<EngineId, Refusal> {
        if let Some(engine) = self.in_flight.get(&request) {
            return Err(Refusal::Assigned(*engine));
        }
        let least = self.least_loaded()?;
        let engine = match self.affinity.of(group, member) {
            Some(home) if self.keeps(home, least) => home,
            _ => least,
        };
        if let Some(state) = self.engines.get_mut(&engine) {
            state.load += 1;
        }
        self.in_flight.insert(request, engine);
        self.affinity.set(group, member, engine);
        Ok(engine)
    }

    /// A request ended, by an answer or a failure. Answers the engine it was with, `None` if it was with none: an answer
    /// from an engine that was given up, to be dropped or used as the first of two.
    pub fn finish(&mut self, request: RequestId) -> Option<EngineId> {
        let engine = self.in_flight.remove(&request)?;
        if let Some(state) = self.engines.get_mut(&engine) {
            state.load = state.load.saturating_sub(1);
        }
        Some(engine)
    }

    /// A group is closed: nothing of it comes any more.
    pub fn forget(&mut self, group: GroupId) {
        self.affinity.forget(group);
    }

    /// Requests with engines.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Requests that would be taken now: what the turn queue's prefetch should leave room for.
    #[must_use]
    pub fn room(&self) -> usize {
        let open = self.engines.values().filter(|engine| self.current(engine));
        open.map(|engine| self.limits.in_flight.saturating_sub(engine.load))
            .sum()
    }

    /// Requests with each engine.
    pub fn loads(&self) -> impl Iterator<Item = (EngineId, usize)> + '_ {
        self.engines.iter().map(|(id, engine)| (*id, engine.load))
    }

    fn current(&self, engine: &Engine) -> bool {
        self.newest.saturating_sub(engine.step) <= self.limits.max_lag
    }

    fn takes(&self, engine: &Engine) -> bool {
        self.current(engine) && engine.load < self.limits.in_flight
    }

    fn keeps(&self, home: EngineId, least: EngineId) -> bool {
        let load = |id| self.engines.get(&id).map_or(0, |engine| engine.load);
        let takes = self.engines.get(&home).is_some_and(|engine| self.takes(engine));
        takes && load(home) <= load(least).saturating_add(self.limits.imbalance)
    }

    /// The least loaded engine that takes requests, the lowest id among equals.
    fn least_loaded(&self) -> Result<EngineId, Refusal> {
        let open = self.engines.iter().filter(|(_, engine)| self.takes(engine));
        if let Some((id, _)) = open.min_by_key(|(id, engine)| (engine.load, **id)) {
            return Ok(*id);
        }
        let behind = self.engines.values().filter(|engine| !self.current(engine)).count();
        let up = self.engines.len();
        Err(if behind == up {
            Refusal::NoEngine { up, behind }
        } else {
            Refusal::Full {
                limit: self.limits.in_flight,
            }
        })
    }
}

#[cfg(test)]
mod tests;
