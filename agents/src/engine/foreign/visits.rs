//! Visits of an agent's servers: they also generate for its HTTP front, next to training.
//!
//! A visit is requested in pieces of [`PIECE`] tokens, each reported as it arrives. A server that
//! keeps computed prefixes continues after a piece almost for free. Weights that wait for calls to
//! finish (`swap = "drain"`) wait for one piece at most, and a visitor can leave between two
//! pieces. After new weights a visit continues behind its tokens, like a job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::ids::RequestId;
use broker::protocol::failure::Failure;
use tokio::task::AbortHandle;
use trainer::engine::UnderWay;

use super::fleet::Dispatcher;
use super::progress::Progress;
use crate::base::log_scope;
use crate::engine::{EngineFailure, Visit, VisitUpdate};

/// Tokens of one call.
const PIECE: u32 = 32;

/// Visits in progress.
#[derive(Clone, Default)]
pub(super) struct ServerVisits(Arc<Mutex<HashMap<RequestId, AbortHandle>>>);

impl ServerVisits {
    fn open(&self) -> MutexGuard<'_, HashMap<RequestId, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a visit. Must be called in a runtime.
    pub(super) fn begin(&self, dispatcher: Arc<Dispatcher>, visit: Visit) {
        let (request, visits) = (visit.job.request, self.clone());
        // Held during the start, so that a visit that ends at once finds its own entry.
        let mut open = self.open();
        let task = log_scope::spawn(async move {
            let assigned = Assigned::new(&dispatcher, &visits, &visit);
            serve(&dispatcher, &visit, assigned.home).await;
        });
        open.insert(request, task.abort_handle());
    }

    /// Ends a visit: its call in progress is dropped, and the server stops.
    pub(super) fn leave(&self, request: RequestId) {
        let task = self.open().remove(&request);
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Ends all visits.
    pub(super) fn end(&self) {
        let tasks = std::mem::take(&mut *self.open());
        tasks.values().for_each(AbortHandle::abort);
    }
}

/// A place counted by the router and an entry among the visits in progress, until the visit has
/// ended, was left or failed.
struct Assigned<'a> {
    dispatcher: &'a Dispatcher,
    visits: &'a ServerVisits,
    request: RequestId,
    home: usize,
}

impl<'a> Assigned<'a> {
    fn new(dispatcher: &'a Dispatcher, visits: &'a ServerVisits, visit: &Visit) -> Self {
        let job = &visit.job;
        let home = dispatcher.router().assign(job.request, job.group, job.member);
        Self {
            dispatcher,
            visits,
            request: job.request,
            home,
        }
    }
}

impl Drop for Assigned<'_> {
    fn drop(&mut self) {
        self.dispatcher.router().finish(self.request);
        self.visits.open().remove(&self.request);
    }
}

async fn serve(dispatcher: &Dispatcher, visit: &Visit, home: usize) {
    let request = visit.job.request;
    let mut reported = 0;
    let news = |progress: &Progress| {
        let made = progress.so_far(request);
        if visit.watched && made.output_ids.len() > reported {
            // A visitor that is gone leaves in a moment.
            let _ = visit.updates.send(VisitUpdate::news(reported, made));
            reported = made.output_ids.len();
        }
    };
    let made = tokio::select! {
        biased;
        // A finished answer is reported, whatever has happened to the servers since.
        made = dispatcher.work(&visit.job, home, Progress::in_pieces(PIECE, visit.top), news) => made,
        () = dispatcher.until_deserted() => Err(away()),
        () = visit.updates.closed() => return,
    };
    match made {
        Ok(made) => {
            let whole = UnderWay {
                id: request,
                output_ids: &made.output_ids,
                logprobs: &made.logprobs,
                top: &made.top,
                spans: &made.spans,
                prompt: None,
            };
            let rest = VisitUpdate::news(reported, whole);
            let end = Some(Ok(made.finish));
            let _ = visit.updates.send(VisitUpdate { end, ..rest });
        }
        Err(failure) => visit.fail(failure),
    }
}

fn away() -> EngineFailure {
    EngineFailure {
        cause: Failure::engine("none of the agent's servers can be used: they do not answer, or were refused"),
        retry: true,
    }
}
