//! What one turn needs on both sides: frames, prompts, the room left in a context, failures and tasks.

pub mod failure;
pub mod frames;
pub mod image_support;
pub mod past;
pub mod recent;
pub mod render;
pub mod room;
pub mod sampling;
pub mod tasks;
