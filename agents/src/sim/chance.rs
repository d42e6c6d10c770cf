//! The only source of chance in a schedule, and a digest of its events, by which two runs of a seed
//! are compared.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rollout::shuffle::SplitMix;

/// Decides what goes wrong. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Chance(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    dice: SplitMix,
    /// True while faults may happen.
    on: bool,
    slow: bool,
    faults: u64,
    trace: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            dice: SplitMix::new(seed),
            on: true,
            slow: false,
            faults: 0,
            trace: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn below(&self, n: usize) -> usize {
        self.lock().dice.below(n)
    }

    /// Returns true once in `n` times on average, while faults may happen.
    pub(super) fn strikes(&self, n: usize) -> bool {
        let mut state = self.lock();
        let strikes = state.on && state.dice.below(n) == 0;
        state.faults += u64::from(strikes);
        strikes
    }

    /// Stops all further faults.
    pub(super) fn rest(&self) {
        self.lock().on = false;
    }

    /// Delays each message to its queue by a millisecond from now on.
    pub(super) fn slow(&self) {
        self.lock().slow = true;
    }

    pub(super) fn is_slow(&self) -> bool {
        self.lock().slow
    }

    pub(super) fn faults(&self) -> u64 {
        self.lock().faults
    }

    /// Records an event that every run of the seed must have at this point.
    pub(super) fn note(&self, what: &str, size: usize) {
        let mut state = self.lock();
        for byte in what.bytes().chain(size.to_le_bytes()) {
            state.trace = (state.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.lock().trace
    }
}
