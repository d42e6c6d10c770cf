//! The one place with unsafe code: what libtorch and the system offer through foreign calls only.
#![allow(unsafe_code)]

pub(crate) mod floats;
pub(crate) mod fused_adamw;
mod library;
mod mapped;
pub(crate) mod onednn;

pub(crate) use library::open_globally;
pub(crate) use mapped::MappedFile;
