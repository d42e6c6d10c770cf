//! Visits of an embedded engine: generations besides training's, which stream and make way.
//!
//! A wave must be computed alone, and weights must not wait for visitors. So when either comes,
//! visits are taken out of the engine between two steps. They are put back afterwards where they
//! were, with their tokens and their position in their random numbers. A wave waits for one step at
//! most, and the reader of a stream sees a pause. Visits without any token are submitted again.
//!
//! Nothing here costs anything without a visit; tokens in progress are read only for watching
//! visitors.

use std::collections::{HashMap, VecDeque};

use broker::ids::RequestId;
use broker::protocol::turn::{Finish, VersionSpan};
use trainer::engine::{Aside, Engine, EngineError, Finished, GenRequest, UnderWay};
use trainer::pulse::Pulse;

use super::failure::failure_of;
use crate::engine::{EngineFailure, Visit, VisitUpdate};

/// The visits of an engine.
pub(super) struct EngineVisits {
    open: HashMap<RequestId, Visitor>,
    /// Taken out, in the order in which they return.
    aside: VecDeque<Aside>,
    /// Taken out before they had made a token.
    again: VecDeque<RequestId>,
    pulse: Pulse,
}

struct Visitor {
    visit: Visit,
    request: GenRequest,
    /// The number of ids reported so far.
    reported: usize,
}

impl EngineVisits {
    pub(super) fn new(pulse: Pulse) -> Self {
        Self {
            open: HashMap::new(),
            aside: VecDeque::new(),
            again: VecDeque::new(),
            pulse,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Submits a visit.
    pub(super) fn begin(&mut self, engine: &mut Engine, visit: Visit, request: GenRequest) {
        let id = request.id;
        if let Err(error) = engine.submit(request.clone()) {
            self.pulse.done(1);
            visit.fail(failure_of(&error));
            return;
        }
        let visitor = Visitor {
            visit,
            request,
            reported: 0,
        };
        self.open.insert(id, visitor);
    }

    /// Forgets a visit, wherever it is.
    pub(super) fn leave(&mut self, engine: &mut Engine, id: RequestId) -> Result<(), EngineError> {
        if self.open.remove(&id).is_none() {
            return Ok(());
        }
        self.pulse.done(1);
        self.aside.retain(|aside| aside.id() != id);
        self.again.retain(|again| *again != id);
        engine.abort(id)?;
        Ok(())
    }

    /// Takes every visit out of the engine.
    pub(super) fn make_way(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        let is_out = |id: &RequestId| self.aside.iter().any(|aside| aside.id() == *id) || self.again.contains(id);
        let mut inside: Vec<RequestId> = self.open.keys().filter(|id| !is_out(id)).copied().collect();
        inside.sort_unstable();
        for id in inside {
            match engine.take_out(id)? {
                Some(aside) => self.aside.push_back(aside),
                None => self.again.push_back(id),
            }
        }
        Ok(())
    }

    /// Puts visits back, as many as fit into one step.
    pub(super) fn come_back(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        engine.put_back(&mut self.aside)?;
        for id in self.again.drain(..) {
            if let Some(visitor) = self.open.get(&id) {
                engine.submit(visitor.request.clone())?;
            }
        }
        Ok(())
    }

    /// Sends the rest of a generation that has ended, if it was a visit.
    pub(super) fn ended(&mut self, one: Finished) {
        let Some(visitor) = self.open.remove(&one.id) else {
            return;
        };
        self.pulse.done(1);
        let made = UnderWay {
            id: one.id,
            output_ids: &one.output_ids,
            logprobs: &one.logprobs,
            top: &one.top,
            spans: &one.spans,
            prompt: one.prompt.as_ref(),
        };
        let news = VisitUpdate::news(visitor.reported, made);
        let end = Some(Ok(one.finish));
        send(&visitor.visit, VisitUpdate { end, ..news });
    }

    /// Sends watching visitors the tokens made since their last update.
    pub(super) fn report(&mut self, engine: &Engine) {
        if !self.open.values().any(|visitor| visitor.visit.watched) {
            return;
        }
        for one in engine.under_way() {
            let Some(visitor) = self.open.get_mut(&one.id) else {
                continue;
            };
            if visitor.visit.watched && one.output_ids.len() > visitor.reported {
                let news = VisitUpdate::news(visitor.reported, one);
                visitor.reported = one.output_ids.len();
                send(&visitor.visit, news);
            }
        }
    }

    /// Fails every visit after the engine was cleared.
    pub(super) fn fail(&mut self, failure: &EngineFailure) {
        self.aside.clear();
        self.again.clear();
        for (_, visitor) in self.open.drain() {
            self.pulse.done(1);
            visitor.visit.fail(failure.clone());
        }
    }

    /// Ends a visit in the engine with this failure; returns false if there is none.
    pub(super) fn refuse(&mut self, id: RequestId, failure: &EngineFailure) -> bool {
        let visitor = self.open.remove(&id);
        visitor.is_some_and(|visitor| {
            self.pulse.done(1);
            visitor.visit.fail(failure.clone());
            true
        })
    }
}

fn send(visit: &Visit, update: VisitUpdate) {
    // A visitor that is gone leaves in a moment.
    let _ = visit.updates.send(update);
}

impl VisitUpdate {
    pub(crate) fn end(request: RequestId, end: Result<Finish, EngineFailure>) -> Self {
        Self {
            request,
            ids: Vec::new(),
            logprobs: Vec::new(),
            top: Vec::new(),
            spans: Vec::new(),
            prompt: None,
            end: Some(end),
        }
    }

    /// Returns the update behind the first `reported` ids. The first update, with or without ids,
    /// also holds the scores of the prompt.
    pub(in crate::engine) fn news(reported: usize, made: UnderWay<'_>) -> Self {
        let new = |span: &VersionSpan| VersionSpan {
            start: span.start.max(reported as u32),
            ..*span
        };
        Self {
            request: made.id,
            ids: made.output_ids.get(reported..).unwrap_or_default().to_vec(),
            logprobs: made.logprobs.get(reported..).unwrap_or_default().to_vec(),
            top: made.top.get(reported..).unwrap_or_default().to_vec(),
            spans: made
                .spans
                .iter()
                .map(new)
                .filter(|span| span.start < span.end)
                .collect(),
            prompt: made.prompt.filter(|_| reported == 0).cloned(),
            end: None,
        }
    }
}
