//! Weights on their way to another process: whole, or as what has changed since a version that the receiver holds.
//!
//! A trainer's weights are copied in the engine's own type ([`Form`]) into a [`State`]; what travels are messages
//! ([`message`]): a fixed header ([`header`]), and a body ([`body`]). An engine moves by an optimizer step in few of its bf16 values, and in
//! those by a unit or two in the last place, so a delta is the gaps between changed elements and the differences of their bits, as
//! variable-length numbers, then zstd. The header has the BLAKE3 digest of the whole state that results: the receiver works on
//! a copy and takes it only if that is right, so a state is never half of one version and half of another.
//!
//! [`Shelf`] is the trainer's side, where newest weights and deltas lie for whoever fetches them; [`ShelfSink`] fills it.

mod body;
mod header;
mod message;
mod shelf;
mod sink;
mod state;
#[cfg(test)]
mod tests;

pub use message::{apply, delta, full, largest};
pub use shelf::{Offer, Shelf};
pub use sink::{Announce, ShelfSink};
pub use state::{Form, State};

use broker::ids::WeightVersion;

/// Why weights from another process are not taken. What was held before is untouched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    #[error("the weights end after {found} bytes: they were cut off on the way; fetch them again")]
    Short { found: usize },
    #[error("these bytes are no weights of this release ({0}): run the same release everywhere")]
    Foreign(&'static str),
    #[error(
        "weights {version} are of another model (other parameters, type of numbers or base): give both processes the same configuration \
         and model"
    )]
    Form { version: WeightVersion },
    #[error("weights {version} are a delta from {base}, and {held} is held: fetch them whole")]
    Base {
        version: WeightVersion,
        base: WeightVersion,
        held: Held,
    },
    #[error("weights {version} are damaged: {what}; fetch them again, whole")]
    Damaged { version: WeightVersion, what: &'static str },
    #[error("weights {version} do not have the digest that was announced: fetch them again, whole")]
    Digest { version: WeightVersion },
    #[error("{bytes} bytes are not {elements} elements of this type")]
    Length { bytes: usize, elements: usize },
}

/// What a receiver holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held(pub Option<WeightVersion>);

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(version) => version.fmt(f),
            None => f.write_str("nothing"),
        }
    }
}
