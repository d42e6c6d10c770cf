//! Why weights from another process are rejected.

use broker::ids::WeightVersion;

/// Why weights from another process are rejected. The held state is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    #[error("the weights end after {found} bytes: they were cut off on the way; fetch them again")]
    Short { found: usize },
    #[error("these bytes are not weights of this release ({0}): run the same release everywhere")]
    Foreign(&'static str),
    #[error(
        "weights {version} belong to another model (other parameters, type of numbers or base): give both processes the same configuration \
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

/// The version that a receiver holds, if any.
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
