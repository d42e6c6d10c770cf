//! The output matrix with an adapter's change. Logits are always f32.

use tch::{Kind, Tensor};

use super::layer::Linear;
use crate::bf16_product;
use crate::linear::linear;
use crate::model::adapters::Delta;
use crate::model::error::Result;
use crate::ordered::Ordered;

/// The output matrix, and an adapter's change to it.
#[derive(Debug)]
pub(in crate::model) struct Head {
    pub(super) matrix: Tensor,
    pub(in crate::model) delta: Option<Delta>,
    /// True if the matrix belongs to a frozen base.
    frozen: bool,
    /// The f32 copies, if the model has another kind.
    pub(super) wide: Option<WideHead>,
    /// Set in an engine.
    ordered: Option<Ordered>,
}

#[derive(Debug)]
pub(super) struct WideHead {
    /// `None` if no f32 copy is needed: the device multiplies bf16 matrices with f32 sums, or the
    /// matrix is in order.
    matrix: Option<Tensor>,
    delta: Option<Delta>,
}

impl Head {
    /// Builds a head. Takes over the f32 copy of `before` if that head has the same frozen matrix.
    pub(in crate::model) fn new(
        matrix: Tensor,
        delta: Option<Delta>,
        frozen: bool,
        before: Option<&Self>,
    ) -> Result<Self> {
        let mut head = Self {
            matrix,
            delta,
            frozen,
            wide: None,
            ordered: None,
        };
        if let Some(matrix) = before.and_then(|before| before.wide_of(&head)) {
            head.wide = Some(WideHead {
                matrix: Some(matrix),
                delta: None,
            });
        }
        if before.is_some_and(Self::is_in_order) && head.matrix.kind() != Kind::Float {
            // This head will be put in order too.
            head.wide = Some(WideHead {
                matrix: None,
                delta: None,
            });
        }
        head.follow()?;
        Ok(head)
    }

    /// The f32 copy, if `other` has the same matrix; both then share its memory.
    fn wide_of(&self, other: &Self) -> Option<Tensor> {
        let same = self.matrix.data_ptr() == other.matrix.data_ptr() && self.matrix.size() == other.matrix.size();
        let wide = self.wide.as_ref().filter(|_| same && self.frozen && other.frozen)?;
        Some(wide.matrix.as_ref()?.shallow_clone())
    }

    /// Updates the f32 copies of tensors of another kind.
    pub(super) fn follow(&mut self) -> Result<()> {
        if !self.frozen {
            self.ordered = None;
        }
        if self.matrix.kind() == Kind::Float {
            return Ok(());
        }
        let matrix = self.matrix.f_detach()?;
        let delta = self
            .delta
            .as_ref()
            .map(|delta| delta.to_kind(Kind::Float))
            .transpose()?;
        if let Some(wide) = &mut self.wide {
            // The copy is large, so it is updated in place.
            if let Some(copy) = wide.matrix.as_mut().filter(|_| !self.frozen) {
                copy.f_copy_(&matrix)?;
            }
            wide.delta = delta;
        } else {
            let needs_none = matrix.kind() == Kind::BFloat16 && bf16_product::serves(matrix.device());
            let copy = (!needs_none).then(|| matrix.f_to_kind(Kind::Float)).transpose()?;
            self.wide = Some(WideHead { matrix: copy, delta });
        }
        Ok(())
    }

    /// Returns true if the matrix belongs to a frozen base; then all matrices of the model do.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    pub(super) fn is_in_order(&self) -> bool {
        self.ordered.is_some()
    }

    /// Orders the matrix in its own kind and drops the f32 copy.
    pub(super) fn put_in_order(&mut self) {
        self.ordered = Ordered::exact(&self.matrix, self.frozen);
        if let (Some(_), Some(wide)) = (&self.ordered, &mut self.wide) {
            wide.matrix = None;
        }
    }

    /// Logits, `[n, vocab]`, of `[n, hidden]`, in f32.
    pub(in crate::model) fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = match &self.ordered {
            Some(ordered) => ordered.times(hidden)?,
            None if self.matrix().kind() == Kind::BFloat16 => bf16_product::times(hidden, self.matrix())?,
            None => linear(hidden, self.matrix(), None)?,
        };
        match self.delta() {
            Some(delta) => delta.add_to(&logits, hidden),
            None => Ok(logits),
        }
    }

    /// The same as [`Linear::for_trial`].
    pub(in crate::model) fn for_trial(&self) -> Result<Linear> {
        Ok(Linear {
            weight: self.matrix().shallow_clone(),
            bias: None,
            ordered: self.ordered.clone(),
            delta: self.delta().map(Delta::for_trial).transpose()?,
        })
    }

    /// Returns the matrix in f32, or in bf16 if no f32 copy is needed.
    pub(super) fn matrix(&self) -> &Tensor {
        let copy = self.wide.as_ref().and_then(|wide| wide.matrix.as_ref());
        copy.unwrap_or(&self.matrix)
    }

    pub(in crate::model) fn delta(&self) -> Option<&Delta> {
        self.wide
            .as_ref()
            .map_or(self.delta.as_ref(), |wide| wide.delta.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::super::decoder::Decoder;
    use super::super::parts::Parts;
    use super::super::row_batch::RowBatch;
    use super::*;
    use crate::model::shape::{LoraShape, Module, tiny};
    use crate::model::weights::{Init, Weights};

    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn adapters_of_a_narrow_base_share_the_wide_copy_of_its_head() {
        let shape = tiny();
        let weights = Weights::random(
            &shape,
            Init {
                embedding_std: 1.0,
                matrix_std: 0.2,
            },
            3,
        )
        .unwrap();
        let lora = LoraShape {
            rank: 2,
            alpha: 4.0,
            targets: Module::ALL.into_iter().collect(),
        };
        let narrow = |weights: &Weights| weights.copied(Device::Cpu, Kind::BFloat16).unwrap();
        let base = narrow(&weights);
        let adapter = |by: f64| {
            let adapter = Weights::adapter(&shape, &lora, 5).unwrap();
            let _ = adapter.flat().shallow_clone().f_add_scalar_(by).unwrap();
            narrow(&adapter)
        };
        let (first, second) = (adapter(0.01), adapter(0.02));
        let over = |base, adapter| Parts::over(Some(base), adapter);
        let mut decoder = Decoder::new(&shape, over(&base, &first)).unwrap();
        decoder.follow().unwrap();
        let next = decoder.rebound(over(&base, &second)).unwrap();
        let place = |decoder: &Decoder| decoder.head_weight().data_ptr();
        assert_eq!(place(&next), place(&decoder));
        let batch = RowBatch::sharing(&shape, &[vec![3u32, 9, 22]], Device::Cpu, Kind::BFloat16).unwrap();
        let _guard = tch::no_grad_guard();
        let logits = |decoder: &Decoder| decoder.logits(&decoder.hidden(&batch).unwrap()).unwrap();
        let rebuilt = Decoder::new(&shape, over(&base, &second)).unwrap();
        assert_eq!(
            distance(&logits(&next), &logits(&rebuilt)),
            0.0,
            "with an adapter of its own"
        );
        assert_ne!(distance(&logits(&next), &logits(&decoder)), 0.0);
        let other = narrow(&weights);
        assert_ne!(place(&decoder.rebound(over(&other, &second)).unwrap()), place(&decoder));
        // A whole model changes, so its copy is separate and follows.
        let mut whole = Decoder::new(&shape, &base).unwrap();
        assert_ne!(place(&whole.rebound(&base).unwrap()), place(&whole));
        let _ = base.view("lm_head.weight").unwrap().f_add_scalar_(1.0).unwrap();
        whole.follow().unwrap();
        let again = Decoder::new(&shape, &base).unwrap();
        assert_eq!(distance(whole.head_weight(), again.head_weight()), 0.0);
    }
}
