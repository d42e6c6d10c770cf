//! Decides which engine of an agent computes which request. It is a pure policy, driven by the only
//! consumer of the agent's turn queue.
//!
//! - The first turns of a group go to one engine, which computes their shared prompt once. A
//!   conversation stays with the engine that computed it last.
//! - If that engine has [`Limits::imbalance`] requests more than the least loaded one, the least
//!   loaded engine takes over.
//! - An engine with weights more than [`Limits::max_lag`] steps behind gets no new request while
//!   another engine is less stale.
//! - An engine that is away gets no request while another is there, and its requests may be
//!   [moved](ReplicaPicker::release).

mod affinity;

use std::collections::BTreeMap;

use broker::ids::{GroupId, RequestId};

use affinity::Affinity;
pub use affinity::EngineId;

/// Limits of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps that an engine's weights may be behind the newest.
    pub max_lag: u64,
    /// Requests that an engine may have more than the least loaded one before its conversations
    /// move.
    pub imbalance: usize,
    /// Groups that are remembered. Forgetting the oldest costs only computation.
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

/// The engines, their requests, and the groups that prefer them.
#[derive(Debug, Clone)]
pub struct ReplicaPicker {
    limits: Limits,
    engines: Vec<Engine>,
    in_flight: BTreeMap<RequestId, EngineId>,
    affinity: Affinity,
}

#[derive(Debug, Clone, Copy, Default)]
struct Engine {
    /// The step of the weights that it serves.
    step: u64,
    load: usize,
    away: bool,
}

impl ReplicaPicker {
    /// Makes a router for this many engines, at least one.
    #[must_use]
    pub fn new(limits: Limits, engines: usize) -> Self {
        Self {
            limits,
            engines: vec![Engine::default(); engines.max(1)],
            in_flight: BTreeMap::new(),
            affinity: Affinity::new(limits.groups),
        }
    }

    /// Records that an engine serves weights of `step` from now on.
    pub fn serves(&mut self, engine: EngineId, step: u64) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.step = step;
        }
    }

    /// Records that an engine stopped answering, or answers again.
    pub fn is_away(&mut self, engine: EngineId, away: bool) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.away = away;
        }
    }

    /// Takes the requests of engines that are away, if another engine is there. Returns them in the
    /// order of their ids, to be assigned again.
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

    /// Chooses an engine for a request of conversation `member` of `group`, and counts it there. A
    /// request that already has an engine keeps it.
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

    /// Removes a request that was answered or failed. Returns its engine, if it had one.
    pub fn finish(&mut self, request: RequestId) -> Option<EngineId> {
        let engine = self.in_flight.remove(&request)?;
        if let Some(state) = self.engines.get_mut(engine) {
            state.load = state.load.saturating_sub(1);
        }
        Some(engine)
    }

    /// Returns the number of requests of each engine.
    #[must_use]
    pub fn loads(&self) -> Vec<usize> {
        self.engines.iter().map(|engine| engine.load).collect()
    }

    /// Returns the newest step among the engines that are there.
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

    /// Returns the least loaded engine that is there and not stale; the first among equals. If no
    /// engine is there, returns the first of all.
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
