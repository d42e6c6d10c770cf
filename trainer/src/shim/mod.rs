//! The only unsafe code of the crate: functions of libtorch and the system that exist only as
//! foreign calls.
#![allow(unsafe_code)]

pub(crate) mod context;
pub(crate) mod flash;
pub(crate) mod floats;
pub(crate) mod fused_adamw;
pub(crate) mod graph;
pub(crate) mod group;
pub(crate) mod interface;
mod library;
mod mapped;
pub(crate) mod memory;
mod message;
pub(crate) mod onednn;

pub(crate) use library::{open_globally, own_interface};
pub(crate) use mapped::MappedFile;
