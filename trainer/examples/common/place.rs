//! The device and dtype of a worker: `[DEVICE [DTYPE]]` on its command line, by default `cpu` and
//! `f32`.

use configs::{DeviceName, Dtype};
use trainer::device::{self, Device};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) dtype: Dtype,
}

impl Place {
    /// Reads the arguments and sets libtorch up.
    pub(crate) fn new(arguments: &[String]) -> Result<Self> {
        let device: DeviceName = arguments.first().map_or("cpu", String::as_str).parse()?;
        let dtype = match arguments.get(1).map(String::as_str) {
            None | Some("f32") => Dtype::F32,
            Some("bf16") => Dtype::Bf16,
            Some(other) => return Err(format!("{other:?} is not a dtype: write f32 or bf16").into()),
        };
        let device = device::init(device.into())?;
        Ok(Self { device, dtype })
    }

    /// Waits until the device has finished its work.
    pub(crate) fn wait(self) {
        if let Device::Cuda(index) = self.device {
            tch::Cuda::synchronize(index as i64);
        }
    }

    /// The most that tensors have taken on the GPU so far, in MiB; 0 on a CPU.
    pub(crate) fn peak_mib(self) -> u64 {
        let gpus = device::memory_of_gpus();
        let own = gpus.iter().find(|(gpu, _)| self.device == Device::Cuda(*gpu));
        own.map_or(0, |(_, memory)| memory.peak >> 20)
    }

    pub(crate) fn is_gpu(self) -> bool {
        self.device != Device::Cpu
    }
}
