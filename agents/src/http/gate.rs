//! Limits the requests and generations that an HTTP front runs at once, and closes the front.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::request_error::RequestError;

/// The state of the front. It only moves forward, from `Open` to `Closed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontPhase {
    Open,
    /// Running requests may finish; new requests are rejected.
    Closing,
    /// Running requests end now.
    Closed,
}

/// The limits of one front. A request never waits for a place: it is rejected if none is free.
#[derive(Debug)]
pub struct RequestGate {
    requests: Arc<Semaphore>,
    generations: Arc<Semaphore>,
    /// The configured limits: requests, then generations.
    most: [usize; 2],
    phase: watch::Sender<FrontPhase>,
}

/// Permission for running work. Dropping it frees the place.
pub type Place = OwnedSemaphorePermit;

impl RequestGate {
    #[must_use]
    pub fn new(requests: usize, generations: usize) -> Self {
        let bound = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            requests: bound(requests),
            generations: bound(generations),
            most: [requests, generations],
            phase: watch::Sender::new(FrontPhase::Open),
        }
    }

    /// Takes a place for a request.
    pub fn enter(&self) -> Result<Place, RequestError> {
        if *self.phase.borrow() > FrontPhase::Open {
            return Err(RequestError::closing());
        }
        let place = self.requests.clone().try_acquire_owned();
        place.map_err(|_| RequestError::too_many("requests", self.most[0]))
    }

    /// Takes places for `count` generations.
    pub fn generate(&self, count: usize) -> Result<Place, RequestError> {
        let most = self.most[1];
        let Ok(places) = u32::try_from(count) else {
            return Err(RequestError::wrong("n", format!("asks for {count} generations")));
        };
        if count > most {
            let message = format!(
                "times the prompts is {count} generations, and this agent does {most} at once: ask for fewer, or raise agents.NAME.http.generations"
            );
            return Err(RequestError::wrong("n", message));
        }
        let place = self.generations.clone().try_acquire_many_owned(places);
        place.map_err(|_| RequestError::too_many("generations", most))
    }

    /// Moves the front to `phase`. Ignores an earlier phase than the current one.
    pub fn set(&self, phase: FrontPhase) {
        self.phase.send_if_modified(|known| {
            let newer = phase > *known;
            if newer {
                *known = phase;
            }
            newer
        });
    }

    #[must_use]
    pub fn phases(&self) -> watch::Receiver<FrontPhase> {
        self.phase.subscribe()
    }

    /// The number of running requests.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.most[0].saturating_sub(self.requests.available_permits())
    }
}

/// Waits until the front is [`FrontPhase::Closed`] and all running work must end.
pub async fn closed(phases: &mut watch::Receiver<FrontPhase>) {
    // The error means that the gate was dropped. Running work must end then too.
    let _ = phases.wait_for(|phase| *phase == FrontPhase::Closed).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_answers_429_and_an_impossible_request_400() {
        let gate = RequestGate::new(1, 3);
        let place = gate.enter().unwrap();
        assert_eq!((gate.enter().unwrap_err().status, gate.busy()), (429, 1));
        drop(place);
        let _place = gate.enter().unwrap();
        let three = gate.generate(3).unwrap();
        assert_eq!(gate.generate(1).unwrap_err().status, 429);
        drop(three);
        assert_eq!(gate.generate(4).unwrap_err().status, 400);
        assert!(gate.generate(2).is_ok());
    }

    #[tokio::test]
    async fn a_closing_gate_rejects_requests_and_never_reopens() {
        let gate = RequestGate::new(9, 9);
        let mut phases = gate.phases();
        gate.set(FrontPhase::Closing);
        gate.set(FrontPhase::Open);
        assert_eq!(gate.enter().unwrap_err().status, 503);
        gate.set(FrontPhase::Closed);
        closed(&mut phases).await;
    }
}
