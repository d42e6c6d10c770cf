//! Rotary position embedding, rotate-half form: pairs are (i, i + d/2), as in Hugging Face's Qwen and Llama.

use tch::{Device, Kind, Tensor};

use super::error::Result;
use super::shape::ModelShape;

/// Cosines and signed sines of every position, `[max_context, head_dim]`.
#[derive(Debug)]
pub(crate) struct RopeTable {
    cos: Tensor,
    /// Negated in the first half, so that `x * cos + roll(x, d/2) * sin` is the rotation.
    sin: Tensor,
}

/// The rows of some tokens' positions, `[tokens, 1, head_dim]`.
#[derive(Debug)]
pub(crate) struct RopeRows {
    cos: Tensor,
    sin: Tensor,
    half: i64,
}

impl RopeTable {
    /// Angles in f32, in the order of operations of Hugging Face, then cast to the model's kind.
    pub(crate) fn new(shape: &ModelShape, device: Device, kind: Kind) -> Result<Self> {
        let dim = shape.head_dim as i64;
        let options = (Kind::Float, Device::Cpu);
        let exponents = Tensor::f_arange_start_step(0, dim, 2, options)?.f_div_scalar(dim)?;
        let inverse = Tensor::f_pow_scalar(shape.rope_theta, &exponents)?.f_reciprocal()?;
        let angles = Tensor::f_arange(shape.max_context as i64, options)?.f_outer(&inverse)?;
        let (cos, sin) = (angles.f_cos()?, angles.f_sin()?);
        let cos = Tensor::f_cat(&[&cos, &cos], 1)?;
        let sin = Tensor::f_cat(&[sin.f_neg()?, sin], 1)?;
        let place = |t: Tensor| t.f_to_device(device)?.f_to_kind(kind);
        Ok(Self {
            cos: place(cos)?,
            sin: place(sin)?,
        })
    }

    /// The rows of `positions` (`[tokens]` of i64, below `max_context`).
    pub(crate) fn rows(&self, positions: &Tensor) -> Result<RopeRows> {
        let pick = |table: &Tensor| table.f_index_select(0, positions)?.f_unsqueeze(1);
        let half = self.cos.size()[1] / 2;
        Ok(RopeRows {
            cos: pick(&self.cos)?,
            sin: pick(&self.sin)?,
            half,
        })
    }

    pub(crate) fn shallow_clone(&self) -> Self {
        Self {
            cos: self.cos.shallow_clone(),
            sin: self.sin.shallow_clone(),
        }
    }
}

impl RopeRows {
    /// Turns heads `x`, `[tokens, heads, head_dim]`, to their positions.
    pub(crate) fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let rolled = x.f_roll(self.half, -1)?;
        Ok(x.f_mul(&self.cos)?.f_addcmul(&rolled, &self.sin)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::tiny;
    use super::*;

    #[test]
    fn a_turn_is_the_rotation_of_each_pair() {
        let shape = tiny();
        let table = RopeTable::new(&shape, Device::Cpu, Kind::Float).unwrap();
        let rows = table.rows(&Tensor::from_slice(&[0i64, 5])).unwrap();
        let x = Tensor::arange(16, (Kind::Float, Device::Cpu)).view([2, 1, 8]);
        let turned: Vec<f32> = rows.turn(&x).unwrap().view([-1]).try_into().unwrap();
        assert_eq!(
            turned[..8],
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
            "position 0 turns nothing"
        );
        for pair in 0..4usize {
            let angle = 5.0 * shape.rope_theta.powf(-(pair as f64) / 4.0);
            let (a, b) = ((8 + pair) as f64, (12 + pair) as f64);
            let wanted = [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()];
            assert!((f64::from(turned[8 + pair]) - wanted[0]).abs() < 1e-5);
            assert!((f64::from(turned[12 + pair]) - wanted[1]).abs() < 1e-5);
        }
    }
}
