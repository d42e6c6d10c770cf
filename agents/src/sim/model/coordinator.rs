//! A coordinator's steps as a model. Each stands for the function that it names.

use broker::store::{Claim, Claimed, Committed, Lease, Record, StoreError};

use super::GroupModel;
use super::action::lease;
use super::play::{Received, group};
use super::state::{Commit, CoordinatorPhase, Message, ModelCoordinator, ModelState, OpenGroup, owner};
use crate::coordinator::closing::outcome::Ended;
use crate::ledger::tests::custody::Part;

impl GroupModel {
    /// Models `take` in `coordinator/admission.rs`.
    pub(super) fn take(&self, state: &mut ModelState, c: usize) {
        state.queue -= 1;
        let coordinator = &mut state.coordinators[c];
        match coordinator.phase {
            CoordinatorPhase::Idle => {
                coordinator.holds = u8::from(self.rules.custody);
                coordinator.phase = CoordinatorPhase::Admitting { at: 0, open: false };
                let from = state.incarnation(c);
                state.send(Message::Reserve { to: 0, from });
            }
            CoordinatorPhase::Admitting { .. } if coordinator.holds > 0 => coordinator.holds += 1,
            // The group is already open here: the message is acked.
            _ => {}
        }
    }

    /// Models `on_answers` in `coordinator/admission.rs`.
    pub(super) fn answered(&self, state: &mut ModelState, c: usize, from: usize, granted: bool) {
        let coordinator = &mut state.coordinators[c];
        let CoordinatorPhase::Admitting { at, open } = coordinator.phase else {
            return;
        };
        if at != from {
            return;
        }
        coordinator.holds = 0;
        let open = open || granted;
        coordinator.phase = match at {
            0 => CoordinatorPhase::Admitting { at: 1, open },
            _ if open => CoordinatorPhase::Claiming { watched: None },
            _ => CoordinatorPhase::Idle,
        };
        if at == 0 {
            let from = state.incarnation(c);
            state.send(Message::Reserve { to: 1, from });
        }
    }

    /// Models `claim`, `on_claimed` and `open_group` in `coordinator/admission.rs`.
    pub(super) fn claim(&self, state: &mut ModelState, c: usize) {
        let CoordinatorPhase::Claiming { watched } = state.coordinators[c].phase else {
            return;
        };
        let (name, fresh) = (owner(state.incarnation(c)), state.fresh_attempt());
        let phase = match state.call(|store| store.claim(group(), &name, fresh, watched)) {
            Claim::Ours(claimed) => {
                state.attempts += u8::from(claimed.lease.attempt == fresh);
                state.newest = Some(claimed.lease);
                self.restore(claimed)
            }
            Claim::Theirs { beat, fence, .. } if watched.is_none_or(|(seen, owned)| (fence, beat) < (owned, seen)) => {
                CoordinatorPhase::Claiming {
                    watched: Some((beat, fence)),
                }
            }
            // The beat has moved: the owner lives and keeps the group.
            Claim::Theirs { .. } => CoordinatorPhase::Idle,
        };
        state.coordinators[c].phase = phase;
        self.proceed(state, c);
    }

    /// Restores the committed turns, in their order. Turns out of order belong to another group.
    pub(super) fn restore(&self, claimed: Claimed) -> CoordinatorPhase {
        let mut received = Vec::new();
        for record in &claimed.records {
            let (turn, answer) = (record.payload[0], record.payload[1]);
            if self.play.view(&received).wanted != Some(turn) {
                return CoordinatorPhase::Voiding { lease: claimed.lease };
            }
            received.push(Received::Turn(turn, answer));
        }
        let ended = claimed.decided.as_deref().map(Ended::read).unwrap_or_default();
        if self.rules.adopts && !ended.failed.is_empty() {
            received.push(Received::GivenUp(ended.failed));
        }
        CoordinatorPhase::Open(OpenGroup {
            lease: claimed.lease,
            received,
            asked: None,
            decided: claimed.decided,
        })
    }

    /// Models `flush` in `coordinator/turns.rs`: asks for wanted turns and closes finished groups.
    pub(super) fn proceed(&self, state: &mut ModelState, c: usize) {
        let reply = state.incarnation(c);
        let ModelCoordinator { phase, commits, .. } = &mut state.coordinators[c];
        let CoordinatorPhase::Open(open) = phase else { return };
        let view = self.play.view(&open.received);
        let attempt = open.lease.attempt;
        if let Some(turn) = view.wanted.filter(|turn| open.asked != Some(*turn)) {
            open.asked = Some(turn);
            state.send(Message::Request { reply, attempt, turn });
        } else if view.end.is_some() && commits.iter().all(|commit| commit.lease != open.lease) {
            *phase = CoordinatorPhase::Closing {
                open: open.clone(),
                sending: None,
            };
        }
    }

    /// The store accepts a write only under the standing lease.
    pub(super) fn write<T>(
        &self,
        state: &mut ModelState,
        lease: Lease,
        call: impl FnOnce(&mut ModelState, Lease) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let newest = state.newest;
        let shown = if self.rules.fence {
            lease
        } else {
            newest.unwrap_or(lease)
        };
        let answer = call(state, shown);
        if answer.is_ok() && newest != Some(lease) && !state.lost {
            state.wrong = Some("the store took a write under a lease that is not the newest");
        }
        answer
    }

    /// Models `commit` and `on_committed` in `coordinator/commits.rs`.
    pub(super) fn commit(&self, state: &mut ModelState, c: usize, n: usize) {
        let Commit { lease, turn, answer } = state.coordinators[c].commits.remove(n);
        let key = if self.rules.set_once {
            turn.to_string()
        } else {
            format!("{turn}/{answer}")
        };
        let record = Record {
            key,
            payload: vec![turn, answer].into(),
        };
        let outcome = self.write(state, lease, |state, lease| {
            state.call(|store| store.commit(lease, std::slice::from_ref(&record)))
        });
        if outcome.as_deref() == Ok(&[Committed::New]) {
            let first = *state.committed.entry((lease.attempt, turn)).or_insert(answer);
            if first != answer && !state.lost {
                state.wrong = Some("a committed turn has changed within its attempt");
            }
        }
        let CoordinatorPhase::Open(open) = &mut state.coordinators[c].phase else {
            return;
        };
        if open.lease != lease {
            return;
        }
        match outcome.as_deref() {
            Ok([Committed::Conflict]) => self.lose(state, c),
            Ok(_) => {
                if self.play.view(&open.received).wanted == Some(turn) {
                    open.received.push(Received::Turn(turn, answer));
                }
                self.proceed(state, c);
            }
            Err(_) => self.lose(state, c),
        }
    }

    /// Models `lose` in `coordinator/leases.rs`.
    pub(super) fn lose(&self, state: &mut ModelState, c: usize) {
        state.coordinators[c].phase = CoordinatorPhase::Claiming { watched: None };
    }

    /// Models `renew_leases` in `coordinator/leases.rs`.
    pub(super) fn beat(&self, state: &mut ModelState, c: usize) {
        let Some(lease) = lease(&state.coordinators[c].phase) else {
            return;
        };
        let stands = state.call(|store| store.beat(lease));
        if !stands && matches!(state.coordinators[c].phase, CoordinatorPhase::Open(_)) {
            self.lose(state, c);
        }
    }

    /// Models `decide_and_deliver` in `coordinator/closing.rs`.
    pub(super) fn decide(&self, state: &mut ModelState, c: usize) {
        let CoordinatorPhase::Closing { open, .. } = state.coordinators[c].phase.clone() else {
            return;
        };
        let ours = self.outcome(&open.received);
        let standing = match open.decided.clone() {
            Some(stands) => Ok(stands),
            None => self.write(state, open.lease, |state, lease| {
                state.call(|store| store.decide(lease, ours.clone()))
            }),
        };
        state.coordinators[c].phase = match standing {
            Ok(stands) if stands == ours || !self.rules.decide_once => {
                CoordinatorPhase::Closing { open, sending: Some(0) }
            }
            _ => CoordinatorPhase::Voiding { lease: open.lease },
        };
    }

    /// Models `deliver` in `coordinator/closing.rs`.
    pub(super) fn send(&self, state: &mut ModelState, c: usize) {
        let CoordinatorPhase::Closing {
            open,
            sending: Some(sent),
        } = &mut state.coordinators[c].phase
        else {
            return;
        };
        let (to, part) = self.parts(&open.received)[usize::from(*sent)];
        *sent += 1;
        let attempt = open.lease.attempt;
        let part = Part { attempt, ..part };
        state.send(Message::Part { to, part });
    }

    pub(super) fn finish(&self, state: &mut ModelState, c: usize) {
        if let Some(lease) = lease(&state.coordinators[c].phase) {
            let _ = self.write(state, lease, |state, lease| state.call(|store| store.finish(lease)));
        }
        state.coordinators[c].phase = CoordinatorPhase::Idle;
    }

    /// Models `void` in `coordinator/admission.rs`.
    pub(super) fn void(&self, state: &mut ModelState, c: usize) {
        if let CoordinatorPhase::Voiding { lease } = state.coordinators[c].phase {
            // If the lease is stale another coordinator owns the group, and the claim will show it.
            let _ = state.call(|store| store.void(lease));
        }
        state.coordinators[c].phase = CoordinatorPhase::Claiming { watched: None };
    }
}
