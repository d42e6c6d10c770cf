//! The host memory that both sides of a transfer take for weights of a number of bytes.
//!
//! The estimate of a run's memory counts these bytes, and tests compare them with real peaks.

/// The weights replace a delta that is at least 1/`DELTA` of them.
pub(super) const DELTA: usize = 4;

/// A packed message with the whole saves at least this part of the weights.
pub(super) const SAVED: usize = 10;

/// The weights on the shelf and the next ones. The deltas to the former exist while the next delta
/// is made and packed.
#[must_use]
pub fn of_trained(bytes: u64) -> u64 {
    2 * bytes + 3 * (bytes / DELTA as u64)
}

/// The agent's own weights, which never change, and their copy on the shelf.
#[must_use]
pub fn of_frozen(bytes: u64) -> u64 {
    2 * bytes
}

/// The packed message that the first engine on another host asks for.
#[must_use]
pub fn of_packed(bytes: u64) -> u64 {
    bytes - bytes / SAVED as u64
}

/// The receiver's state, and the weights made from it or the message that replaces it.
#[must_use]
pub fn of_receiver(bytes: u64) -> u64 {
    2 * bytes
}
