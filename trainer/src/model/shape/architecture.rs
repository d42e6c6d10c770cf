//! The supported model families and their differences.

/// A family of decoders. All have pre-norm, RMSNorm, grouped-query attention, rotate-half RoPE and
/// SwiGLU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Architecture {
    /// Qwen3: a norm per query and key head before RoPE; biases in attention if `attention_bias` is
    /// set.
    #[default]
    Qwen3,
    /// Qwen2 and Qwen2.5: biases on queries, keys and values, never on the attention's output.
    Qwen2,
    /// Llama 3.x: no head norms; biases in attention and MLP as configured.
    Llama,
}

impl Architecture {
    pub(in crate::model) const ALL: [Self; 3] = [Self::Qwen3, Self::Qwen2, Self::Llama];

    /// The `model_type` in `config.json`.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Qwen2 => "qwen2",
            Self::Llama => "llama",
        }
    }

    /// The name of the class in transformers.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Llama => "LlamaForCausalLM",
        }
    }

    /// Returns true if queries and keys are normed head by head.
    #[must_use]
    pub fn norms_heads(self) -> bool {
        self == Self::Qwen3
    }

    pub(in crate::model) fn of_model_type(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.model_type() == name)
    }
}

/// The linear layers that have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The attention's output.
    pub output: bool,
    /// Gate, up and down.
    pub mlp: bool,
}
