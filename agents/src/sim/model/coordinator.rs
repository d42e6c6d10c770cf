//! A coordinator's steps, written again: each stands for the function that it names.

use broker::store::{Claim, Claimed, Committed, Lease, Record, StoreError};

use super::GroupModel;
use super::action::lease;
use super::play::{Heard, group};
use super::state::{Commit, Coordinator, Message, Open, Phase, State, owner};
use crate::coordinator::closing::outcome::Ended;
use crate::ledger::tests::custody::Part;

impl GroupModel {
    /// `coordinator/admission/mod.rs`, `take`.
    pub(super) fn take(&self, state: &mut State, c: usize) {
        state.queue -= 1;
        let coordinator = &mut state.coordinators[c];
        match coordinator.phase {
            Phase::Idle => {
                coordinator.holds = u8::from(self.rules.custody);
                coordinator.phase = Phase::Admitting { at: 0, open: false };
                let from = state.incarnation(c);
                state.send(Message::Reserve { to: 0, from });
            }
            Phase::Admitting { .. } if coordinator.holds > 0 => coordinator.holds += 1,
            // It is under way here: acked.
            _ => {}
        }
    }

    /// `coordinator/admission/mod.rs`, `answered`.
    pub(super) fn answered(&self, state: &mut State, c: usize, from: usize, granted: bool) {
        let coordinator = &mut state.coordinators[c];
        let Phase::Admitting { at, open } = coordinator.phase else {
            return;
        };
        if at != from {
            return;
        }
        coordinator.holds = 0;
        let open = open || granted;
        coordinator.phase = match at {
            0 => Phase::Admitting { at: 1, open },
            _ if open => Phase::Claiming { watched: None },
            _ => Phase::Idle,
        };
        if at == 0 {
            let from = state.incarnation(c);
            state.send(Message::Reserve { to: 1, from });
        }
    }

    /// `coordinator/actor/claims.rs`, `claim`, `on_claimed` and `open_group`.
    pub(super) fn claim(&self, state: &mut State, c: usize) {
        let Phase::Claiming { watched } = state.coordinators[c].phase else {
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
                Phase::Claiming {
                    watched: Some((beat, fence)),
                }
            }
            // The beat has moved: its owner lives, and the group is its business.
            Claim::Theirs { .. } => Phase::Idle,
        };
        state.coordinators[c].phase = phase;
        self.proceed(state, c);
    }

    /// The committed turns, in their order; turns that do not follow each other are not of this group.
    pub(super) fn restore(&self, claimed: Claimed) -> Phase {
        let mut heard = Vec::new();
        for record in &claimed.records {
            let (turn, answer) = (record.payload[0], record.payload[1]);
            if self.play.view(&heard).wanted != Some(turn) {
                return Phase::Voiding { lease: claimed.lease };
            }
            heard.push(Heard::Turn(turn, answer));
        }
        let ended = claimed.decided.as_deref().map(Ended::read).unwrap_or_default();
        if self.rules.adopts && !ended.failed.is_empty() {
            heard.push(Heard::GivenUp(ended.failed));
        }
        Phase::Open(Open {
            lease: claimed.lease,
            heard,
            asked: None,
            decided: claimed.decided,
        })
    }

    /// `coordinator/actor/turns.rs`, `flush`: asks for what is wanted and closes what is done.
    pub(super) fn proceed(&self, state: &mut State, c: usize) {
        let reply = state.incarnation(c);
        let Coordinator { phase, commits, .. } = &mut state.coordinators[c];
        let Phase::Open(open) = phase else { return };
        let view = self.play.view(&open.heard);
        let attempt = open.lease.attempt;
        if let Some(turn) = view.wanted.filter(|turn| open.asked != Some(*turn)) {
            open.asked = Some(turn);
            state.send(Message::Request { reply, attempt, turn });
        } else if view.end.is_some() && commits.iter().all(|commit| commit.lease != open.lease) {
            *phase = Phase::Closing {
                open: open.clone(),
                sending: None,
            };
        }
    }

    /// A call that writes is taken only under the lease that stands.
    pub(super) fn write<T>(
        &self,
        state: &mut State,
        lease: Lease,
        call: impl FnOnce(&mut State, Lease) -> Result<T, StoreError>,
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

    /// `coordinator/actor/results.rs`, `commit` and `on_committed`.
    pub(super) fn commit(&self, state: &mut State, c: usize, n: usize) {
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
        let Phase::Open(open) = &mut state.coordinators[c].phase else {
            return;
        };
        if open.lease != lease {
            return;
        }
        match outcome.as_deref() {
            Ok([Committed::Conflict]) => self.lose(state, c),
            Ok(_) => {
                if self.play.view(&open.heard).wanted == Some(turn) {
                    open.heard.push(Heard::Turn(turn, answer));
                }
                self.proceed(state, c);
            }
            Err(_) => self.lose(state, c),
        }
    }

    /// `coordinator/actor/claims.rs`, `lose`.
    pub(super) fn lose(&self, state: &mut State, c: usize) {
        state.coordinators[c].phase = Phase::Claiming { watched: None };
    }

    /// `coordinator/actor/claims.rs`, `renew_leases`.
    pub(super) fn beat(&self, state: &mut State, c: usize) {
        let Some(lease) = lease(&state.coordinators[c].phase) else {
            return;
        };
        let stands = state.call(|store| store.beat(lease));
        if !stands && matches!(state.coordinators[c].phase, Phase::Open(_)) {
            self.lose(state, c);
        }
    }

    /// `coordinator/closing/deliver.rs`, `decide_and_deliver`.
    pub(super) fn decide(&self, state: &mut State, c: usize) {
        let Phase::Closing { open, .. } = state.coordinators[c].phase.clone() else {
            return;
        };
        let ours = self.outcome(&open.heard);
        let standing = match open.decided.clone() {
            Some(stands) => Ok(stands),
            None => self.write(state, open.lease, |state, lease| {
                state.call(|store| store.decide(lease, ours.clone()))
            }),
        };
        state.coordinators[c].phase = match standing {
            Ok(stands) if stands == ours || !self.rules.decide_once => Phase::Closing { open, sending: Some(0) },
            _ => Phase::Voiding { lease: open.lease },
        };
    }

    /// `coordinator/closing/deliver.rs`, `deliver`.
    pub(super) fn send(&self, state: &mut State, c: usize) {
        let Phase::Closing {
            open,
            sending: Some(sent),
        } = &mut state.coordinators[c].phase
        else {
            return;
        };
        let (to, part) = self.parts(&open.heard)[usize::from(*sent)];
        *sent += 1;
        let attempt = open.lease.attempt;
        let part = Part { attempt, ..part };
        state.send(Message::Part { to, part });
    }

    pub(super) fn finish(&self, state: &mut State, c: usize) {
        if let Some(lease) = lease(&state.coordinators[c].phase) {
            let _ = self.write(state, lease, |state, lease| state.call(|store| store.finish(lease)));
        }
        state.coordinators[c].phase = Phase::Idle;
    }

    /// `coordinator/actor/claims.rs`, `void`.
    pub(super) fn void(&self, state: &mut State, c: usize) {
        if let Phase::Voiding { lease } = state.coordinators[c].phase {
            // Stale: another has it, and the claim will say so.
            let _ = state.call(|store| store.void(lease));
        }
        state.coordinators[c].phase = Phase::Claiming { watched: None };
    }
}
