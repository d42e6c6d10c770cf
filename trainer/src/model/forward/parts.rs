//! The weights that a model is bound to.

use crate::model::weights::Weights;

/// The weights of a model: a whole model, or a frozen base and an adapter of it.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub base: &'a Weights,
    pub adapter: Option<&'a Weights>,
}

impl<'a> Parts<'a> {
    /// With a base, `weights` are an adapter of it; without one, they are the whole model.
    #[must_use]
    pub fn over(base: Option<&'a Weights>, weights: &'a Weights) -> Self {
        match base {
            Some(base) => Self {
                base,
                adapter: Some(weights),
            },
            None => weights.into(),
        }
    }
}

impl<'a> From<&'a Weights> for Parts<'a> {
    fn from(base: &'a Weights) -> Self {
        Self { base, adapter: None }
    }
}
