//! The frequencies of rotary position embedding: as trained, or stretched to a longer context.

use std::f64::consts::PI;

use tch::{Device, Kind, Tensor};

use crate::model::error::{ModelError, Result};

/// The rotary base and the stretch of its frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: RopeScaling,
}

/// The stretch of frequencies to contexts longer than in the first training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// No stretch: `theta^(-2i/d)`.
    Default,
    /// Llama 3.1: frequencies with a wavelength above `original / low_freq_factor` are divided by
    /// `factor`. Those below `original / high_freq_factor` are kept, and those between are mixed.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        /// Longest context before the stretch.
        original: usize,
    },
    /// YaRN (Peng et al., arXiv:2309.00071).
    Yarn(Yarn),
}

/// Settings of YaRN, under Hugging Face's names.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    /// Longest context before the stretch.
    pub original: usize,
    pub beta_fast: f64,
    pub beta_slow: f64,
    /// Multiplies cosines and sines.
    pub attention_factor: f64,
    /// If true, the borders of the ramp are rounded to whole dimensions.
    pub truncate: bool,
}

impl Rope {
    /// Returns the context before YaRN's stretch and the longest context after it, if the model's
    /// limit `max_context` leaves the whole stretch unused. Model cards say to add YaRN to
    /// `config.json`, but few say to raise `max_position_embeddings` with it.
    #[must_use]
    pub fn unused_reach(&self, max_context: usize) -> Option<(usize, usize)> {
        match &self.scaling {
            RopeScaling::Yarn(yarn) if max_context <= yarn.original => {
                Some((yarn.original, yarn.reach())).filter(|(_, reach)| *reach > max_context)
            }
            _ => None,
        }
    }
}

impl Yarn {
    /// The attention factor if a file has none: `0.1 m ln(factor) + 1` with m = 1. If `mscale` and
    /// `mscale_all_dim` are both given, the quotient of this formula for the two.
    pub(in crate::model) fn default_attention_factor(
        factor: f64,
        mscale: Option<f64>,
        mscale_all_dim: Option<f64>,
    ) -> f64 {
        let scale = |m: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * m * factor.ln() + 1.0
            }
        };
        match (mscale, mscale_all_dim) {
            (Some(m), Some(all)) if m != 0.0 && all != 0.0 => scale(m) / scale(all),
            _ => scale(1.0),
        }
    }

    /// The number of positions after the stretch.
    fn reach(&self) -> usize {
        (self.original as f64 * self.factor) as usize
    }

    /// The dimension that makes `rotations` turns over the original context.
    fn dimension(&self, rotations: f64, dim: usize, theta: f64) -> f64 {
        dim as f64 * (self.original as f64 / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln())
    }

    /// 0 where frequencies are kept, 1 where they are divided by `factor`, and a ramp between; one
    /// per pair.
    fn ramp(&self, dim: usize, theta: f64) -> Vec<f32> {
        let (mut low, mut high) = (
            self.dimension(self.beta_fast, dim, theta),
            self.dimension(self.beta_slow, dim, theta),
        );
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        low = low.max(0.0);
        high = high.min(dim as f64 - 1.0);
        if low == high {
            high += 0.001;
        }
        let (low, width) = (low as f32, (high - low) as f32);
        (0..dim / 2)
            .map(|i| ((i as f32 - low) / width).clamp(0.0, 1.0))
            .collect()
    }
}

impl Rope {
    /// Frequencies as trained.
    #[must_use]
    pub fn plain(theta: f64) -> Self {
        Self {
            theta,
            scaling: RopeScaling::Default,
        }
    }

    pub(in crate::model) fn validate(&self) -> Result<()> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(ModelError::shape(format!("{name} must be positive")))
            }
        };
        positive("rope_theta", self.theta)?;
        match &self.scaling {
            RopeScaling::Default => Ok(()),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original,
            } => {
                positive("rope factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("high_freq_factor - low_freq_factor", high_freq_factor - low_freq_factor)?;
                positive("original_max_position_embeddings", *original as f64)
            }
            RopeScaling::Yarn(yarn) => {
                positive("rope factor", yarn.factor)?;
                positive("beta_fast", yarn.beta_fast)?;
                positive("beta_slow", yarn.beta_slow)?;
                positive("attention_factor", yarn.attention_factor)?;
                positive("original_max_position_embeddings", yarn.original as f64)
            }
        }
    }

    /// The factor on cosines and sines.
    pub(crate) fn amplitude(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.attention_factor,
            RopeScaling::Default | RopeScaling::Llama3 { .. } => 1.0,
        }
    }

    /// Angle per position of each pair, `[dim / 2]` in f32 on the CPU, in Hugging Face's order of
    /// operations.
    pub(crate) fn frequencies(&self, dim: usize) -> Result<Tensor> {
        let options = (Kind::Float, Device::Cpu);
        let exponents = Tensor::f_arange_start_step(0, dim as i64, 2, options)?.f_div_scalar(dim as i64)?;
        let wavelengths = Tensor::f_pow_scalar(self.theta, &exponents)?;
        let plain = wavelengths.f_reciprocal()?;
        match &self.scaling {
            RopeScaling::Default => Ok(plain),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original,
            } => {
                let (factor, low, high) = (*factor as f32, *low_freq_factor as f32, *high_freq_factor as f32);
                let original = *original as f32;
                let stretch = |frequency: f32| {
                    let wavelength = (2.0 * PI) as f32 / frequency;
                    if wavelength > original / low {
                        frequency / factor
                    } else if wavelength < original / high {
                        frequency
                    } else {
                        let smooth = (original / wavelength - low) / (high - low);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                };
                let stretched: Vec<f32> = Vec::<f32>::try_from(&plain)?.into_iter().map(stretch).collect();
                Ok(Tensor::f_from_slice(&stretched)?)
            }
            RopeScaling::Yarn(yarn) => {
                let kept = Tensor::f_from_slice(&yarn.ramp(dim, self.theta))?
                    .f_neg()?
                    .f_add_scalar(1.0)?;
                let stretched = wavelengths.f_mul_scalar(yarn.factor)?.f_reciprocal()?;
                let rest = kept.f_neg()?.f_add_scalar(1.0)?;
                Ok(stretched.f_mul(&rest)?.f_add(&plain.f_mul(&kept)?)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rope: &Rope, dim: usize) -> Vec<f32> {
        rope.frequencies(dim).unwrap().try_into().unwrap()
    }

    #[test]
    fn llama3_keeps_fast_turns_and_slows_slow_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original: 64,
        };
        let plain = values(&Rope::plain(500_000.0), 32);
        let rope = Rope {
            theta: 500_000.0,
            scaling,
        };
        let scaled = values(&rope, 32);
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[15], plain[15] / 8.0);
        let between = plain
            .iter()
            .zip(&scaled)
            .filter(|(p, s)| **s < **p * 0.999 && **s > **p / 7.99)
            .count();
        assert!(between >= 1, "{scaled:?}");
    }

    #[test]
    fn yarn_ends_are_kept_and_divided() {
        let yarn = Yarn {
            factor: 4.0,
            original: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Yarn::default_attention_factor(4.0, None, None),
            truncate: true,
        };
        assert!((yarn.attention_factor - 1.138_629_4).abs() < 1e-6);
        assert_eq!(Yarn::default_attention_factor(4.0, Some(1.0), Some(1.0)), 1.0);
        let rope = Rope {
            theta: 10_000.0,
            scaling: RopeScaling::Yarn(yarn),
        };
        let (plain, scaled) = (values(&Rope::plain(10_000.0), 32), values(&rope, 32));
        assert_eq!(scaled[0], plain[0]);
        assert!((scaled[15] * 4.0 / plain[15] - 1.0).abs() < 1e-6);
    }
}
