//! The f32 state that a rank owns: trained weights, AdamW's moments, and the average of the
//! weights, for this rank's pieces of the flat buffer.

use broker::protocol::train::OptimStep;
use tch::{Device, Kind, TchError, Tensor};

use super::ema::EmaOptions;
use super::options::TrainerOptions;
use super::ranks::Parts;
use crate::model::{Layout, ModelError, ParamSource};
use crate::optim::{self, AdamW};

/// The state that this rank owns. All buffers are `[Parts::length]`.
pub(super) struct Owned {
    /// The trained weights. They share the storage of the computing weights, unless they are
    /// [apart](Self::is_apart).
    pub(super) masters: Tensor,
    pub(super) optimizer: AdamW,
    /// The average of the trained weights, if kept.
    pub(super) average: Option<Tensor>,
    /// True if the masters have their own storage.
    is_apart: bool,
    /// True if the state is in host memory and goes through the device block by block.
    staged: bool,
}

/// The place of the masters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the computing weights.
    Within,
    /// Apart, on the device.
    Device,
    /// Apart, in host memory; pinned if the device is a GPU.
    Host,
}

impl Owned {
    /// Copies this rank's pieces of the weights to masters at `place`, which is not
    /// [`Place::Within`].
    pub(super) fn masters_apart(
        source: &dyn ParamSource,
        parts: &Parts,
        place: Place,
        options: &TrainerOptions,
    ) -> Result<Tensor, ModelError> {
        let masters = zeros(parts, place, options.device)?;
        parts.take(&masters, |range, part| source.copy(range, part))?;
        Ok(masters)
    }

    /// The state of `masters` at `place`, with new moments.
    pub(super) fn new(
        layout: &Layout,
        masters: Tensor,
        parts: &Parts,
        place: Place,
        options: &TrainerOptions,
    ) -> Result<Self, ModelError> {
        let zeros = || zeros(parts, place, options.device);
        let average = match options.ema {
            Some(_) => {
                let average = zeros()?;
                average.shallow_clone().f_copy_(&masters.f_detach()?)?;
                Some(average)
            }
            None => None,
        };
        let stretches = parts.stretches(&optim::ranges(layout.params()));
        Ok(Self {
            masters,
            optimizer: AdamW::new(zeros()?, zeros()?, stretches, options.device),
            average,
            is_apart: place != Place::Within,
            staged: place == Place::Host,
        })
    }

    /// Returns true if the computing weights are a copy of the masters.
    pub(super) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Takes a step of AdamW with `grad` times `scale`, and writes the new weights to `computing`
    /// if the masters are apart. Both are as long as the own buffers, on the device.
    pub(super) fn step(
        &mut self,
        grad: &Tensor,
        scale: f64,
        params: &OptimStep,
        computing: &Tensor,
    ) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        let computing = computing.f_detach()?;
        if self.staged {
            let keep = |start: i64, block: &Tensor| computing.f_narrow(0, start, block.size1()?)?.f_copy_(block);
            return self.optimizer.step_staged(&self.masters, grad, scale, params, keep);
        }
        self.optimizer.step(&self.masters, grad, scale, params)?;
        if self.is_apart {
            computing.shallow_clone().f_copy_(&self.masters)?;
        }
        Ok(())
    }

    /// Moves the average after a step of the weights: `e <- d e + (1 - d) w`.
    pub(super) fn move_average(&mut self, ema: EmaOptions) -> Result<(), TchError> {
        let _no_grad = tch::no_grad_guard();
        if let Some(average) = &mut self.average {
            let _ = average.f_lerp_(&self.masters.f_detach()?, 1.0 - ema.decay)?;
        }
        Ok(())
    }

    /// Begins the average again at the current weights.
    pub(super) fn restart_average(&mut self) -> Result<(), TchError> {
        match &mut self.average {
            Some(average) => average.f_copy_(&self.masters.f_detach()?),
            None => Ok(()),
        }
    }
}

/// Returns zeros for one of the own buffers. libtorch rounds pinned memory up to a power of two.
fn zeros(parts: &Parts, place: Place, device: Device) -> Result<Tensor, TchError> {
    if place != Place::Host || device == Device::Cpu {
        return parts.zeros(Kind::Float, device);
    }
    // Pinned memory belongs to the GPU that has a context; without one, libtorch makes one on
    // cuda:0, and each rank takes half a GB there.
    let _context = Tensor::f_zeros([1], (Kind::Float, device))?;
    // Pinned memory makes copies to and from a GPU several times faster. The first tensor only
    // gives the size. It takes no memory, because its pages are never written.
    let pinned = Tensor::f_empty([parts.length()], (Kind::Float, Device::Cpu))?.f_pin_memory(device)?;
    pinned.shallow_clone().f_zero_()
}
