//! Why a device cannot be used.

/// The environment variable that names libtorch_cuda.so.
pub const LIBRARY_VARIABLE: &str = "DYAD_LIBTORCH_CUDA";

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "libtorch's CUDA library was not found in {looked}: write device = \"cpu\", or on a machine with a GPU run `make \
         setup GPU=1` or name libtorch_cuda.so in {LIBRARY_VARIABLE}"
    )]
    NotFound { looked: String },
    #[error(
        "{path} is missing: `make setup GPU=1` compiles it, but not for a LIBTORCH of your own. Without it generation is \
         slower, and ranks on GPUs need DYAD_NCCL=0, which sends tensors through host memory"
    )]
    NoOwn { path: String },
    #[error("{path} is of another build of dyad: run `make setup GPU=1` again, which compiles it")]
    OldOwn { path: String },
    #[error("opening {path}: {reason}")]
    Open { path: String, reason: String },
    #[error("GPU {index} was asked for; libtorch sees {count}: is there a driver, is the GPU visible to this process?")]
    NoGpu { index: usize, count: usize },
    #[error("this process was set up without a GPU and cannot add one: request the GPU at the start")]
    TooLate,
}
