//! How much is answered at once, and until when.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::refusal::Refusal;

/// What the front still does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Open,
    /// What is under way may end; nothing new is begun.
    Closing,
    /// What is still under way ends now.
    Closed,
}

/// Bounds of one front. Nobody waits in line here: who finds no room is told so.
#[derive(Debug)]
pub struct Gate {
    requests: Arc<Semaphore>,
    generations: Arc<Semaphore>,
    /// The bounds themselves.
    most: [usize; 2],
    phase: watch::Sender<Phase>,
}

/// A place among those that are answered, given back when dropped.
pub type Place = OwnedSemaphorePermit;

impl Gate {
    #[must_use]
    pub fn new(requests: usize, generations: usize) -> Self {
        let bound = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            requests: bound(requests),
            generations: bound(generations),
            most: [requests, generations],
            phase: watch::Sender::new(Phase::Open),
        }
    }

    /// A place for a request.
    pub fn enter(&self) -> Result<Place, Refusal> {
        if *self.phase.borrow() > Phase::Open {
            return Err(Refusal::closing());
        }
        let place = self.requests.clone().try_acquire_owned();
        place.map_err(|_| Refusal::too_many("requests", self.most[0]))
    }

    /// Places for so many generations.
    pub fn generate(&self, count: usize) -> Result<Place, Refusal> {
        let most = self.most[1];
        let Ok(places) = u32::try_from(count) else {
            return Err(Refusal::wrong("n", format!("asks for {count} generations")));
        };
        if count > most {
            let message = format!(
                "times the prompts is {count} generations, and this agent does {most} at once: ask for fewer, or raise agents.NAME.http.generations"
            );
            return Err(Refusal::wrong("n", message));
        }
        let place = self.generations.clone().try_acquire_many_owned(places);
        place.map_err(|_| Refusal::too_many("generations", most))
    }

    pub fn set(&self, phase: Phase) {
        self.phase.send_if_modified(|known| {
            let newer = phase > *known;
            if newer {
                *known = phase;
            }
            newer
        });
    }

    #[must_use]
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Requests that are being answered.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.most[0].saturating_sub(self.requests.available_permits())
    }
}

/// Resolves when nothing may go on.
pub async fn closed(phases: &mut watch::Receiver<Phase>) {
    // Whoever would say so is gone: the same.
    let _ = phases.wait_for(|phase| *phase == Phase::Closed).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_is_told_so_and_who_asks_for_too_much_never_finds_any() {
        let gate = Gate::new(1, 3);
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
    async fn nothing_is_begun_while_it_closes_and_it_never_opens_again() {
        let gate = Gate::new(9, 9);
        let mut phases = gate.phases();
        gate.set(Phase::Closing);
        gate.set(Phase::Open);
        assert_eq!(gate.enter().unwrap_err().status, 503);
        gate.set(Phase::Closed);
        closed(&mut phases).await;
    }
}
