//! Weights on their way to another process: whole, or as what has changed since a version that the receiver holds.
//!
//! A trainer's weights are copied in the engine's own type ([`Form`]) into a [`State`]; what travels are messages
//! ([`message`]): a fixed header ([`header`]), and a body ([`body`]). An engine moves by an optimizer step in few of its bf16 values, and in
//! those by a unit or two in the last place, so a delta is the gaps between changed elements and the differences of their bits, as
//! variable-length numbers, then zstd. The header has a BLAKE3 digest over the whole state that results, its version and
//! what a delta begins from: the receiver works on a copy and takes it only if that is right, so a state is never half of one version and half
//! of another, and has no other's name.
//!
//! [`Shelf`] is the trainer's side, where newest weights and deltas lie for whoever fetches them; [`ShelfSink`] fills it.

mod body;
mod error;
mod header;
mod message;
mod shelf;
mod sink;
mod state;
#[cfg(test)]
mod tests;

pub use error::{Held, TransferError};
pub use message::{apply, delta, full, largest};
pub use shelf::{Offer, Shelf, Taken};
pub use sink::{AnnounceState, ShelfSink};
pub use state::{Form, State};
