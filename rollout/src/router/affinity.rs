//! Where groups and conversations were computed last, for at most so many groups.

use std::collections::{BTreeMap, VecDeque};

use broker::ids::GroupId;

use super::EngineId;

#[derive(Debug, Clone)]
pub(super) struct Affinity {
    groups: BTreeMap<GroupId, Homes>,
    /// Oldest first, with the number of its entry: a group that came anew has a newer one.
    age: VecDeque<(GroupId, u64)>,
    entries: u64,
    cap: usize,
}

#[derive(Debug, Clone, Default)]
struct Homes {
    entry: u64,
    /// Where its first turns go.
    first: Option<EngineId>,
    members: BTreeMap<u16, EngineId>,
}

impl Affinity {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            groups: BTreeMap::new(),
            age: VecDeque::new(),
            entries: 0,
            cap: cap.max(1),
        }
    }

    /// The home of a conversation, or else of its group.
    pub(super) fn of(&self, group: GroupId, member: u16) -> Option<EngineId> {
        let homes = self.groups.get(&group)?;
        homes.members.get(&member).copied().or(homes.first)
    }

    pub(super) fn set(&mut self, group: GroupId, member: u16, engine: EngineId) {
        if !self.groups.contains_key(&group) {
            self.make_room();
            self.entries += 1;
            self.age.push_back((group, self.entries));
            self.groups.insert(
                group,
                Homes {
                    entry: self.entries,
                    ..Homes::default()
                },
            );
        }
        if let Some(homes) = self.groups.get_mut(&group) {
            homes.first.get_or_insert(engine);
            homes.members.insert(member, engine);
        }
    }

    pub(super) fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
        // Forgotten groups leave the queue when they come to its front; here only the front is swept, in constant time.
        while let Some((front, entry)) = self.age.front().copied()
            && !self.lives(front, entry)
        {
            self.age.pop_front();
        }
    }

    pub(super) fn drop_engine(&mut self, engine: EngineId) {
        for homes in self.groups.values_mut() {
            homes.first = homes.first.filter(|home| *home != engine);
            homes.members.retain(|_, home| *home != engine);
        }
    }

    fn lives(&self, group: GroupId, entry: u64) -> bool {
        self.groups.get(&group).is_some_and(|homes| homes.entry == entry)
    }

    fn make_room(&mut self) {
        while self.groups.len() >= self.cap {
            let Some((oldest, entry)) = self.age.pop_front() else {
                return;
            };
            if self.lives(oldest, entry) {
                self.groups.remove(&oldest);
            }
        }
        // Entries of forgotten groups behind a long-lived one: drop them before they outnumber the living.
        if self.age.len() > 2 * self.groups.len() + 64 {
            let groups = &self.groups;
            self.age
                .retain(|(group, entry)| groups.get(group).is_some_and(|homes| homes.entry == *entry));
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.age.len())
    }
}
