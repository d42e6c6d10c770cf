//! Runs work of all ranks at once, such as reading files from disks of different speeds.
//!
//! A thread of each rank exchanges signs of life until all ranks have done their work, however long
//! it takes. A dead or stopped rank ends the group. The watch of each process ends it if its work
//! makes no progress.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use broker::fail::point_of;

use super::Ranks;
use crate::collective::{CollectiveError, Shared, gather_bytes};

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
    /// The time between two signs of a rank that works.
    every: Duration,
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Work<'_> {
    /// Exchanges signs until all ranks have done their work. A rank that is done waits for the
    /// others inside the exchange.
    fn sign(&self) -> Result<(), CollectiveError> {
        loop {
            let works = |stage: &mut Stage| *stage == Stage::Works;
            let waited = self.changed.wait_timeout_while(self.lock(), self.every, works);
            let stage = *waited.unwrap_or_else(PoisonError::into_inner).0;
            if stage == Stage::Gone {
                return Ok(());
            }
            let signs = gather_bytes(self.group, vec![u8::from(stage == Stage::Done)])?;
            if signs.iter().all(|sign| *sign == [1]) {
                return Ok(());
            }
        }
    }

    fn enter(&self, stage: Stage) {
        *self.lock() = stage;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Runs `work`, which all ranks do at once. `work` must make no exchange itself. Returns its
    /// result when all ranks are done. An error means that a rank was lost meanwhile.
    pub(in crate::train) fn together<T>(&self, work: impl FnOnce() -> T) -> (T, Result<(), CollectiveError>) {
        let Some(every) = self.sign_every() else {
            return (work(), Ok(()));
        };
        let own = &Work {
            group: self.group(),
            every,
            stage: Mutex::new(Stage::Works),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            let _leaving = Leaving(own);
            let signs = std::thread::Builder::new().name("signs of life".into());
            let signs = signs.spawn_scoped(scope, || own.sign());
            point_of("together.begun", &self.rank());
            let done = work();
            own.enter(Stage::Done);
            let met = match signs {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => {
                    tracing::warn!(%error, "no thread for signs of life: other ranks may give up while this one works");
                    own.sign()
                }
            };
            (done, met)
        })
    }
}
