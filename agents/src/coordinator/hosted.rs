//! Turns that programs of the user's own take: asked here, in this process, and committed as all turns are.

use std::sync::Arc;

use actix::{AsyncContext, Context};
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::turn::{Message, TurnResult};
use configs::Mode;

use super::actor::{Coordinator, Input};
use crate::participant::Host;

/// A question for a program.
pub(super) struct Hosted {
    pub(super) host: Arc<Host>,
    pub(super) group: GroupId,
    pub(super) attempt: Attempt,
    pub(super) key: TurnKey,
    pub(super) messages: Vec<Message>,
}

impl Hosted {
    pub(super) fn request(&self) -> RequestId {
        RequestId::new(self.group, self.attempt, &self.key)
    }
}

impl Coordinator {
    /// Asks the programs; their answers come back as [`Input::Answered`].
    pub(super) fn ask_programs(&self, hosted: Vec<Hosted>, ctx: &mut Context<Self>) {
        for one in hosted {
            let addr = ctx.address();
            tokio::spawn(async move {
                let outcome = one.host.ask(&one.key.role, &one.messages).await;
                let result = TurnResult {
                    request: one.request(),
                    group: one.group,
                    attempt: one.attempt,
                    member: one.key.member,
                    role: one.key.role.to_string(),
                    seat: one.key.seat,
                    turn: one.key.turn,
                    outcome,
                };
                // The coordinator is gone only when the process ends.
                let _ = addr.send(Input::Answered(Box::new(result))).await;
            });
        }
    }

    pub(super) fn on_answered(&mut self, result: TurnResult, ctx: &mut Context<Self>) {
        match self.env.config.run.mode {
            Mode::Sync => self.add_to_wave(vec![result], None, ctx),
            Mode::Async => {
                let results = self.sort_by_group(vec![result]);
                self.commit(results, Vec::new(), ctx);
            }
        }
    }
}
