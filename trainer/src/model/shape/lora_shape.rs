//! Low-rank adapters (Hu et al., "LoRA", arXiv:2106.09685): `y = x W^T + alpha/rank (x A^T) B^T` on
//! chosen linear layers of a frozen base.
//!
//! An adapter is stored as separate [`Weights`](crate::model::Weights), with A (`[rank, in]`) and B
//! (`[out, rank]`) of each module under PEFT's names. It is trained, published, saved and digested
//! like a whole model; the base is shared.

use std::fmt;

use configs::LoraConfig;

use super::model_shape::ModelShape;
use crate::model::error::{ModelError, Result};

/// A linear layer that an adapter may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Module {
    Query,
    Key,
    Value,
    Output,
    Gate,
    Up,
    Down,
    /// The head. In a tied model it changes the logits only, never the embedding.
    Head,
}

impl Module {
    /// In the order of the buffer.
    pub const ALL: [Self; 8] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::Head,
    ];

    /// The name in PEFT's `target_modules`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
            Self::Head => "lm_head",
        }
    }

    /// The path in the model. The head ignores the layer.
    pub(in crate::model) fn path(self, layer: usize) -> String {
        let part = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
            Self::Head => return self.name().to_owned(),
        };
        format!("model.layers.{layer}.{part}.{}", self.name())
    }

    /// The widths of its input and its output.
    #[must_use]
    pub fn widths(self, shape: &ModelShape) -> (usize, usize) {
        let (queries, keys) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        match self {
            Self::Query => (shape.hidden, queries),
            Self::Key | Self::Value => (shape.hidden, keys),
            Self::Output => (queries, shape.hidden),
            Self::Gate | Self::Up => (shape.hidden, shape.intermediate),
            Self::Down => (shape.intermediate, shape.hidden),
            Self::Head => (shape.hidden, shape.vocab),
        }
    }
}

/// The modules that an adapter changes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Targets([bool; 8]);

impl Targets {
    #[must_use]
    pub fn has(self, module: Module) -> bool {
        self.0[module as usize]
    }

    pub fn add(&mut self, module: Module) {
        self.0[module as usize] = true;
    }

    /// In the order of the buffer.
    pub fn iter(self) -> impl Iterator<Item = Module> {
        Module::ALL.into_iter().filter(move |module| self.has(*module))
    }
}

impl FromIterator<Module> for Targets {
    fn from_iter<I: IntoIterator<Item = Module>>(modules: I) -> Self {
        let mut targets = Self::default();
        modules.into_iter().for_each(|module| targets.add(module));
        targets
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Module::name)).finish()
    }
}

/// The shape of an adapter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoraShape {
    /// Width of the bottleneck.
    pub rank: usize,
    /// The change is scaled by `alpha / rank`, which keeps the best learning rate nearly the same
    /// at every rank.
    pub alpha: f64,
    pub targets: Targets,
}

impl LoraShape {
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`ModelError::Shape`].
    pub fn validate(&self) -> Result<()> {
        if self.rank == 0 {
            return Err(ModelError::shape("lora: the rank is 0"));
        }
        if self.rank > LoraConfig::LARGEST_RANK {
            let reason = format!(
                "lora: the rank is {}, and at most {} is supported",
                self.rank,
                LoraConfig::LARGEST_RANK
            );
            return Err(ModelError::shape(reason));
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(ModelError::shape("lora: alpha must be positive"));
        }
        if self.targets == Targets::default() {
            return Err(ModelError::shape("lora: no module is a target"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_that_cannot_be_are_refused() {
        let good = LoraShape {
            rank: 4,
            alpha: 8.0,
            targets: [Module::Query].into_iter().collect(),
        };
        assert!(good.validate().is_ok() && good.scale() == 2.0);
        let targets = Targets::default();
        assert!(LoraShape { rank: 0, ..good }.validate().is_err());
        assert!(LoraShape { alpha: 0.0, ..good }.validate().is_err());
        assert!(LoraShape { targets, ..good }.validate().is_err());
    }
}
