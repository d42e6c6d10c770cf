//! What goes wrong.

use super::GroupModel;
use super::action::Fault;
use super::state::{Coordinator, Message, State, TASK};

impl GroupModel {
    pub(super) fn fault(&self, state: &mut State, fault: &Fault) {
        state.faults -= 1;
        match fault {
            Fault::CoordinatorDies(c) => self.die(state, *c),
            Fault::AgentDies(a) => self.agent_dies(state, *a),
            Fault::StoresAndDies(message) => {
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
            Fault::Twice(message) => *state.messages.entry(message.clone()).or_default() += 1,
            Fault::Fails(message) => {
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
            Fault::Halts(c) => {
                state.coordinators[*c].silent = true;
                self.is_missed(state);
            }
            Fault::GoesBack(changes) => {
                state.store = state.past[*changes].clone();
                state.past.truncate(*changes);
                state.lost = true;
            }
        }
    }

    /// Its memory is gone, what it has not acked goes back to its queue, what was sent to it goes nowhere.
    pub(super) fn die(&self, state: &mut State, c: usize) {
        let Coordinator { life, holds, .. } = state.coordinators[c];
        state.queue = (state.queue + holds).min(self.size.messages.max(1));
        state.coordinators[c] = Coordinator {
            life: life + 1,
            ..Coordinator::default()
        };
        state
            .messages
            .retain(|message, _| message.coordinator() != Some((c, life)));
        self.is_missed(state);
    }

    /// `agent/inbox.rs`, `control`: a coordinator has fallen silent, or a new one has come.
    pub(super) fn is_missed(&self, state: &mut State) {
        state.tells |= self.rules.tells && state.is_reserved();
    }

    /// It is started again at once; then it hears every coordinator as new.
    pub(super) fn agent_dies(&self, state: &mut State, a: usize) {
        state.agents[a].life += 1;
        self.is_missed(state);
    }
}
