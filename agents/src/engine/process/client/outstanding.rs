//! What an agent has asked of an engine process and has no answer to: kept here, so that an engine that comes back is asked again.

use std::collections::{BTreeMap, HashMap};

use broker::ids::RequestId;
use broker::protocol::engine::{EngineTold, JobFrame};
use tokio::sync::mpsc::UnboundedSender;

use super::wire::{self, Answer};
use crate::engine::process::crash_loop::LOSSES;
use crate::engine::{EngineFailure, Finished, Job, Visit};

type Done = UnboundedSender<Vec<Finished>>;

/// Jobs without an answer, and visits without an end.
pub(crate) struct Open {
    /// In the order in which they were asked.
    batches: BTreeMap<u64, Batch>,
    places: HashMap<RequestId, (u64, usize)>,
    next: u64,
    visits: HashMap<RequestId, Visitor>,
}

/// Jobs that were asked together.
struct Batch {
    wave: bool,
    /// A wave is kept whole until it is answered whole: asked again as a part, it would have other bits.
    jobs: Vec<Asked>,
    missing: usize,
    done: Done,
}

struct Asked {
    job: Job,
    answered: bool,
    /// Sessions that were lost while an engine worked on it.
    losses: u32,
}

struct Visitor {
    visit: Visit,
    /// Tokens that were told.
    told: usize,
}

impl Open {
    /// Batches are numbered from a random number on: an engine may still answer to an agent that was here before.
    pub(crate) fn new() -> Self {
        Self {
            batches: BTreeMap::new(),
            places: HashMap::new(),
            next: uuid::Uuid::new_v4().as_u64_pair().0 >> 1,
            visits: HashMap::new(),
        }
    }

    /// Takes jobs, and answers with the number of their batch. One that was asked before is asked here from now on.
    pub(crate) fn take(&mut self, jobs: Vec<Job>, wave: bool, done: Done) -> u64 {
        let batch = self.next;
        self.next += 1;
        for (index, job) in jobs.iter().enumerate() {
            self.forget(job.request);
            self.places.insert(job.request, (batch, index));
        }
        let missing = jobs.len();
        let asked = |job| Asked {
            job,
            answered: false,
            losses: 0,
        };
        let jobs = jobs.into_iter().map(asked).collect();
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
        batch
    }

    /// What an engine that knows nothing is to be asked, in its order: number of the batch, jobs, and whether it is a wave.
    pub(crate) fn again(&self) -> impl Iterator<Item = (u64, Vec<&Job>, bool)> {
        self.batches.iter().map(|(id, batch)| {
            let wanted = batch.jobs.iter().filter(|asked| batch.wave || !asked.answered);
            (*id, wanted.map(|asked| &asked.job).collect(), batch.wave)
        })
    }

    /// An engine that worked on all of this is gone. Answers with those that it was the last time for.
    pub(crate) fn lose(&mut self) -> Vec<&Job> {
        let mut last = Vec::new();
        let asked = self.batches.values_mut().flat_map(|batch| &mut batch.jobs);
        for asked in asked.filter(|asked| !asked.answered) {
            asked.losses += 1;
            if asked.losses >= LOSSES {
                last.push(&asked.job);
            }
        }
        last
    }

    /// Gives answers to whoever asked; one that nobody waits for (any more), or not in this batch, is dropped.
    pub(crate) fn answer(&mut self, answers: Vec<Answer>) {
        let mut by_batch: BTreeMap<u64, Vec<Finished>> = BTreeMap::new();
        for Answer { batch, request, result } in answers {
            if self.places.get(&request).is_none_or(|(asked, _)| *asked != batch) {
                continue;
            }
            let job = self.settle(request);
            let finished = job.map(|job| Finished { job, result });
            by_batch.entry(batch).or_default().extend(finished);
        }
        for (id, list) in by_batch {
            let Some(batch) = self.batches.get(&id) else { continue };
            // Whoever asked may have gone.
            let _ = batch.done.send(list);
            self.drop_done(id);
        }
    }

    /// A frame will never be taken: answers its jobs with a failure, and the whole wave if it is a part of one.
    pub(crate) fn fail(&mut self, frame: &JobFrame, failure: &EngineFailure) {
        let Some(batch) = self.batches.get(&frame.batch) else {
            return;
        };
        let missing = batch.jobs.iter().filter(|asked| !asked.answered);
        let requests: Vec<RequestId> = match frame.wave {
            Some(_) => missing.map(|asked| asked.job.request).collect(),
            None => frame.jobs.iter().map(|job| job.request).collect(),
        };
        let answers = requests.into_iter().map(|request| Answer {
            batch: frame.batch,
            request,
            result: Err(failure.clone()),
        });
        self.answer(answers.collect());
    }

    /// Another engine does it, or nobody.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some((id, _)) = self.places.get(&request).copied() {
            self.settle(request);
            self.drop_done(id);
        }
    }

    /// Nothing is waited for at its place.
    fn settle(&mut self, request: RequestId) -> Option<Job> {
        let (id, index) = self.places.remove(&request)?;
        let batch = self.batches.get_mut(&id)?;
        let asked = batch.jobs.get_mut(index)?;
        batch.missing -= usize::from(!std::mem::replace(&mut asked.answered, true));
        Some(asked.job.clone())
    }

    fn drop_done(&mut self, id: u64) {
        if self.batches.get(&id).is_some_and(|batch| batch.missing == 0) {
            self.batches.remove(&id);
        }
    }

    pub(crate) fn begin(&mut self, visit: Visit) {
        self.visits.insert(visit.job.request, Visitor { visit, told: 0 });
    }

    /// Tells a visitor. `false`: what was said cannot be true of a healthy engine, and the visit has ended with a failure.
    pub(crate) fn tell(&mut self, news: EngineTold) -> bool {
        let request = news.request;
        let Some(visitor) = self.visits.get_mut(&request) else {
            return true;
        };
        if let Err(error) = news.validate(visitor.told, visitor.visit.top) {
            self.end_visit(request, &wire::untrue(&error));
            return false;
        }
        visitor.told += news.ids.len();
        let ends = news.end.is_some();
        // A visitor who is gone leaves in a moment.
        let _ = visitor.visit.tell.send(wire::told_from_wire(news));
        if ends {
            self.visits.remove(&request);
        }
        true
    }

    /// Forgets a visit; `false` if there is none.
    pub(crate) fn leave(&mut self, request: RequestId) -> bool {
        self.visits.remove(&request).is_some()
    }

    /// Ends a visit, if it is one, with a failure.
    pub(crate) fn end_visit(&mut self, request: RequestId, failure: &EngineFailure) {
        if let Some(Visitor { visit, .. }) = self.visits.remove(&request) {
            visit.fail(failure.clone());
        }
    }

    /// Ends every visit: what an engine that is gone has told of it cannot be told again by another.
    pub(crate) fn end_visits(&mut self, failure: &EngineFailure) {
        self.visits
            .drain()
            .for_each(|(_, visitor)| visitor.visit.fail(failure.clone()));
    }

    /// Jobs without an answer.
    pub(crate) fn len(&self) -> usize {
        self.batches.values().map(|batch| batch.missing).sum()
    }
}

#[cfg(test)]
mod tests;
