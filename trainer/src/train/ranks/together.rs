//! Runs work of all ranks at once, such as reading files from disks of different speeds.
//!
//! A thread of each rank exchanges signs of life until all ranks have done their work, however long
//! it takes. A dead or stopped rank ends the group. So does a rank whose work makes no mark for too
//! long, because its disk hangs. Each rank logs the loss at once, and ends when its own work is
//! done. A process whose own work hangs is ended by its watch or from outside: the watch of rank 0
//! begins after the build, and later ranks have none.
//!
//! A rank that is done marks its own pulse when others make progress, because its watch would end
//! it otherwise. A rank that works does not, so a hung rank has no marks.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use broker::fail::point_of;

use super::Ranks;
use super::solo::spawn_signs;
use crate::collective::{Collective, CollectiveError, Shared, gather_bytes};
use crate::pulse::Pulse;

/// The stage of this rank's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Works,
    Done,
    /// The work panicked.
    Gone,
}

/// This rank's work, as its thread of signs sees it.
struct Work<'a> {
    group: &'a Shared,
    pulse: &'a Pulse,
    /// The time between two signs of a rank that works.
    every: Duration,
    /// The time after which a rank that works and makes no mark is stuck.
    limit: Duration,
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Work<'_> {
    /// Exchanges signs until all ranks have done their work. A rank that is done waits for the
    /// others inside the exchange.
    fn sign(&self) -> Result<(), CollectiveError> {
        let mut seen = Seen::default();
        loop {
            let works = |stage: &mut Stage| *stage == Stage::Works;
            let waited = self.changed.wait_timeout_while(self.lock(), self.every, works);
            let stage = *waited.unwrap_or_else(PoisonError::into_inner).0;
            let own = match stage {
                Stage::Gone => return Ok(()),
                Stage::Works => self.pulse.look().marks.to_le_bytes().to_vec(),
                Stage::Done => Vec::new(),
            };
            let signs = gather_bytes(self.group, own)?;
            if signs.iter().all(Vec::is_empty) {
                return Ok(());
            }
            if seen.look(signs) && stage == Stage::Done {
                self.pulse.mark();
            }
            self.check(&seen)?;
        }
    }

    /// Fails on all ranks at once if a rank is stuck: all count the same exchanges.
    fn check(&self, seen: &Seen) -> Result<(), CollectiveError> {
        let stuck = seen.still.iter().position(|still| self.every * *still >= self.limit);
        stuck.map_or(Ok(()), |rank| {
            Err(CollectiveError::Stuck {
                rank,
                world_size: self.group.world_size(),
                waited: self.every * seen.still[rank],
            })
        })
    }

    fn enter(&self, stage: Stage) {
        *self.lock() = stage;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signs of all ranks: the marks of a rank that works, and nothing from one that is done.
#[derive(Default)]
struct Seen {
    last: Vec<Vec<u8>>,
    /// For each rank the successive exchanges in which it worked and made no mark. Each takes at
    /// least [`Work::every`], because the rank waits for that long before it signs.
    still: Vec<u32>,
}

impl Seen {
    /// Takes the signs of an exchange. Returns true if some rank has made progress.
    fn look(&mut self, signs: Vec<Vec<u8>>) -> bool {
        let moved = self.last != signs;
        self.still.resize(signs.len(), 0);
        for (rank, still) in self.still.iter_mut().enumerate() {
            let stands = !signs[rank].is_empty() && self.last.get(rank) == Some(&signs[rank]);
            *still = if stands { *still + 1 } else { 0 };
        }
        self.last = signs;
        moved
    }
}

/// Ends the signs after a panic.
struct Leaving<'a>(&'a Work<'a>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Stage::Gone);
        }
    }
}

impl Ranks {
    /// Runs `work`, which all ranks do at once. `work` must make no exchange itself, and marks its
    /// progress on [`Ranks::pulse`]. Returns its result when all ranks are done. An error means
    /// that a rank was lost meanwhile, or made no mark for the group's timeout and for `least`.
    pub(in crate::train) fn together<T>(
        &self,
        least: Duration,
        work: impl FnOnce() -> T,
    ) -> (T, Result<(), CollectiveError>) {
        let Some(every) = self.sign_every() else {
            return (work(), Ok(()));
        };
        let own = &Work {
            group: self.group(),
            pulse: self.pulse(),
            every,
            limit: least.max(every * 2),
            stage: Mutex::new(Stage::Works),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            let _leaving = Leaving(own);
            let signs = spawn_signs(scope, || own.sign().inspect_err(report));
            point_of("together.begun", &self.rank());
            let done = work();
            own.enter(Stage::Done);
            let met = match signs {
                Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                None => own.sign().inspect_err(report),
            };
            (done, met)
        })
    }
}

/// Reports a lost rank as soon as it is noticed: this rank may work for much longer.
fn report(error: &CollectiveError) {
    tracing::error!(%error, "a rank is lost: this one ends when its own work is done");
}
