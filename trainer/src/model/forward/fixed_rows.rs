//! Products in blocks of [`BLOCK`] rows, so that the bits of a row do not depend on the other rows.

use tch::{Device, Kind, Tensor};

use super::decoder::Decoder;
use super::layer::{Layer, Linear};
use crate::model::error::Result;
use crate::ordered::Ordered;

/// The number of rows in every product.
pub(super) const BLOCK: usize = 64;
impl Decoder {
    /// Logits, `[n, vocab]` in f32, of states `[n, hidden]` before the final norm.
    pub(in crate::model) fn fixed_logits(&self, states: &Tensor) -> Result<Tensor> {
        let block = self.block(states.size2()?.0 as usize);
        let logits = blocks(states, block)?
            .iter()
            .map(|states| self.next_logits(states))
            .collect::<Result<Vec<_>>>()?;
        Ok(Tensor::f_cat(&logits, 0)?.f_narrow(0, 0, states.size2()?.0)?)
    }

    /// The number of rows in every product of `count` tokens: [`BLOCK`], or all of them if the rows
    /// of each product are independent.
    pub(in crate::model) fn block(&self, count: usize) -> usize {
        let apart =
            |linear: &Linear| linear.ordered.as_ref().is_some_and(Ordered::keeps_rows_apart) && linear.delta.is_none();
        let layer = |layer: &Layer| {
            [&layer.qkv, &layer.output, &layer.gate_up, &layer.down]
                .into_iter()
                .all(apart)
        };
        let head = self.head.is_in_order() && self.head.delta().is_none();
        if head && self.layers.iter().all(layer) {
            count.max(1)
        } else {
            BLOCK
        }
    }

    /// Tests on this machine that a row of a block has the same bits at every place and with any
    /// neighbours, in every matrix of this model and its adapter. Computes each product several
    /// times.
    pub(crate) fn try_fixed(&self) -> Result<bool> {
        for tried in self.trials()? {
            let (width, kind) = (tried.weight.size2()?.1, tried.kind());
            if !indifferent(width, kind, self.device(), |x| tried.forward(x))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The products of a layer and of the head, with an adapter that adds something.
    fn trials(&self) -> Result<Vec<Linear>> {
        let layer = self.layers.first();
        let linears = layer.map(|layer| [&layer.qkv, &layer.output, &layer.gate_up, &layer.down]);
        let mut trials = linears
            .into_iter()
            .flatten()
            .map(Linear::for_trial)
            .collect::<Result<Vec<_>>>()?;
        trials.push(self.head.for_trial()?);
        Ok(trials)
    }
}

/// Returns true if `compute` gives a row the same bits in a block of copies of it and at several
/// places in a block of other rows.
fn indifferent(width: i64, kind: Kind, device: Device, compute: impl Fn(&Tensor) -> Result<Tensor>) -> Result<bool> {
    let rows = BLOCK as i64;
    let values = Tensor::f_arange(rows * width, (Kind::Float, device))?
        .f_mul_scalar(0.7)?
        .f_sin()?;
    let others = values.f_view([rows, width])?.f_to_kind(kind)?;
    let one = others.f_narrow(0, 5, 1)?;
    let alone = compute(&one.f_repeat([rows, 1])?)?;
    let wanted = alone.f_narrow(0, 0, 1)?;
    let mut same = alone.f_eq_tensor(&wanted)?.f_all()?.f_int64_value(&[])? == 1;
    for place in [0, 1, rows / 2 + 1, rows - 1] {
        let mut mixed = others.f_empty_like()?;
        mixed.f_copy_(&others)?;
        mixed.f_narrow(0, place, 1)?.f_copy_(&one)?;
        let made = compute(&mixed)?.f_narrow(0, place, 1)?;
        same &= made.f_equal(&wanted)?;
    }
    Ok(same)
}

pub(in crate::model) fn filled_up(values: &[i64], block: usize) -> Vec<i64> {
    let mut values = values.to_vec();
    values.resize(block, 0);
    values
}

/// Splits `[n, width]` into blocks, the last padded with zeros.
pub(in crate::model) fn blocks(all: &Tensor, block: usize) -> Result<Vec<Tensor>> {
    let (count, width) = all.size2()?;
    let missing = (count as usize).next_multiple_of(block) as i64 - count;
    let padded = if missing > 0 {
        let zeros = Tensor::f_zeros([missing, width], (all.kind(), all.device()))?;
        Tensor::f_cat(&[all, &zeros], 0)?
    } else {
        all.f_contiguous()?
    };
    Ok(padded.f_split(block as i64, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::forward::Parts;
    use crate::model::shape::{LoraShape, Module, tiny as test_shape};
    use crate::model::weights::{Init, Weights};

    /// A fresh adapter adds 0: only other numbers reveal how its products are computed.
    #[test]
    fn trials_of_a_fresh_adapter_change_each_target() {
        let _no_grad = tch::no_grad_guard();
        let shape = test_shape();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.1,
        };
        let base = Weights::random(&shape, init, 1).unwrap();
        // The products in order: queries, keys and values are one, and so are gate and up.
        let products = [0, 0, 0, 1, 2, 2, 3, 4];
        for (module, product) in Module::ALL.into_iter().zip(products) {
            let lora = LoraShape {
                rank: 4,
                alpha: 8.0,
                targets: [module].into_iter().collect(),
            };
            let adapter = Weights::adapter(&shape, &lora, 2).unwrap();
            let decoder = Decoder::new(&shape, Parts::over(Some(&base), &adapter)).unwrap();
            let changed = |tried: &Linear| {
                let options = (tried.kind(), tried.weight.device());
                let x = Tensor::ones([2, tried.weight.size()[1]], options);
                let plain = Linear {
                    delta: None,
                    ..tried.for_trial().unwrap()
                };
                !tried.forward(&x).unwrap().equal(&plain.forward(&x).unwrap())
            };
            let found: Vec<bool> = decoder.trials().unwrap().iter().map(changed).collect();
            let wanted: Vec<bool> = (0..5).map(|place| place == product).collect();
            assert_eq!(found, wanted, "{}", module.name());
        }
    }

    #[test]
    fn a_row_that_depends_on_its_neighbours_or_its_place_is_found() {
        let tried = |compute: &dyn Fn(&Tensor) -> Tensor| {
            indifferent(24, Kind::Float, Device::Cpu, |x| Ok(compute(x))).unwrap()
        };
        assert!(tried(&|x| x * 3.0));
        assert!(!tried(&|x| x + x.mean_dim(&[0i64][..], true, Kind::Float) * 1e-6));
        assert!(!tried(&|x| x + Tensor::arange(64, (Kind::Float, Device::Cpu))
            .unsqueeze(1)
            * 1e-6));
    }
}
