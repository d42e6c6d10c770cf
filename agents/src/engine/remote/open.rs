//! What an agent has asked of an engine process and has no answer to: kept here, so that an engine that comes back is asked again.

use std::collections::{BTreeMap, HashMap};

use broker::ids::RequestId;
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::{EngineFailure, Finished, Job, Made, Told, Visit};

type Done = UnboundedSender<Vec<Finished>>;

/// Jobs without an answer, and visits without an end.
#[derive(Default)]
pub(super) struct Open {
    /// In the order in which they were asked.
    batches: BTreeMap<u64, Batch>,
    places: HashMap<RequestId, (u64, usize)>,
    next: u64,
    visits: HashMap<RequestId, Visit>,
}

/// Jobs that were asked together.
struct Batch {
    wave: bool,
    /// A wave is kept whole until it is answered whole: asked again as a part, it would have other bits.
    jobs: Vec<(Job, bool)>,
    missing: usize,
    done: Done,
}

impl Open {
    pub(super) fn take(&mut self, jobs: Vec<Job>, wave: bool, done: Done) {
        let batch = self.next;
        self.next += 1;
        for (index, job) in jobs.iter().enumerate() {
            self.places.insert(job.request, (batch, index));
        }
        let missing = jobs.len();
        let jobs = jobs.into_iter().map(|job| (job, false)).collect();
        if missing > 0 {
            self.batches.insert(
                batch,
                Batch {
                    wave,
                    jobs,
                    missing,
                    done,
                },
            );
        }
    }

    /// What an engine that knows nothing is to be asked, in its order, each with whether it is a wave.
    pub(super) fn again(&self) -> impl Iterator<Item = (Vec<&Job>, bool)> {
        self.batches.values().map(|batch| {
            let wanted = batch.jobs.iter().filter(|(_, answered)| batch.wave || !answered);
            (wanted.map(|(job, _)| job).collect(), batch.wave)
        })
    }

    /// Gives answers to whoever asked; one that nobody waits for (any more) is dropped.
    pub(super) fn answer(&mut self, answers: Vec<(RequestId, Result<Made, EngineFailure>)>) {
        let mut by_batch: BTreeMap<u64, Vec<Finished>> = BTreeMap::new();
        for (request, result) in answers {
            let Some((batch, index)) = self.places.remove(&request) else {
                continue;
            };
            let job = self.batches.get_mut(&batch).and_then(|batch| {
                let (job, answered) = batch.jobs.get_mut(index)?;
                batch.missing -= usize::from(!std::mem::replace(answered, true));
                Some(job.clone())
            });
            let finished = job.map(|job| Finished { job, result });
            by_batch.entry(batch).or_default().extend(finished);
        }
        for (id, list) in by_batch {
            let Some(batch) = self.batches.get(&id) else { continue };
            // Whoever asked may have gone.
            let _ = batch.done.send(list);
            if batch.missing == 0 {
                self.batches.remove(&id);
            }
        }
    }

    /// Another engine does it.
    pub(super) fn forget(&mut self, request: RequestId) {
        let Some((id, index)) = self.places.remove(&request) else {
            return;
        };
        let Some(batch) = self.batches.get_mut(&id) else { return };
        if let Some((_, answered)) = batch.jobs.get_mut(index) {
            batch.missing -= usize::from(!std::mem::replace(answered, true));
        }
        if batch.missing == 0 {
            self.batches.remove(&id);
        }
    }

    pub(super) fn begin(&mut self, visit: Visit) {
        self.visits.insert(visit.job.request, visit);
    }

    /// Tells a visitor; `false` if there is none.
    pub(super) fn tell(&mut self, told: Told) -> bool {
        let request = told.request;
        let ends = told.end.is_some();
        // A visitor who is gone leaves in a moment.
        let known = self.visits.get(&request).map(|visit| visit.tell.send(told)).is_some();
        if ends {
            self.visits.remove(&request);
        }
        known
    }

    /// Forgets a visit; `false` if there is none.
    pub(super) fn leave(&mut self, request: RequestId) -> bool {
        self.visits.remove(&request).is_some()
    }

    /// Ends every visit: what an engine that is gone has told of it cannot be told again by another.
    pub(super) fn end_visits(&mut self, failure: &EngineFailure) {
        for (request, visit) in self.visits.drain() {
            // As above.
            let _ = visit.tell.send(Told {
                request,
                ids: Vec::new(),
                logprobs: Vec::new(),
                spans: Vec::new(),
                end: Some(Err(failure.clone())),
            });
        }
    }

    /// Jobs without an answer.
    pub(super) fn len(&self) -> usize {
        self.batches.values().map(|batch| batch.missing).sum()
    }
}
