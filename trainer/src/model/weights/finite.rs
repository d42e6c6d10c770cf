//! Checks that weights are finite: one pass over them, without a copy.

use tch::{TchError, Tensor};

use crate::model::error::Result;
use crate::model::weights::Weights;

/// Returns true if no value is NaN or infinite. The minimum and the maximum decide: both are NaN if
/// any value is. A sum would not work: finite values may have an infinite sum.
pub(in crate::model) fn is_finite(values: &Tensor) -> std::result::Result<bool, TchError> {
    if values.numel() == 0 {
        return Ok(true);
    }
    let (least, greatest) = values.f_detach()?.f_aminmax(None::<i64>, false)?;
    Ok(least.f_double_value(&[])?.is_finite() && greatest.f_double_value(&[])?.is_finite())
}

impl Weights {
    /// The first parameter with a value that is not finite, if any. Logits of such weights are not
    /// finite either.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Torch`] when the values cannot be read from the device.
    pub fn first_not_finite(&self) -> Result<Option<&str>> {
        for spec in self.params() {
            let values = self.flat().f_narrow(0, spec.offset as i64, spec.numel as i64)?;
            if !is_finite(&values)? {
                return Ok(Some(&spec.name));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::Init;

    /// Longer than a block of the reduction, and not a multiple of it.
    const LONG: i64 = 100_003;

    #[test]
    fn one_value_in_any_place_is_found_and_large_ones_are_none() {
        for kind in [Kind::Float, Kind::BFloat16] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                for place in [0, 1, 4096, LONG / 2, LONG - 1] {
                    let values = Tensor::zeros([LONG], (kind, tch::Device::Cpu));
                    let _ = values.narrow(0, place, 1).fill_(bad);
                    assert!(!is_finite(&values).unwrap(), "{bad} at {place} as {kind:?}");
                }
            }
            // Their sum is infinite, and so is the difference of minimum and maximum.
            let large = Tensor::full([LONG], 3e38, (kind, tch::Device::Cpu));
            let _ = large.narrow(0, 0, 1).fill_(-3e38);
            assert!(is_finite(&large).unwrap(), "{kind:?}");
            assert!(is_finite(&large.narrow(0, 0, 0)).unwrap());
        }
        let both = Tensor::from_slice(&[f32::NEG_INFINITY, 0.0, f32::NAN, f32::INFINITY]);
        assert!(!is_finite(&both).unwrap());
    }

    #[test]
    fn the_parameter_is_named() {
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let weights = Weights::random(&tiny(), init, 1).unwrap();
        assert_eq!(weights.first_not_finite().unwrap(), None);
        for spec in weights.params().iter().rev() {
            let last = (spec.offset + spec.numel - 1) as i64;
            let _ = weights.flat().narrow(0, last, 1).fill_(f64::NAN);
            assert_eq!(weights.first_not_finite().unwrap(), Some(spec.name.as_str()));
        }
    }
}
