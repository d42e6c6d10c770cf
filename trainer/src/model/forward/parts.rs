//! The weights that a model is bound to.

use crate::model::weights::Weights;

/// What a model is bound to: whole weights, or a frozen base and an adapter of it.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    pub base: &'a Weights,
    pub adapter: Option<&'a Weights>,
}

impl<'a> Parts<'a> {
    /// `weights` are an adapter of `base` where there is a base, and the whole model where there is none.
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
