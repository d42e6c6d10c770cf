//! The shape of a model: its sizes, its adapters, and the layout of its parameters.

mod architecture;
mod layout;
mod lora_shape;
mod model_shape;
mod rope_scaling;

pub use architecture::{Architecture, Biases};
pub use layout::{Layout, ParamKind, ParamSpec};
pub use lora_shape::{LoraShape, Module, Targets};
pub use model_shape::ModelShape;
pub use rope_scaling::{Rope, RopeScaling, Yarn};

#[cfg(test)]
pub(crate) use model_shape::tests::tiny;
