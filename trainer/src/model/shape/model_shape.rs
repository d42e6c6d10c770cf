//! The shape of a decoder: every number that its parameters and its arithmetic depend on.

use configs::RandomModel;

use super::architecture::{Architecture, Biases};
use super::rope_scaling::Rope;
use crate::model::error::{ModelError, Result};

/// Rotary base of random models: their contexts are short.
const RANDOM_ROPE_THETA: f64 = 10_000.0;
const RANDOM_RMS_EPS: f64 = 1e-6;

/// A decoder: pre-norm, RMSNorm in f32, grouped-query attention, rotate-half RoPE, SwiGLU.
/// [`Architecture`] adds the differences of the family.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    pub arch: Architecture,
    pub biases: Biases,
    pub vocab: usize,
    pub layers: usize,
    pub hidden: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    pub kv_heads: usize,
    /// Even. `heads * head_dim` may differ from `hidden`.
    pub head_dim: usize,
    /// Width of the SwiGLU layer.
    pub intermediate: usize,
    /// Longest row, prompt and output together.
    pub max_context: usize,
    pub rms_eps: f64,
    pub rope: Rope,
    /// True if the head is the embedding.
    pub tied: bool,
    pub bos: Option<u32>,
    /// Tokens that end a turn.
    pub eos: Vec<u32>,
    pub pad: Option<u32>,
}

impl ModelShape {
    /// The shape of a random model of the configuration, for a tokenizer of `vocab` ids.
    ///
    /// # Errors
    /// [`ModelError::Shape`] when the numbers do not fit each other.
    pub fn from_random(model: &RandomModel, vocab: usize, eos: &[u32]) -> Result<Self> {
        if model.heads == 0 {
            return Err(ModelError::shape("heads is 0"));
        }
        if model.head_dim.is_none() && !model.hidden.is_multiple_of(model.heads) {
            let reason = format!(
                "hidden {} is not a multiple of heads {}; give head_dim",
                model.hidden, model.heads
            );
            return Err(ModelError::shape(reason));
        }
        let shape = Self {
            arch: Architecture::Qwen3,
            biases: Biases::default(),
            vocab,
            layers: model.layers,
            hidden: model.hidden,
            heads: model.heads,
            kv_heads: model.kv_heads.unwrap_or(model.heads),
            head_dim: model.head_dim.unwrap_or(model.hidden / model.heads),
            intermediate: model.intermediate.unwrap_or(model.hidden.saturating_mul(4)),
            max_context: model.max_context,
            rms_eps: RANDOM_RMS_EPS,
            rope: Rope::plain(model.rope_theta.unwrap_or(RANDOM_ROPE_THETA)),
            tied: model.tied,
            bos: None,
            eos: eos.to_vec(),
            pad: None,
        };
        shape.validate()?;
        Ok(shape)
    }

    /// Checks that the numbers fit each other.
    ///
    /// # Errors
    /// [`ModelError::Shape`], naming the first that does not fit.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("vocab_size", self.vocab),
            ("num_hidden_layers", self.layers),
            ("hidden_size", self.hidden),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate),
            ("max_position_embeddings", self.max_context),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ModelError::shape(format!("{name} is 0")));
        }
        self.check_size(&positive)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let reason = format!(
                "{} query heads cannot share {} key/value heads evenly",
                self.heads, self.kv_heads
            );
            return Err(ModelError::shape(reason));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(ModelError::shape(format!(
                "head_dim {} is odd: RoPE rotates pairs",
                self.head_dim
            )));
        }
        let special = self.eos.iter().chain(&self.bos).chain(&self.pad);
        if let Some(id) = special.copied().find(|id| *id as usize >= self.vocab) {
            return Err(ModelError::BadId { id, vocab: self.vocab });
        }
        if !(self.rms_eps.is_finite() && self.rms_eps > 0.0) {
            return Err(ModelError::shape("rms_norm_eps must be positive"));
        }
        self.rope.validate()
    }

    /// Checks that every derived size can be counted. A file with more is damaged.
    fn check_size(&self, sizes: &[(&str, usize)]) -> Result<()> {
        let most = |name: &str| {
            if name == "num_hidden_layers" {
                RandomModel::MOST_LAYERS
            } else {
                RandomModel::LARGEST
            }
        };
        if let Some((name, size)) = sizes.iter().find(|(name, size)| *size > most(name)) {
            let reason = format!("{name} is {size}; no model has more than {}", most(name));
            return Err(ModelError::shape(reason));
        }
        let [hidden, wide, head] = [self.hidden, self.intermediate, self.head_dim].map(|size| size as u128);
        let heads = 2 * head * (self.heads as u128 + self.kv_heads as u128);
        let parameters = self.layers as u128 * hidden * (heads + 3 * wide) + 2 * self.vocab as u128 * hidden;
        if parameters > RandomModel::MOST_PARAMETERS {
            let reason = format!("its sizes make {parameters} parameters, more than any model has");
            return Err(ModelError::shape(reason));
        }
        Ok(())
    }

    /// Query heads per key/value head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Checks token ids on the host: a bad index would abort a CUDA context.
    ///
    /// # Errors
    /// [`ModelError::BadId`] for the first id outside the vocabulary.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().copied().find(|id| *id as usize >= self.vocab) {
            Some(id) => Err(ModelError::BadId { id, vocab: self.vocab }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two layers of 32, four heads over two, untied.
    pub(crate) fn tiny() -> ModelShape {
        ModelShape {
            arch: Architecture::Qwen3,
            biases: Biases::default(),
            vocab: 40,
            layers: 2,
            hidden: 32,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            intermediate: 48,
            max_context: 128,
            rms_eps: 1e-6,
            rope: Rope::plain(10_000.0),
            tied: false,
            bos: None,
            eos: vec![1],
            pad: Some(0),
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(tiny().validate().is_ok());
        let wrong = [
            ModelShape { kv_heads: 3, ..tiny() },
            ModelShape { head_dim: 7, ..tiny() },
            ModelShape { layers: 0, ..tiny() },
            ModelShape {
                eos: vec![40],
                ..tiny()
            },
            // Derived sizes would overflow, or exceed any memory.
            ModelShape {
                vocab: usize::MAX,
                ..tiny()
            },
            ModelShape {
                layers: 1 << 40,
                ..tiny()
            },
            ModelShape {
                hidden: 1 << 31,
                intermediate: 1 << 31,
                ..tiny()
            },
            ModelShape {
                heads: 1 << 30,
                kv_heads: 1 << 30,
                head_dim: 1 << 30,
                ..tiny()
            },
            ModelShape {
                max_context: usize::MAX,
                ..tiny()
            },
            ModelShape {
                rope: Rope::plain(f64::NAN),
                ..tiny()
            },
        ];
        assert!(wrong.iter().all(|shape| shape.validate().is_err()));
        assert!(matches!(
            tiny().check_ids(&[3, 40]),
            Err(ModelError::BadId { id: 40, vocab: 40 })
        ));
    }

    #[test]
    fn a_random_model_takes_its_defaults_from_its_width() {
        let text = r#"{"layers":2,"hidden":64,"heads":4,"tokenizer":"bytes"}"#;
        let model: RandomModel = serde_json::from_str(text).unwrap();
        let shape = ModelShape::from_random(&model, 300, &[2]).unwrap();
        assert_eq!((shape.kv_heads, shape.head_dim, shape.intermediate), (4, 16, 256));
        let narrow = RandomModel { heads: 5, ..model };
        assert!(ModelShape::from_random(&narrow, 300, &[2]).is_err());
    }
}
