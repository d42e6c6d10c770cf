//! Remembers where groups and conversations were computed last, for a limited number of groups.

use std::collections::{BTreeMap, VecDeque};

use broker::ids::GroupId;

/// An engine, by its index in the agent's list.
pub type EngineId = usize;

#[derive(Debug, Clone)]
pub(super) struct Affinity {
    groups: BTreeMap<GroupId, Homes>,
    /// Oldest first.
    age: VecDeque<GroupId>,
    cap: usize,
}

#[derive(Debug, Clone)]
struct Homes {
    /// The engine of its first turns.
    first: EngineId,
    members: BTreeMap<u16, EngineId>,
}

impl Affinity {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            groups: BTreeMap::new(),
            age: VecDeque::new(),
            cap: cap.max(1),
        }
    }

    /// Returns the engine of a conversation, or else of its group.
    pub(super) fn of(&self, group: GroupId, member: u16) -> Option<EngineId> {
        let homes = self.groups.get(&group)?;
        Some(homes.members.get(&member).copied().unwrap_or(homes.first))
    }

    pub(super) fn set(&mut self, group: GroupId, member: u16, engine: EngineId) {
        if !self.groups.contains_key(&group) {
            while self.age.len() >= self.cap
                && let Some(oldest) = self.age.pop_front()
            {
                self.groups.remove(&oldest);
            }
            self.age.push_back(group);
        }
        let homes = self.groups.entry(group).or_insert_with(|| Homes {
            first: engine,
            members: BTreeMap::new(),
        });
        homes.members.insert(member, engine);
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.age.len())
    }
}
