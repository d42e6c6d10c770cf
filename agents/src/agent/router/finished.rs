//! Takes the results of the engine, and gives it up after results without meaning.

use std::sync::Arc;

use actix::Context;

use super::Router;
use crate::agent::answers::{estimate, log_work, outcome};
use crate::agent::broken;
use crate::base::log_scope;
use crate::engine::Finished;

impl Router {
    pub(super) fn on_finished(&mut self, finished: Vec<(Finished, String)>, ctx: &mut Context<Self>) {
        broker::fail::point("turn.generated");
        if self.gives_up(&finished) {
            return;
        }
        log_work(&finished);
        let (mut ready, mut groups) = (Vec::new(), Vec::new());
        for (one, text) in finished {
            let Some(asked) = self.asked.remove(&one.job.request) else {
                continue;
            };
            groups.push(asked.request.group);
            let remember = one.result.is_ok();
            let (request, ok) = (&asked.request, remember);
            log_scope::turn(request.group, request.member, &request.role, request.turn)
                .in_scope(|| tracing::debug!(ok, "a turn was generated"));
            let result = Arc::new(asked.request.answered(outcome(one, text, asked.kept)));
            if remember {
                let bytes = estimate(&result);
                self.recent.put(result.request, result.clone(), bytes);
            }
            ready.extend(asked.frames.into_iter().map(|frame| (frame, result.clone())));
        }
        self.queue.finished(groups);
        self.answer(ready, ctx);
        self.work();
    }

    /// Returns true if these answers make the router give up the engine's weights.
    fn gives_up(&mut self, finished: &[(Finished, String)]) -> bool {
        let answers = finished.iter().map(|(one, _)| (one.job.request, &one.result));
        let Some(version) = self.broken.record(answers) else {
            return false;
        };
        let why = broken::explain(&self.agent, version, broken::IN_SUCCESSION);
        let why = format!("{why}. Its open requests stay unanswered and come again when it is started");
        let version = version.to_string();
        tracing::error!(agent = %self.agent, version, "{why}");
        // No group is to blame.
        self.queue.clear();
        self.gave_up.send_replace(Some(why));
        true
    }
}
