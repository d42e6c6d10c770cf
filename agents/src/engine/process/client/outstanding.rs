//! Requests to an engine process that have no answer yet, kept here to repeat them when it returns.

use std::collections::{BTreeMap, HashMap};

use broker::ids::RequestId;
use broker::protocol::engine::{EngineProgress, JobFrame};
use tokio::sync::mpsc::UnboundedSender;

use super::wire::{self, Answer};
use crate::engine::process::crash_loop::LOSSES;
use crate::engine::{EngineFailure, Finished, GenerationJob, Visit};

type Done = UnboundedSender<Vec<Finished>>;

/// Jobs without an answer, and visits without an end.
pub(crate) struct Outstanding {
    /// In the order in which they were asked.
    batches: BTreeMap<u64, Batch>,
    places: HashMap<RequestId, (u64, usize)>,
    next: u64,
    visits: HashMap<RequestId, Visitor>,
}

/// Jobs that were asked together.
struct Batch {
    wave: bool,
    /// A wave is kept whole until its last answer: repeated in part, it would have other bits.
    jobs: Vec<Asked>,
    missing: usize,
    done: Done,
}

struct Asked {
    job: GenerationJob,
    answered: bool,
    /// Sessions that were lost while an engine worked on it.
    losses: u32,
}

struct Visitor {
    visit: Visit,
    /// The number of tokens reported so far.
    reported: usize,
}

impl Outstanding {
    /// Numbers batches from a random number on: an engine may still answer to an earlier agent.
    pub(crate) fn new() -> Self {
        Self {
            batches: BTreeMap::new(),
            places: HashMap::new(),
            next: uuid::Uuid::new_v4().as_u64_pair().0 >> 1,
            visits: HashMap::new(),
        }
    }

    /// Takes jobs, and returns the number of their batch. A job that was asked before moves to the
    /// new batch.
    pub(crate) fn take(&mut self, jobs: Vec<GenerationJob>, wave: bool, done: Done) -> u64 {
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

    /// Returns the requests for an engine without knowledge of them, in order: number of the batch,
    /// jobs, and true for a wave.
    pub(crate) fn again(&self) -> impl Iterator<Item = (u64, Vec<&GenerationJob>, bool)> {
        self.batches.iter().map(|(id, batch)| {
            let wanted = batch.jobs.iter().filter(|asked| batch.wave || !asked.answered);
            (*id, wanted.map(|asked| &asked.job).collect(), batch.wave)
        })
    }

    /// Counts the loss of an engine that worked on all of this. Returns the jobs that have reached
    /// the limit of losses.
    pub(crate) fn lose(&mut self) -> Vec<&GenerationJob> {
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

    /// Sends answers to their askers. An answer without a waiting request, or for another batch, is
    /// dropped.
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
            // The asker may have gone.
            let _ = batch.done.send(list);
            self.drop_done(id);
        }
    }

    /// Fails a frame that will never be accepted: its jobs, or the whole wave that it is part of.
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

    /// Forgets a job: another engine computes it, or it was cancelled.
    pub(crate) fn forget(&mut self, request: RequestId) {
        if let Some((id, _)) = self.places.get(&request).copied() {
            self.settle(request);
            self.drop_done(id);
        }
    }

    /// Marks a request as answered.
    fn settle(&mut self, request: RequestId) -> Option<GenerationJob> {
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
        self.visits.insert(visit.job.request, Visitor { visit, reported: 0 });
    }

    /// Sends an update to a visitor. Returns false if no healthy engine can have sent it; the visit
    /// then ends with a failure.
    pub(crate) fn update(&mut self, news: EngineProgress) -> bool {
        let request = news.request;
        let Some(visitor) = self.visits.get_mut(&request) else {
            return true;
        };
        if let Err(error) = news.validate(visitor.reported, visitor.visit.top) {
            self.end_visit(request, &wire::untrue(&error));
            return false;
        }
        visitor.reported += news.ids.len();
        let ends = news.end.is_some();
        // A visitor that is gone leaves in a moment.
        let _ = visitor.visit.updates.send(wire::update_from_wire(news));
        if ends {
            self.visits.remove(&request);
        }
        true
    }

    /// Forgets a visit; returns false if there is none.
    pub(crate) fn leave(&mut self, request: RequestId) -> bool {
        self.visits.remove(&request).is_some()
    }

    /// Ends a visit with a failure, if the request is one.
    pub(crate) fn end_visit(&mut self, request: RequestId, failure: &EngineFailure) {
        if let Some(Visitor { visit, .. }) = self.visits.remove(&request) {
            visit.fail(failure.clone());
        }
    }

    /// Ends every visit: another engine cannot repeat the tokens that a lost engine has sent.
    pub(crate) fn end_visits(&mut self, failure: &EngineFailure) {
        self.visits
            .drain()
            .for_each(|(_, visitor)| visitor.visit.fail(failure.clone()));
    }

    /// Returns the number of jobs without an answer.
    pub(crate) fn len(&self) -> usize {
        self.batches.values().map(|batch| batch.missing).sum()
    }
}

#[cfg(test)]
mod tests;
