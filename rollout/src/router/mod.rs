//! Which engine of an agent computes which request: a pure policy, driven by the one consumer of the agent's turn queue.
//!
//! - A group's first turns go to one engine, which then computes their shared prompt once; a conversation stays where it was
//!   computed last.
//! - Where that engine has [`Limits::imbalance`] requests more than the least loaded, the least loaded takes over.
//! - An engine whose weights are further behind than [`Limits::max_lag`] gets nothing new while another is less so.
//! - One that is away gets nothing while another is there, and what it has may be [moved](ReplicaPicker::release).

mod affinity;

use std::collections::BTreeMap;

use broker::ids::{GroupId, RequestId};

use affinity::Affinity;
pub use affinity::EngineId;

/// Bounds of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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
            max_lag: 1,
            imbalance: 64,
            groups: 65_536,
        }
    }
}

/// Engines, what is with them, and what sticks to them.
#[derive(Debug, Clone)]
pub struct ReplicaPicker {
    limits: Limits,
    engines: Vec<Engine>,
    in_flight: BTreeMap<RequestId, EngineId>,
    affinity: Affinity,
}

#[derive(Debug, Clone, Copy, Default)]
struct Engine {
    /// Step of the weights it serves.
    step: u64,
    load: usize,
    away: bool,
}

impl ReplicaPicker {
    /// For so many engines, at least one.
    #[must_use]
    pub fn new(limits: Limits, engines: usize) -> Self {
        Self {
            limits,
            engines: vec![Engine::default(); engines.max(1)],
            in_flight: BTreeMap::new(),
            affinity: Affinity::new(limits.groups),
        }
    }

    /// An engine serves weights of `step` from now on.
    pub fn serves(&mut self, engine: EngineId, step: u64) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.step = step;
        }
    }

    /// An engine does not answer, or does again.
    pub fn is_away(&mut self, engine: EngineId, away: bool) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.away = away;
        }
    }

    /// Takes what engines have that are away, if another is there, to be assigned anew: in the order of the ids.
    pub fn release(&mut self) -> Vec<(RequestId, EngineId)> {
        if self.engines.iter().all(|engine| engine.away) {
            return Vec::new();
        }
        let away = |id: EngineId| self.engines.get(id).is_some_and(|engine| engine.away);
        let there: Vec<_> = self.in_flight.iter().map(|(request, id)| (*request, *id)).collect();
        let released: Vec<_> = there.into_iter().filter(|(_, id)| away(*id)).collect();
        for (request, _) in &released {
            self.finish(*request);
        }
        released
    }

    /// Chooses an engine for a request of conversation `member` of `group`, and counts it there. A request that is with
    /// an engine already stays with it.
    pub fn assign(&mut self, request: RequestId, group: GroupId, member: u16) -> EngineId {
        if let Some(engine) = self.in_flight.get(&request) {
            return *engine;
        }
        let least = self.least_loaded();
        let engine = match self.affinity.of(group, member) {
            Some(home) if self.keeps(home, least) => home,
            _ => least,
        };
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.load += 1;
        }
        self.in_flight.insert(request, engine);
        self.affinity.set(group, member, engine);
        engine
    }

    /// A request ended, by an answer or a failure. Answers the engine it was with, if it was with one.
    pub fn finish(&mut self, request: RequestId) -> Option<EngineId> {
        let engine = self.in_flight.remove(&request)?;
        if let Some(state) = self.engines.get_mut(engine) {
            state.load = state.load.saturating_sub(1);
        }
        Some(engine)
    }

    /// Requests with each engine.
    #[must_use]
    pub fn loads(&self) -> Vec<usize> {
        self.engines.iter().map(|engine| engine.load).collect()
    }

    /// Of the engines that are there.
    fn newest(&self) -> u64 {
        let there = self.engines.iter().filter(|engine| !engine.away);
        there.map(|engine| engine.step).max().unwrap_or(0)
    }

    fn is_current(&self, engine: &Engine) -> bool {
        !engine.away && self.newest() - engine.step <= self.limits.max_lag
    }

    fn keeps(&self, home: EngineId, least: EngineId) -> bool {
        let load = |id: EngineId| self.engines.get(id).map_or(0, |engine| engine.load);
        let current = self.engines.get(home).is_some_and(|engine| self.is_current(engine));
        current && load(home) <= load(least).saturating_add(self.limits.imbalance)
    }

    /// The least loaded engine that is there and not behind, the first among equals; the first of all if none is there.
    fn least_loaded(&self) -> EngineId {
        let current = self
            .engines
            .iter()
            .enumerate()
            .filter(|(_, engine)| self.is_current(engine));
        current
            .min_by_key(|(id, engine)| (engine.load, *id))
            .map_or(0, |(id, _)| id)
    }
}

#[cfg(test)]
mod tests;
