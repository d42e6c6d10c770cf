//! Turns that programs of the user's own take: asked here, in this process, and committed as all turns are.

use std::sync::Arc;

use actix::{AsyncContext, Context};
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::turn::{Message, TurnResult};
use configs::Mode;
use tokio::task::AbortHandle;

use super::actor::{Coordinator, Input};
use crate::participant::{Host, TOOL};

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

/// A question under way: dropped, it is given up, and nobody is asked who was not yet.
pub struct Asking(AbortHandle);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Coordinator {
    /// Asks the programs; their answers come back as [`Input::Answered`].
    pub(super) fn ask_programs(&mut self, hosted: Vec<Hosted>, ctx: &mut Context<Self>) {
        for one in hosted {
            let (addr, group) = (ctx.address(), one.group);
            // What a tool does goes on by itself, unseen, if nobody waits for it: it would count in no limit.
            let tool = one.host.kind(&one.key.role) == TOOL;
            let asked = tokio::spawn(async move {
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
            if !tool
                && self.env.config.run.mode == Mode::Async
                && let Some(open) = self.open.get_mut(&group)
            {
                open.asking.retain(|asking| !asking.0.is_finished());
                open.asking.push(Asking(asked.abort_handle()));
            }
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

#[cfg(test)]
mod tests {
    use rollout::workflow::program::Question;

    use super::*;
    use crate::coordinator::bench::{Bench, settle, speaker, task};

    #[tokio::test]
    async fn nobody_is_asked_for_a_group_that_is_over() {
        let mut bench = Bench::new(|config| config.run.mode = Mode::Async).await;
        let (group, lease) = bench.open("t").await;
        let key = speaker(0);
        let (host, mut asked) = Host::silent(bench.coordinator.env.workflow.clone(), &key.role);
        let question = Question::Grade {
            role: "speaker".into(),
            text: "s1".into(),
            task: (*task("t")).clone(),
        };
        let hosted = Hosted {
            host: Arc::new(host),
            group,
            attempt: lease.attempt,
            key,
            messages: vec![Message::user(serde_json::to_string(&question).unwrap())],
        };
        bench.coordinator.ask_programs(vec![hosted], &mut bench.ctx);
        let reply = asked.recv().await.unwrap();
        settle().await;
        assert!(!reply.is_closed(), "its answer is waited for");

        let open = bench.coordinator.open.get_mut(&group).unwrap();
        (0..4).for_each(|member| open.run.give_up(member, Failure::other("for the test")));
        bench.coordinator.close(group, &mut bench.ctx);
        settle().await;
        let open = bench.coordinator.open.get(&group);
        assert!(
            open.is_some_and(|open| open.closing),
            "its bundles are not confirmed yet"
        );
        assert!(reply.is_closed());
    }
}
