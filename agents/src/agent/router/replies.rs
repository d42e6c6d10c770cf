//! Sends results to coordinators, and acks a frame once all of its requests are answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{AsyncContext, Context};
use broker::protocol::turn::{TurnResult, Wave};

use super::{Router, RouterMessage};
use crate::agent::answers::{Answers, Replies};
use crate::base::log_scope;

impl Router {
    /// Publishes results, a few frames for each coordinator and wave.
    pub(super) fn answer(&mut self, ready: Vec<(u64, Arc<TurnResult>)>, ctx: &mut Context<Self>) {
        let mut places: BTreeMap<(String, Option<Wave>), Answers> = BTreeMap::new();
        for (frame, result) in ready {
            let Some(state) = self.frames.get(&frame) else { continue };
            let place = (state.reply_to.clone(), state.wave);
            let answers = places.entry(place.clone()).or_default();
            answers.put(frame, result);
            if answers.is_full()
                && let Some(answers) = places.remove(&place)
            {
                self.send(place, answers, ctx);
            }
        }
        for (place, answers) in places {
            self.send(place, answers, ctx);
        }
    }

    fn send(&self, place: (String, Option<Wave>), answers: Answers, ctx: &mut Context<Self>) {
        let Answers { results, frames, .. } = answers;
        let replies = Replies {
            bus: self.bus.clone(),
            topology: self.topology.clone(),
            agent: self.agent.clone(),
            reply_to: place.0,
            wave: place.1,
        };
        let addr = ctx.address();
        log_scope::spawn(async move {
            if let Err(error) = replies.send(results).await {
                tracing::debug!(%error, "results were not sent; their requests come again");
                return;
            }
            broker::fail::point("turn.published");
            for (frame, answers) in frames {
                let _ = addr.send(RouterMessage::Answered(frame, answers)).await;
            }
        });
    }

    /// Acks a frame when each of its requests was answered.
    pub(super) fn settle(&mut self, frame: u64, answers: usize) {
        let Some(state) = self.frames.get_mut(&frame) else {
            return;
        };
        state.waiting = state.waiting.saturating_sub(answers);
        if state.waiting == 0
            && let Some(state) = self.frames.remove(&frame)
        {
            log_scope::spawn(async move { state.delivery.ack().await });
        }
    }
}
