//! Chooses the device of the process, once, before any other call asks libtorch about CUDA.
//!
//! A binary links only the CPU half of libtorch. The CUDA half is opened at run time when a GPU is
//! requested ([`cuda`]). An earlier question "is there CUDA?" would make libtorch cache its empty
//! hooks for the life of the process.

mod cuda;
mod error;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use tch::Device;

pub use error::{DeviceError, LIBRARY_VARIABLE};

use crate::shim;

/// The requested device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Want {
    #[default]
    Cpu,
    /// A GPU by its index; an error if it is not available.
    Cuda(usize),
}

/// True if libtorch_cuda is open. The first caller decides.
static CUDA: OnceLock<Result<bool, DeviceError>> = OnceLock::new();

/// Sets libtorch up for this process and returns the device. Call it first in `main`, before any
/// tensor is created. Later calls are cheap. They may ask for another GPU, but not for a first one.
///
/// Sets one torch thread: parallelism comes from owner threads, and teams of spinning OpenMP
/// threads slow each other down.
///
/// # Errors
/// [`DeviceError`] when a requested GPU is not available. The CPU always is.
pub fn init(want: Want) -> Result<Device, DeviceError> {
    let cuda = CUDA.get_or_init(|| {
        let cuda = match want {
            Want::Cpu => false,
            Want::Cuda(_) => cuda::open().map(|()| true)?,
        };
        if cuda && let Err(error) = open_own() {
            tracing::warn!(%error, "generation is slower: no CUDA graphs, no flash attention");
        }
        one_thread();
        Ok(cuda)
    });
    match (want, cuda) {
        (Want::Cpu, _) => Ok(Device::Cpu),
        (_, Err(error)) => Err(error.clone()),
        (_, Ok(false)) => Err(DeviceError::TooLate),
        (Want::Cuda(index), Ok(true)) => {
            let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
            if index < count {
                Ok(Device::Cuda(index))
            } else {
                Err(DeviceError::NoGpu { index, count })
            }
        }
    }
}

/// Opens dyad's own CUDA library, which groups over NCCL need. [`init`] with a GPU has tried it.
///
/// # Errors
/// [`DeviceError::NoOwn`] if the set-up has not compiled it, [`DeviceError::Open`].
pub fn open_own() -> Result<(), DeviceError> {
    static OWN: OnceLock<Result<(), DeviceError>> = OnceLock::new();
    OWN.get_or_init(cuda::open_own).clone()
}

/// The memory of a GPU that this process uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// In tensors.
    pub allocated: u64,
    /// The most that tensors have taken so far.
    pub peak: u64,
    /// Taken from the GPU by libtorch's allocator, which keeps it for later tensors.
    pub reserved: u64,
    /// All that the GPU has.
    pub total: u64,
}

/// Returns the memory of each GPU that this process has had tensors on, by its index. Empty without
/// a GPU, or without dyad's CUDA library.
#[must_use]
pub fn memory_of_gpus() -> Vec<(usize, GpuMemory)> {
    if !matches!(CUDA.get(), Some(Ok(true))) {
        return Vec::new();
    }
    let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    let used = (0..count).filter_map(|index| {
        let [allocated, peak, reserved, total] = shim::memory::of_gpu(index)?;
        let memory = GpuMemory {
            allocated,
            peak,
            reserved,
            total,
        };
        (peak > 0).then_some((index, memory))
    });
    used.collect()
}

/// Returns the CUDA half of libtorch that [`init`] would open, or `None` if it is not installed.
#[must_use]
pub fn cuda_library() -> Option<PathBuf> {
    cuda::places().into_iter().find(|path| path.is_file())
}

impl From<configs::DeviceName> for Want {
    fn from(name: configs::DeviceName) -> Self {
        match name {
            configs::DeviceName::Cpu => Self::Cpu,
            configs::DeviceName::Cuda(index) => Self::Cuda(index),
        }
    }
}

/// The device that tests compute on. `DYAD_TEST_DEVICE=cuda:0` runs those of engine and trainer on
/// a GPU, each in its own process. Digests of a GPU's numbers differ from run to run.
#[cfg(test)]
pub(crate) fn of_tests() -> Device {
    let name = std::env::var("DYAD_TEST_DEVICE").unwrap_or_else(|_| "cpu".into());
    let want = match name.strip_prefix("cuda:") {
        Some(index) => Want::Cuda(index.parse().unwrap()),
        None if name == "cpu" => Want::Cpu,
        None => panic!("DYAD_TEST_DEVICE={name}: write cpu or cuda:0"),
    };
    init(want).unwrap()
}

fn one_thread() {
    if tch::get_num_threads() != 1 {
        tch::set_num_threads(1);
    }
    // libtorch rejects a second setting.
    if tch::get_num_interop_threads() != 1 {
        tch::set_num_interop_threads(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_can_always_be_had_and_has_one_thread() {
        assert_eq!(init(Want::Cpu), Ok(Device::Cpu));
        assert_eq!(tch::get_num_threads(), 1);
        assert_eq!(init(Want::Cpu), Ok(Device::Cpu));
        assert_eq!(init(Want::Cuda(0)), Err(DeviceError::TooLate));
    }

    #[test]
    fn missing_library_of_our_own_says_what_to_do() {
        let error = DeviceError::NoOwn { path: "x.so".into() }.to_string();
        assert!(
            error.contains("make setup GPU=1") && error.contains("DYAD_NCCL=0"),
            "{error}"
        );
    }
}
