//! Parts of one turn that both sides need: frames, prompts, context room, failures and tasks.

pub mod failure;
pub mod frames;
pub mod image_support;
pub mod past;
pub mod recent;
pub mod render;
pub mod room;
pub mod sampling;
pub mod task_check;
pub mod tasks;
