//! The normal form of texts.

pub(super) mod normal;
