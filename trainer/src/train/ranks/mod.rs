//! The ranks of one trainer. All run the same commands in step, and each computes its part.
//!
//! A lost rank ends the group. With Gloo the other ranks get [`CollectiveError`]. With NCCL they
//! get it too, or their processes end (`collective/c10d.rs`).

mod orders;
mod parts;
mod solo;
mod together;

use std::time::Duration;

use broker::codec::{self, CodecError};
use broker::fail::point_of;

use super::stop::Stop;
use crate::collective::{Alone, Collective, CollectiveError, Patience, Shared, broadcast_bytes, gather_bytes};
use crate::pulse::Pulse;

pub(super) use orders::Order;
pub(super) use parts::{Cut, Parts};
pub(super) use solo::{Request, Solo};

/// This trainer's place in its group.
pub(super) struct Ranks {
    group: Shared,
    /// Moves with this rank's progress, and with that of ranks that it waits for.
    pulse: Pulse,
    /// The reason why the group ended.
    ended: Option<CollectiveError>,
}

/// Why the ranks have no common result.
pub(super) enum Fault {
    /// The part of some rank failed; all ranks know.
    Failed(String),
    Ended(CollectiveError),
}

impl From<CollectiveError> for Fault {
    fn from(error: CollectiveError) -> Self {
        Self::Ended(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Failed(reason) => Self::Failed(reason),
            Fault::Ended(error) => Self::Ended(error),
        }
    }
}

/// The kinds of outcomes, from the best to the worst.
const DONE: u8 = 0;
const REFUSED: u8 = 1;
const FAILED: u8 = 2;
const BROKEN: u8 = 3;

impl Ranks {
    pub(super) fn new(group: Box<dyn Collective>) -> Self {
        let group = Shared::new(group);
        Self {
            group,
            pulse: Pulse::default(),
            ended: None,
        }
    }

    pub(super) fn alone() -> Self {
        Self::new(Box::new(Alone))
    }

    pub(super) fn rank(&self) -> usize {
        self.group.rank()
    }

    pub(super) fn count(&self) -> usize {
        self.group.world_size()
    }

    pub(super) fn is_alone(&self) -> bool {
        self.count() == 1
    }

    pub(super) fn is_first(&self) -> bool {
        self.rank() == 0
    }

    pub(super) fn ended(&self) -> Option<&CollectiveError> {
        self.ended.as_ref()
    }

    pub(super) fn end(&mut self, error: CollectiveError) {
        self.ended = Some(error);
    }

    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// The call for each parameter that this rank reads.
    pub(super) fn on_read(&self) -> impl Fn() + Send + use<> {
        let (pulse, rank) = (self.pulse.clone(), self.rank());
        move || {
            point_of("parameter.read", &rank);
            pulse.mark();
        }
    }

    /// The time between two signs of life, unless this rank is alone or the group has ended.
    pub(super) fn sign_every(&self) -> Option<Duration> {
        let together = self.ended.is_none();
        let timeout = self.group.timeout().filter(|_| together);
        timeout.map(|timeout| timeout / 2)
    }

    /// Gives each rank the parts of all ranks, in their order. If some rank has none, all ranks get
    /// the first reason.
    pub(super) fn gather<T>(
        &self,
        mine: Result<T, String>,
        encode: impl Fn(&T) -> Vec<u8>,
        decode: impl Fn(&[u8]) -> Result<T, CodecError>,
    ) -> Result<Vec<T>, Fault> {
        if self.is_alone() {
            return Ok(vec![mine.map_err(Fault::Failed)?]);
        }
        let mine: Result<Vec<u8>, String> = mine.map(|part| encode(&part));
        let parts = gather_bytes(&self.group, codec::encode(&mine))?;
        let part = |(rank, bytes): (usize, &Vec<u8>)| -> Result<T, Fault> {
            let failed = |reason: String| Fault::Failed(format!("rank {rank}: {reason}"));
            let part: Result<Vec<u8>, String> = codec::decode(bytes).map_err(|error| failed(error.to_string()))?;
            decode(&part.map_err(failed)?).map_err(|error| failed(error.to_string()))
        };
        parts.iter().enumerate().map(part).collect()
    }

    /// Gives rank 0's bytes, or the reason why there are none, to all ranks.
    pub(super) fn of_first(&self, mine: Result<Vec<u8>, String>) -> Result<Vec<u8>, Fault> {
        if self.is_alone() {
            return mine.map_err(Fault::Failed);
        }
        let bytes = broadcast_bytes(&self.group, codec::encode(&mine), 0, Patience::Step)?;
        let first: Result<Vec<u8>, String> = codec::decode(&bytes).map_err(|error| Fault::Failed(error.to_string()))?;
        first.map_err(|reason| Fault::Failed(format!("rank 0: {reason}")))
    }

    /// Succeeds if all ranks do. A rank's own reason wins over those of others.
    pub(super) fn agree<T>(&self, outcome: Result<T, Stop>) -> Result<T, Stop> {
        self.settle(outcome, false)
    }

    /// Makes the outcome of a command one for all ranks. After a command that `changes` the
    /// trainer, ranks that did it and ranks that did not are in different states.
    pub(super) fn settle<T>(&self, outcome: Result<T, Stop>, changes: bool) -> Result<T, Stop> {
        if self.is_alone() || matches!(outcome, Err(Stop::Ended(_))) {
            return outcome;
        }
        let decode = |bytes: &[u8]| codec::decode::<(u8, String)>(bytes);
        let outcomes = self.gather(Ok(status(&outcome)), codec::encode::<(u8, String)>, decode)?;
        let reason = |kind: u8| {
            let found = outcomes.iter().enumerate().find(|(_, (other, _))| *other == kind);
            found.map(|(rank, (_, reason))| format!("rank {rank}: {reason}"))
        };
        if let Some(reason) = reason(BROKEN) {
            return Err(Stop::Broken(reason));
        }
        let Some(reason) = reason(FAILED).or_else(|| reason(REFUSED)) else {
            return outcome;
        };
        if changes && outcomes.iter().any(|(kind, _)| *kind == DONE) {
            return Err(Stop::Broken(reason));
        }
        match outcome {
            Ok(_) => Err(Stop::Failed(reason)),
            Err(own) => Err(own),
        }
    }

    pub(super) fn group(&self) -> &Shared {
        &self.group
    }
}

fn status<T>(outcome: &Result<T, Stop>) -> (u8, String) {
    match outcome {
        Ok(_) => (DONE, String::new()),
        Err(Stop::Refused(reason)) => (REFUSED, reason.to_string()),
        Err(Stop::Failed(reason)) => (FAILED, reason.clone()),
        // An ended group has no statuses.
        Err(Stop::Broken(reason)) => (BROKEN, reason.clone()),
        Err(Stop::Ended(error)) => (BROKEN, error.to_string()),
    }
}
