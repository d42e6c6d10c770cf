//! Rounds of a synchronous run, which survive a crash whole.
//!
//! The bits of an answer depend on the wave in which it was computed. A broken round is therefore
//! played again as one, from its beginning: its groups begin together with those that were still to
//! be admitted, and no group keeps turns of the broken play unless all of them are complete.
//!
//! No bundle of a round is sent before its last group has ended. After a crash either none was
//! sent, and the round is played again, or every turn is in the store, and all bundles are sent
//! again. In one process, store and bus end with the coordinator: there a journal on disk says what
//! was to be sent (`closing/journal.rs`).

use std::collections::BTreeSet;

use broker::ids::GroupId;
use broker::protocol::control::RunPhase;

use super::closing::Decided;
use super::peers::Gate;
use super::play::Open;
use super::specs::Purpose;

/// The round under way.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Decided groups of this round, until all of its groups have ended.
    decided: Vec<Decided>,
    /// A group of this round came back from a broken play.
    is_patched: bool,
    /// Groups with bundles that were sent again at the start.
    resent: BTreeSet<GroupId>,
}

impl Rounds {
    /// `resent`: groups with bundles that were sent again at the start.
    pub(crate) fn set_resent(&mut self, resent: BTreeSet<GroupId>) {
        self.resent = resent;
    }

    #[must_use]
    pub(crate) fn was_resent(&self, group: &GroupId) -> bool {
        self.resent.contains(group)
    }

    /// A group came back from a broken play.
    pub(crate) fn patch(&mut self) {
        self.is_patched = true;
    }

    #[cfg(test)]
    pub(crate) fn is_patched(&self) -> bool {
        self.is_patched
    }

    pub(crate) fn add(&mut self, decided: Decided) {
        self.decided.push(decided);
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.decided.is_empty()
    }

    /// Forgets the decided groups. None of them was sent.
    pub(crate) fn take_unsent(&mut self) -> BTreeSet<GroupId> {
        self.decided.drain(..).map(|decided| decided.group()).collect()
    }

    /// The decided groups of the round in the order of their tasks. The order in which they ended
    /// differs after a takeover, and with it sums of floats.
    pub(crate) fn take(&mut self, order: impl Fn(&GroupId) -> u64) -> Vec<Decided> {
        let mut round = std::mem::take(&mut self.decided);
        round.sort_by_key(|decided| (order(&decided.group()), decided.group()));
        round
    }

    /// The groups to take back when some group came back from a broken play and the round is not
    /// complete. Call it between waves.
    pub(crate) fn restart<'a>(&mut self, open: impl Iterator<Item = (&'a GroupId, &'a Open)>) -> Vec<GroupId> {
        let trained: Vec<_> = open.filter(|(_, open)| open.purpose == Purpose::Train).collect();
        let incomplete = trained.iter().any(|(_, open)| !open.run.is_done());
        // A whole round was decided: it is sent, and not played again.
        let decided = trained.iter().any(|(_, open)| open.decided.is_some());
        if !std::mem::take(&mut self.is_patched) || !incomplete || decided {
            return Vec::new();
        }
        // Groups that are being sent belong to a complete round. Nothing of this one is sent yet.
        let unsent = self.take_unsent();
        let begun = |group: &GroupId, open: &Open| match open.closing {
            true => unsent.contains(group),
            false => open.run.has_begun(),
        };
        let begun = trained.into_iter().filter(|(group, open)| begun(group, open));
        let groups: Vec<GroupId> = begun.map(|(group, _)| *group).collect();
        tracing::info!(groups = groups.len(), "playing a broken round from its beginning");
        groups
    }
}

/// The number of fresh groups that a broken round needs, once it is complete: all groups that the
/// ledgers hold are here, and nothing moves. None until then. `back`: groups that were handed back;
/// `held`: groups under way here.
#[must_use]
pub(crate) fn room_left(back: u64, held: u64, phase: RunPhase, gate: &Gate) -> Option<u64> {
    let is_whole = phase != RunPhase::Starting && gate.still() && back + held >= gate.reserved();
    if back == 0 || !is_whole {
        return None;
    }
    // Counts what the ledgers hold, not what was handed back: a bundle may have closed a row since,
    // and a round with room left for such a group would be two rounds.
    let fresh = phase == RunPhase::Running && held == 0;
    Some(if fresh {
        gate.round().saturating_sub(gate.reserved())
    } else {
        0
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use broker::ids::Attempt;
    use broker::store::Lease;
    use configs::Mode;
    use rollout::group::{Assembled, GroupSummary};

    use super::*;

    fn decided(group: u8) -> Decided {
        let lease = Lease {
            group: GroupId([group; 16]),
            attempt: Attempt([1; 16]),
            fence: 1,
        };
        let assembled = Assembled {
            bundles: BTreeMap::new(),
            summary: GroupSummary::default(),
        };
        Decided::with_bundles(lease, assembled)
    }

    #[test]
    fn a_round_is_sent_in_the_order_of_its_tasks() {
        let mut rounds = Rounds::default();
        (1..=3).for_each(|group| rounds.add(decided(group)));
        let order = |group: &GroupId| u64::from(group.0[0] == 1);
        let sent: Vec<u8> = rounds.take(order).iter().map(|one| one.group().0[0]).collect();
        assert_eq!(sent, [2, 3, 1]);
        assert!(rounds.is_empty() && rounds.take_unsent().is_empty());
    }

    #[test]
    fn a_broken_round_begins_when_it_is_complete() {
        let gate = Gate::new(Mode::Sync, BTreeMap::new());
        assert_eq!(room_left(0, 0, RunPhase::Running, &gate), None, "nothing came back");
        assert_eq!(room_left(2, 0, RunPhase::Starting, &gate), None);
        assert_eq!(room_left(2, 0, RunPhase::Running, &gate), Some(0));
    }

    #[test]
    fn only_a_patched_round_is_restarted() {
        let mut rounds = Rounds::default();
        rounds.add(decided(1));
        assert!(rounds.restart(std::iter::empty()).is_empty());
        rounds.patch();
        assert!(rounds.restart(std::iter::empty()).is_empty(), "nothing is played");
        assert!(!rounds.is_patched() && !rounds.is_empty(), "what was decided stays");
    }
}
