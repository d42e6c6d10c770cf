//! Waves: closed batches of requests, held until they are complete.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use broker::ids::RequestId;
use broker::protocol::turn::{TimedResult, Wave};

use super::Router;
use crate::engine::GenerationJob;

#[derive(Default)]
pub(super) struct WaveBuffer {
    jobs: BTreeMap<u64, GenerationJob>,
    /// Requests, not deliveries: a frame may come twice.
    seen: HashSet<RequestId>,
}

/// Removes a request's job from the wave that it waits in.
pub(super) fn unpark(waves: &mut HashMap<(String, Wave), WaveBuffer>, request: &RequestId) -> Option<GenerationJob> {
    waves.values_mut().find_map(|buffer| {
        let at = buffer
            .jobs
            .iter()
            .find(|(_, job)| job.request == *request)
            .map(|(at, _)| *at)?;
        buffer.jobs.remove(&at)
    })
}

impl Router {
    /// Holds a wave's jobs until all its requests have come.
    pub(super) fn gather(
        &mut self,
        reply_to: String,
        wave: Wave,
        jobs: Vec<(u64, GenerationJob)>,
        seen: &[RequestId],
    ) -> Vec<(u64, Arc<TimedResult>)> {
        self.drop_dead_waves(&reply_to, wave.id);
        let key = (reply_to, wave);
        let buffer = self.waves.entry(key.clone()).or_default();
        buffer.jobs.extend(jobs);
        buffer.seen.extend(seen);
        if buffer.seen.len() >= wave.total as usize
            && let Some(buffer) = self.waves.remove(&key)
        {
            return self.submit(buffer.jobs.into_values().collect(), true);
        }
        Vec::new()
    }

    /// Drops waves that stay incomplete. There is one coordinator at a time, with one wave at a
    /// time: waves of an earlier coordinator, or earlier waves of the present one, never complete.
    /// No coordinator needs the requests that the present wave did not repeat, so their frames need
    /// not come again.
    fn drop_dead_waves(&mut self, reply_to: &str, present: u64) {
        let others: Vec<WaveBuffer> = self
            .waves
            .extract_if(|(asker, wave), _| asker != reply_to || wave.id < present)
            .map(|(_, buffer)| buffer)
            .collect();
        for job in others.into_iter().flat_map(|buffer| buffer.jobs.into_values()) {
            let frames = self
                .asked
                .remove(&job.request)
                .map_or_else(Vec::new, |asked| asked.frames);
            frames.into_iter().for_each(|frame| self.settle(frame, 1));
        }
    }
}
