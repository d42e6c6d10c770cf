//! Handles requests with logits from which no token can be sampled, and their neighbours.
//!
//! Such requests are returned with the weights' version; the others are computed without them. So
//! no neighbour loses a try, and weights that fail every request are blamed by all of them.

use broker::ids::RequestId;
use trainer::engine::{EngineError, Finished, GenRequest};

use super::failure::{failed, failure_of};
use super::thread::Thread;
use crate::engine::EngineFailure;

/// Attempts to compute a wave without the requests that cannot be sampled, some others each time.
/// After that the weights are at fault, and the whole wave is returned.
const ROUNDS: usize = 8;

impl Thread {
    /// Returns the requests that cannot be sampled, and restarts the others with the same random
    /// numbers: values that are not finite may be in shared caches. Visits continue where they
    /// were.
    pub(super) fn go_on_without(&mut self, requests: &[RequestId], error: &EngineError) {
        tracing::warn!(%error, requests = requests.len(), "requests returned; the others in progress start again");
        let failure = failure_of(error);
        let mut were_here = false;
        for id in requests {
            if let Some((job, done)) = self.open.remove(id) {
                self.answer(&done, vec![failed(job, &failure)]);
                were_here = true;
            }
            were_here |= self.visits.refuse(*id, &failure);
        }
        // A failure of unknown requests would repeat at the next step.
        let cleared = were_here.then(|| {
            self.visits.make_way(&mut self.engine)?;
            self.engine.abort_all()
        });
        match cleared {
            None => self.return_all(error),
            Some(Err(error)) => self.failed(&error),
            Some(Ok(_)) => self.restart_open(),
        }
    }

    fn restart_open(&mut self) {
        let mut jobs: Vec<_> = self.open.drain().map(|(_, job)| job).collect();
        jobs.sort_unstable_by_key(|(job, _)| job.request);
        for (job, done) in jobs {
            self.submit(job, &done);
        }
    }

    /// Computes a wave. Requests that cannot be sampled are added to `unsampled`, and the rest is
    /// computed without them.
    ///
    /// # Errors
    /// The same as for [`trainer::engine::Engine::run_wave`]. [`EngineError::NotFinite`] if other
    /// requests could not be sampled each time.
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
                    tracing::warn!(%error, requests = these.len(), "the wave is computed again without them");
                    requests.retain(|request| !these.contains(&request.id));
                    unsampled.extend(these.iter().map(|id| (*id, failure_of(&error))));
                }
                made => return made,
            }
        }
        self.engine.run_wave(requests)
    }
}
