//! Rotary position embedding, rotate-half form: pairs are (i, i + d/2), as in Hugging Face's Qwen
//! and Llama.

use std::cell::RefCell;

use tch::{Device, Kind, Tensor};

use crate::model::error::Result;
use crate::model::shape::ModelShape;

/// Cosines and signed sines of positions, computed as far as needed: a table for a context of 128k
/// would be larger than a small model.
#[derive(Debug)]
pub(crate) struct RopeTable {
    /// `[head_dim / 2]` in f32 on the CPU.
    frequencies: Tensor,
    amplitude: f64,
    made: RefCell<Made>,
    device: Device,
    kind: Kind,
}

/// `[positions, head_dim]` each.
#[derive(Debug)]
struct Made {
    cos: Tensor,
    /// Negated in the first half, so that `x * cos + roll(x, d/2) * sin` is the rotation.
    sin: Tensor,
}

/// Positions of the first table.
const FIRST: usize = 512;

/// The table rows of some tokens' positions, `[tokens, 1, head_dim]`.
#[derive(Debug)]
pub(crate) struct RopeRows {
    cos: Tensor,
    sin: Tensor,
    half: i64,
}

impl RopeTable {
    pub(crate) fn new(shape: &ModelShape, device: Device, kind: Kind) -> Result<Self> {
        let frequencies = shape.rope.frequencies(shape.head_dim)?;
        let amplitude = shape.rope.amplitude();
        let made = make(&frequencies, amplitude, FIRST.min(shape.max_context), device, kind)?;
        Ok(Self {
            frequencies,
            amplitude,
            made: RefCell::new(made),
            device,
            kind,
        })
    }

    /// The table rows of `positions` (`[tokens]` of i64, each below `end`).
    pub(crate) fn rows(&self, positions: &Tensor, end: usize) -> Result<RopeRows> {
        self.reach(end)?;
        let made = self.made.borrow();
        let pick = |table: &Tensor| table.f_index_select(0, positions)?.f_unsqueeze(1);
        Ok(RopeRows {
            cos: pick(&made.cos)?,
            sin: pick(&made.sin)?,
            half: self.frequencies.size1()?,
        })
    }

    /// Computes the table up to position `end`.
    pub(crate) fn reach(&self, end: usize) -> Result<()> {
        let have = self.made.borrow().cos.size()[0] as usize;
        if end > have {
            let count = end.next_power_of_two();
            let made = make(&self.frequencies, self.amplitude, count, self.device, self.kind)?;
            self.made.replace(made);
        }
        Ok(())
    }

    /// The same table, with another kind of numbers.
    pub(crate) fn of_kind(&self, kind: Kind) -> Result<Self> {
        let mut other = self.shallow_clone();
        if kind != self.kind {
            let have = other.made.get_mut().cos.size()[0] as usize;
            other.kind = kind;
            other.made = RefCell::new(make(&self.frequencies, self.amplitude, have, self.device, kind)?);
        }
        Ok(other)
    }

    pub(crate) fn shallow_clone(&self) -> Self {
        let made = self.made.borrow();
        Self {
            frequencies: self.frequencies.shallow_clone(),
            amplitude: self.amplitude,
            made: RefCell::new(Made {
                cos: made.cos.shallow_clone(),
                sin: made.sin.shallow_clone(),
            }),
            device: self.device,
            kind: self.kind,
        }
    }
}

/// Angles in f32, in Hugging Face's order of operations, then cast to the model's kind.
fn make(frequencies: &Tensor, amplitude: f64, count: usize, device: Device, kind: Kind) -> Result<Made> {
    let _no_grad = tch::no_grad_guard();
    let angles = Tensor::f_arange(count as i64, (Kind::Float, Device::Cpu))?.f_outer(frequencies)?;
    let (mut cos, mut sin) = (angles.f_cos()?, angles.f_sin()?);
    if amplitude != 1.0 {
        (cos, sin) = (cos.f_mul_scalar(amplitude)?, sin.f_mul_scalar(amplitude)?);
    }
    let cos = Tensor::f_cat(&[&cos, &cos], 1)?;
    let sin = Tensor::f_cat(&[sin.f_neg()?, sin], 1)?;
    let place = |t: Tensor| t.f_to_device(device)?.f_to_kind(kind);
    Ok(Made {
        cos: place(cos)?,
        sin: place(sin)?,
    })
}

impl RopeRows {
    /// Cosines and signed sines, `[tokens, 1, head_dim]`.
    pub(super) fn tables(&self) -> [&Tensor; 2] {
        [&self.cos, &self.sin]
    }

    /// Rotates heads `x`, `[tokens, heads, head_dim]`, to their positions.
    pub(crate) fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let rolled = x.f_roll(self.half, -1)?;
        Ok(x.f_mul(&self.cos)?.f_addcmul(&rolled, &self.sin)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tiny;

    #[test]
    fn a_turn_is_the_rotation_of_each_pair() {
        let shape = tiny();
        let table = RopeTable::new(&shape, Device::Cpu, Kind::Float).unwrap();
        let rows = table.rows(&Tensor::from_slice(&[0i64, 5]), 6).unwrap();
        let x = Tensor::arange(16, (Kind::Float, Device::Cpu)).view([2, 1, 8]);
        let turned: Vec<f32> = rows.turn(&x).unwrap().view([-1]).try_into().unwrap();
        assert_eq!(
            turned[..8],
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
            "position 0 turns nothing"
        );
        for pair in 0..4usize {
            let angle = 5.0 * shape.rope.theta.powf(-(pair as f64) / 4.0);
            let (a, b) = ((8 + pair) as f64, (12 + pair) as f64);
            let wanted = [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()];
            assert!((f64::from(turned[8 + pair]) - wanted[0]).abs() < 1e-5);
            assert!((f64::from(turned[12 + pair]) - wanted[1]).abs() < 1e-5);
        }
    }

    #[test]
    fn a_longer_table_begins_as_the_shorter_one() {
        let shape = ModelShape {
            max_context: 100_000,
            ..tiny()
        };
        let table = RopeTable::new(&shape, Device::Cpu, Kind::Float).unwrap();
        let positions = Tensor::from_slice(&[3i64, 500]);
        let before = table.rows(&positions, 501).unwrap();
        let far = table.rows(&Tensor::from_slice(&[70_000i64]), 70_001).unwrap();
        assert_eq!(far.cos.size(), [1, 1, 8]);
        let after = table.rows(&positions, 501).unwrap();
        assert_eq!((before.sin - after.sin).abs().max().double_value(&[]), 0.0);
    }
}
