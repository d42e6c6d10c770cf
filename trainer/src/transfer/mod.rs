//! Sends weights to another process: whole, or as the changes since a version that the receiver
//! holds.
//!
//! A trainer's weights are copied in the engine's own type ([`Form`]) into a [`State`]. A message
//! ([`message`]) has a fixed header ([`header`]) and a body ([`body`]). An optimizer step changes
//! few of an engine's bf16 values, and those by one or two units in the last place. A delta
//! therefore holds the gaps between changed elements and the differences of their bits, as
//! variable-length numbers, then zstd.
//!
//! The header has a BLAKE3 digest over the whole resulting state, its version and the delta's base.
//! The receiver changes its state in place and keeps the result only if the digest matches. So a
//! state never mixes two versions, and never has the name of another state.
//!
//! [`Shelf`] is the trainer's side: receivers fetch the newest weights and deltas there.
//! [`ShelfSink`] fills it. [`footprint`] has the memory that both sides take.

mod body;
mod error;
pub mod footprint;
mod header;
mod message;
mod shelf;
mod sink;
mod state;
#[cfg(test)]
mod tests;

pub use error::{Held, TransferError};
pub use message::{Part, apply, delta, full, largest};
pub use shelf::{Offer, OfferCounts, Shelf};
pub use sink::{AnnounceState, ShelfSink};
pub use state::{Form, State};
