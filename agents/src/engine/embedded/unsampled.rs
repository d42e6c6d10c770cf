//! Requests of whose logits nothing can be sampled, and those that were computed beside them: the former are given back with the weights'
//! version, the latter are computed without them. So no neighbour of theirs loses a try, and weights of which nothing can be sampled are
//! blamed by all that was asked of them.

use broker::ids::RequestId;
use trainer::engine::{EngineError, Finished, GenRequest};

use super::{Thread, failed, failure_of};
use crate::engine::EngineFailure;

/// So many times a wave is computed without those that cannot be sampled, some others each time: then the weights are at fault, and the
/// wave is given back whole.
const ROUNDS: usize = 8;

impl Thread {
    /// Gives back those that cannot be sampled, and has the others begin anew, with the random numbers that they had: what is not finite
    /// may stand in what they share. Visits go on where they were.
    pub(super) fn go_on_without(&mut self, requests: &[RequestId], error: &EngineError) {
        tracing::warn!(%error, requests = requests.len(), "given back; what is under way beside them begins anew");
        let failure = failure_of(error);
        let mut were_here = false;
        for id in requests {
            if let Some((job, done)) = self.open.remove(id) {
                self.answer(&done, vec![failed(job, &failure)]);
                were_here = true;
            }
            were_here |= self.visits.refuse(*id, &failure);
        }
        // Nobody's would come again with the next step.
        let cleared = were_here.then(|| {
            self.visits.make_way(&mut self.engine)?;
            self.engine.abort_all()
        });
        match cleared {
            None => self.give_back(error),
            Some(Err(error)) => self.failed(&error),
            Some(Ok(_)) => self.begin_anew(),
        }
    }

    fn begin_anew(&mut self) {
        let mut jobs: Vec<_> = self.open.drain().map(|(_, job)| job).collect();
        jobs.sort_unstable_by_key(|(job, _)| job.request);
        for (job, done) in jobs {
            self.submit(job, &done);
        }
    }

    /// Computes a wave, and where some of it cannot be sampled, the rest of it alone; those are put among the `unsampled`.
    ///
    /// # Errors
    /// As [`trainer::engine::Engine::run_wave`]: [`EngineError::NotFinite`] where others could not be sampled each time.
    pub(super) fn run_wave(
        &mut self,
        mut requests: Vec<GenRequest>,
        unsampled: &mut Vec<(RequestId, EngineFailure)>,
    ) -> Result<Vec<Finished>, EngineError> {
        for _ in 1..ROUNDS {
            match self.engine.run_wave(requests.clone()) {
                Err(error @ EngineError::NotFinite { .. }) => {
                    let EngineError::NotFinite { requests: these, .. } = &error else {
                        return Err(error);
                    };
                    tracing::warn!(%error, requests = these.len(), "the wave is computed without them");
                    requests.retain(|request| !these.contains(&request.id));
                    unsampled.extend(these.iter().map(|id| (*id, failure_of(&error))));
                }
                made => return made,
            }
        }
        self.engine.run_wave(requests)
    }
}
