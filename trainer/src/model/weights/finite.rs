//! Checks that weights are finite: one pass over them, without a copy.

use tch::{Kind, TchError, Tensor};

use crate::model::error::Result;
use crate::model::weights::Weights;

/// Stored values between two looks at the result.
const BLOCK: usize = 4096;

/// Returns true if no value is NaN or infinite. The minimum and the maximum decide: both are NaN if
/// any value is. A sum would not work: finite values may have an infinite sum.
pub(crate) fn is_finite(values: &Tensor) -> std::result::Result<bool, TchError> {
    if values.numel() == 0 {
        return Ok(true);
    }
    let (least, greatest) = values.f_detach()?.f_aminmax(None::<i64>, false)?;
    Ok(least.f_double_value(&[])?.is_finite() && greatest.f_double_value(&[])?.is_finite())
}

/// Returns true if every stored value (`kind`: f32, bf16 or f16, little-endian) is finite as
/// `target`. Compares the bits of each value's size with those of infinity.
pub(in crate::model) fn bytes_are_finite(bytes: &[u8], kind: Kind, target: Kind) -> bool {
    let narrow = |infinity: u16| {
        let is_bad = |value: &[u8; 2]| u16::from_le_bytes(*value) & 0x7FFF >= infinity;
        is_finite_by(bytes, is_bad)
    };
    let infinity = match target {
        // The least number that rounds to infinity.
        Kind::BFloat16 => 0x7F7F_8000,
        _ => 0x7F80_0000,
    };
    match kind {
        Kind::BFloat16 => narrow(0x7F80),
        Kind::Half => narrow(0x7C00),
        _ => is_finite_by(bytes, |value: &[u8; 4]| {
            u32::from_le_bytes(*value) & 0x7FFF_FFFF >= infinity
        }),
    }
}

/// Returns true if no value is bad. A branch for each value would keep the compiler from computing
/// several at once.
fn is_finite_by<const WIDTH: usize>(bytes: &[u8], is_bad: impl Fn(&[u8; WIDTH]) -> bool) -> bool {
    let (values, _) = bytes.as_chunks::<WIDTH>();
    values
        .chunks(BLOCK)
        .all(|block| !block.iter().fold(false, |bad, value| bad | is_bad(value)))
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
    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::Init;

    /// Longer than a block of the reduction, and not a multiple of it.
    const LONG: i64 = 100_003;

    fn stored(values: &Tensor) -> Vec<u8> {
        let mut bytes = vec![0; values.numel() * values.kind().elt_size_in_bytes()];
        values.copy_data_u8(&mut bytes, values.numel());
        bytes
    }

    #[test]
    fn one_value_in_any_place_is_found_and_large_ones_are_none() {
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                for place in [0, 1, 4096, LONG / 2, LONG - 1] {
                    let values = Tensor::zeros([LONG], (kind, tch::Device::Cpu));
                    let _ = values.narrow(0, place, 1).fill_(bad);
                    assert!(!is_finite(&values).unwrap(), "{bad} at {place} as {kind:?}");
                    assert!(
                        !bytes_are_finite(&stored(&values), kind, kind),
                        "{bad} at {place} as {kind:?}"
                    );
                }
            }
            // Their sum is infinite, and so is the difference of minimum and maximum.
            let greatest = if kind == Kind::Half { 65504.0 } else { 3e38 };
            let large = Tensor::full([LONG], greatest, (kind, tch::Device::Cpu));
            let _ = large.narrow(0, 0, 1).fill_(-greatest);
            assert!(is_finite(&large).unwrap(), "{kind:?}");
            assert!(bytes_are_finite(&stored(&large), kind, kind), "{kind:?}");
            assert!(is_finite(&large.narrow(0, 0, 0)).unwrap());
        }
        for (size, fits) in [(3.396e38, true), (3.3963e38, false), (3.4e38, false)] {
            let value = Tensor::full([3], -size, (Kind::Float, tch::Device::Cpu));
            let narrow = value.to_kind(Kind::BFloat16);
            assert_eq!(is_finite(&narrow).unwrap(), fits, "{size}");
            assert_eq!(bytes_are_finite(&stored(&value), Kind::Float, Kind::BFloat16), fits);
            assert!(bytes_are_finite(&stored(&value), Kind::Float, Kind::Float), "{size}");
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
