//! The faults.

use super::GroupModel;
use super::action::ModelFault;
use super::state::{Message, ModelCoordinator, ModelState, TASK};

impl GroupModel {
    pub(super) fn fault(&self, state: &mut ModelState, fault: &ModelFault) {
        state.faults -= 1;
        match fault {
            ModelFault::CoordinatorDies(c) => self.die(state, *c),
            ModelFault::AgentDies(a) => self.agent_dies(state, *a),
            ModelFault::StoresAndDies(message) => {
                let agent = match message {
                    Message::Reserve { to, .. } => {
                        state.agents[*to].ledger.reserve(TASK, false);
                        *to
                    }
                    Message::Part { to, part } => {
                        self.stage(state, *to, *part);
                        *to
                    }
                    _ => return,
                };
                self.agent_dies(state, agent);
            }
            ModelFault::Twice(message) => *state.messages.entry(message.clone()).or_default() += 1,
            ModelFault::Fails(message) => {
                if let Message::Request { reply, attempt, turn } = *message {
                    state.receive(message);
                    state.send(Message::Result {
                        to: reply,
                        attempt,
                        turn,
                        answer: None,
                    });
                }
            }
            ModelFault::Halts(c) => {
                state.coordinators[*c].silent = true;
                self.is_missed(state);
            }
            ModelFault::GoesBack(changes) => {
                state.store = state.past[*changes].clone();
                state.past.truncate(*changes);
                state.lost = true;
            }
        }
    }

    /// The coordinator loses its memory, its unacked messages return to their queue, and messages
    /// sent to it are lost.
    pub(super) fn die(&self, state: &mut ModelState, c: usize) {
        let ModelCoordinator { life, holds, .. } = state.coordinators[c];
        state.queue = (state.queue + holds).min(self.size.messages.max(1));
        state.coordinators[c] = ModelCoordinator {
            life: life + 1,
            ..ModelCoordinator::default()
        };
        state
            .messages
            .retain(|message, _| message.coordinator() != Some((c, life)));
        self.is_missed(state);
    }

    /// Models `control` in `agent/inbox.rs`: a coordinator has fallen silent, or a new one has
    /// come.
    pub(super) fn is_missed(&self, state: &mut ModelState) {
        state.tells |= self.rules.tells && state.is_reserved();
    }

    /// The agent restarts at once; every coordinator is then new to it.
    pub(super) fn agent_dies(&self, state: &mut ModelState, a: usize) {
        state.agents[a].life += 1;
        self.is_missed(state);
    }
}
