//! Work of rank 0 alone, such as writing files, while the other ranks wait.
//!
//! Rank 0 may need pieces of the others' state, and asks for them by requests. A thread of rank 0
//! sends signs of life between the requests, however long the work takes. A rank 0 that is stopped
//! or dead sends none. The watch of rank 0's own process ends it if the work makes no progress.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use tch::{Device, Kind, TchError, Tensor};

use super::Ranks;
use crate::collective::{Collective, CollectiveError, Operation, Patience, Shared};

/// Three numbers for the other ranks: a kind of request, and its arguments.
pub(in crate::train) type Request = [i64; 3];

/// The kinds of requests that carry nothing are below 0.
const END: i64 = -1;
const SIGN: i64 = -2;

/// Rank 0's work, as its thread of signs sees it.
pub(in crate::train) struct Solo<'a> {
    group: &'a Shared,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    lost: Option<CollectiveError>,
}

impl Solo<'_> {
    /// Sends a request and makes the exchange that follows it on all ranks.
    pub(in crate::train) fn ask(
        &self,
        request: Request,
        exchange: impl FnOnce() -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        // No sign comes between a request and its exchange.
        let mut state = self.lock();
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        let made = send(self.group, request).and_then(|()| exchange());
        if let Err(error) = &made {
            state.lost = Some(error.clone());
        }
        made
    }

    /// Sends signs until the work is over or a rank is lost.
    fn sign(&self, every: Duration) {
        let mut state = self.lock();
        loop {
            let waited = self.ended.wait_timeout_while(state, every, |state| !state.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over || state.lost.is_some() {
                return;
            }
            state.lost = send(self.group, [SIGN, 0, 0]).err();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the signs, also after a panic.
struct Ending<'a>(&'a Solo<'a>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.ended.notify_all();
    }
}

impl Ranks {
    /// Runs `work` on rank 0, while the other ranks [attend](Self::attend). An error means that a
    /// rank was lost meanwhile.
    pub(in crate::train) fn solo<T>(&self, work: impl FnOnce(&Solo<'_>) -> T) -> Result<T, CollectiveError> {
        let solo = &Solo {
            group: self.group(),
            state: Mutex::default(),
            ended: Condvar::new(),
        };
        if self.is_alone() {
            return Ok(work(solo));
        }
        let done = std::thread::scope(|scope| {
            let _ending = Ending(solo);
            if let Some(every) = self.sign_every() {
                spawn_signs(scope, move || solo.sign(every));
            }
            work(solo)
        });
        solo.ask([END, 0, 0], || Ok(())).map(|()| done)
    }

    /// Waits for rank 0's next request on another rank. Returns `None` when rank 0 has done its
    /// work.
    pub(in crate::train) fn attend(&self) -> Result<Option<Request>, CollectiveError> {
        loop {
            match receive(self.group())? {
                [END, ..] => return Ok(None),
                [SIGN, ..] => {}
                request => return Ok(Some(request)),
            }
        }
    }
}

/// Starts the thread of signs. Without one, which is logged, this rank may be taken for lost.
pub(super) fn spawn_signs<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    sign: impl FnOnce() -> T + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, T>> {
    let thread = std::thread::Builder::new().name("signs of life".into());
    let started = thread.spawn_scoped(scope, sign);
    started
        .inspect_err(|error| {
            tracing::warn!(%error, "no thread for signs of life: other ranks may give up while this one works");
        })
        .ok()
}

fn send(group: &Shared, request: Request) -> Result<(), CollectiveError> {
    let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
    let mut value = Tensor::f_from_slice(&request).map_err(call)?;
    group.broadcast(&mut value, 0, Patience::Step)
}

fn receive(group: &Shared) -> Result<Request, CollectiveError> {
    let call = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
    let mut value = Tensor::f_zeros([3], (Kind::Int64, Device::Cpu)).map_err(call)?;
    group.broadcast(&mut value, 0, Patience::Idle)?;
    let at = |index: i64| value.f_int64_value(&[index]).map_err(call);
    Ok([at(0)?, at(1)?, at(2)?])
}
