//! Failures of a model: its folder, its shape, its input, libtorch.

use std::path::PathBuf;

/// Why a model could not be built, read, written or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A setting that this code does not compute. Running the model anyway would silently give
    /// wrong output.
    #[error("the model has {what}, which is not implemented here; serve such a model with an external engine")]
    Unsupported { what: String },
    #[error("the model's shape is wrong: {reason}")]
    Shape { reason: String },
    #[error("reading {path}: {reason}")]
    Format { path: PathBuf, reason: String },
    /// Every answer of such a model would be NaN.
    #[error(
        "reading {path}: {tensor} has a value that is not finite (NaN or infinite): the file is damaged, or training had diverged when it was \
         written; fetch it again, or take earlier weights"
    )]
    NotFinite { path: PathBuf, tensor: String },
    #[error("{doing} {path}: {source}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("token id {id} is outside the vocabulary of {vocab}: does the tokenizer belong to this model?")]
    BadId { id: u32, vocab: usize },
    #[error("a row of {len} tokens does not fit: rows have 1 to {max} tokens")]
    RowLength { len: usize, max: usize },
    #[error("a batch needs at least one row")]
    EmptyBatch,
    #[error("libtorch: {}", first_line(.0))]
    Torch(#[from] tch::TchError),
}

/// The message without the call stack that libtorch appends.
fn first_line(error: &tch::TchError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

pub type Result<T> = std::result::Result<T, ModelError>;

impl ModelError {
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    pub(crate) fn shape(reason: impl Into<String>) -> Self {
        Self::Shape { reason: reason.into() }
    }

    /// Returns true if libtorch found too little memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        // libtorch has no other sign of it. The first is CUDA's, the second that of its libraries
        // (cuBLAS, cuDNN, cuSOLVER), the third the CPU's.
        let signs = ["out of memory", "_STATUS_ALLOC_FAILED", "can't allocate memory"];
        matches!(self, Self::Torch(error) if {
            let text = error.to_string();
            signs.iter().any(|sign| text.contains(sign))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_recognised_by_the_words_of_each_library() {
        let is_short = |text: &str| ModelError::from(tch::TchError::Torch(text.into())).is_out_of_memory();
        for text in [
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.81 GiB",
            "CUDA error: out of memory\nCUDA kernel errors might be reported later",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes",
        ] {
            assert!(is_short(text), "{text}");
        }
        for text in [
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
            "CUDA error: an illegal memory access was encountered",
        ] {
            assert!(!is_short(text), "{text}");
        }
    }
}
