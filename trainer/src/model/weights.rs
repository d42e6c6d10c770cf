//! A model's parameters in one flat buffer, with a view of each under its Hugging Face name.

mod finite;
mod source;

use std::sync::{Arc, OnceLock};

use configs::Dtype;
use tch::{Device, Kind, Tensor};

use crate::model::error::{ModelError, Result};
use crate::model::param_source::ParamSource;
use crate::model::shape::{Layout, LoraShape, ModelShape, ParamKind, ParamSpec};
use crate::rng;
pub(super) use finite::bytes_are_finite;
pub(crate) use finite::is_finite;

/// Standard deviations of random weights. Norms begin at 1, biases at 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Init {
    pub embedding_std: f64,
    /// For every matrix, including an untied head.
    pub matrix_std: f64,
}

impl From<&configs::RandomModel> for Init {
    fn from(model: &configs::RandomModel) -> Self {
        Self {
            embedding_std: model.embedding_std,
            matrix_std: model.matrix_std,
        }
    }
}

/// libtorch's name of a dtype.
#[must_use]
pub fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::Bf16 => Kind::BFloat16,
    }
}

/// One flat buffer of all parameters. One thread owns it: views share its storage, and the types do
/// not prevent a race between owners of views.
#[derive(Debug)]
pub struct Weights {
    flat: Tensor,
    layout: Arc<Layout>,
    /// The digest of frozen weights, once it was asked for. All owners of the storage share it.
    frozen: Arc<OnceLock<blake3::Hash>>,
}

impl Weights {
    /// Creates weights of zeros on `device` and of `kind` (f32, or bf16 for an engine on a GPU).
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn zeros(shape: &ModelShape, device: Device, kind: Kind) -> Result<Self> {
        Self::of_layout(Arc::new(Layout::of(shape)), device, kind)
    }

    fn made(flat: Tensor, layout: Arc<Layout>) -> Self {
        Self {
            flat,
            layout,
            frozen: Arc::default(),
        }
    }

    /// Creates weights of zeros with the parameters of `layout`.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn of_layout(layout: Arc<Layout>, device: Device, kind: Kind) -> Result<Self> {
        let flat = Tensor::f_zeros([layout.numel() as i64], (kind, device))?;
        Ok(Self::made(flat, layout))
    }

    /// Creates an adapter in f32 on the CPU. A is uniform in +-1/sqrt(in) (PEFT's default, Kaiming
    /// with a = sqrt 5). B is zero, so that the model equals its base at first. Each A has its own
    /// random stream, chosen by its name.
    ///
    /// # Errors
    /// [`ModelError::Shape`] for an invalid adapter; this or [`ModelError::Torch`] when memory is
    /// short.
    pub fn adapter(shape: &ModelShape, lora: &LoraShape, seed: u64) -> Result<Self> {
        lora.validate()?;
        let layout = Arc::new(Layout::of_adapter(shape, lora));
        let mut values = filled(0.0, layout.numel())?;
        for spec in layout
            .params()
            .iter()
            .filter(|spec| spec.name.ends_with("lora_A.weight"))
        {
            let (stream, bound) = (stream_of(&spec.name), 1.0 / (spec.shape[1] as f64).sqrt());
            for (i, value) in values[spec.offset..spec.offset + spec.numel].iter_mut().enumerate() {
                *value = (bound * (2.0 * rng::uniform(seed, stream, i as u64) - 1.0)) as f32;
            }
        }
        Ok(Self::made(Tensor::f_from_slice(&values)?, layout))
    }

    /// The same storage under another owner, for a frozen base that several models share.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            flat: self.flat.shallow_clone(),
            layout: Arc::clone(&self.layout),
            frozen: Arc::clone(&self.frozen),
        }
    }

    /// Creates normal random weights in f32 on the CPU. The same seed gives the same bits on every
    /// machine. Each parameter has its own random stream, chosen by its name.
    ///
    /// # Errors
    /// [`ModelError::Shape`] or [`ModelError::Torch`] when memory is short.
    pub fn random(shape: &ModelShape, init: Init, seed: u64) -> Result<Self> {
        let layout = Arc::new(Layout::of(shape));
        let mut values = filled(1.0, layout.numel())?;
        for spec in layout.params() {
            let std = match spec.kind {
                ParamKind::Norm => continue,
                ParamKind::Bias => 0.0,
                ParamKind::Embedding => init.embedding_std,
                ParamKind::Matrix => init.matrix_std,
            };
            let stream = stream_of(&spec.name);
            for (i, pair) in values[spec.offset..spec.offset + spec.numel].chunks_mut(2).enumerate() {
                let normal = rng::normal_pair(seed, stream, i as u64);
                for (value, x) in pair.iter_mut().zip(normal) {
                    *value = (std * x) as f32;
                }
            }
        }
        Ok(Self::made(Tensor::f_from_slice(&values)?, layout))
    }

    /// The buffer, `[numel]`. Changing it changes the model.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    #[must_use]
    pub fn params(&self) -> &[ParamSpec] {
        self.layout.params()
    }

    #[must_use]
    pub fn device(&self) -> Device {
        self.flat.device()
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.flat.kind()
    }

    /// A view of one parameter in its own shape; shares the buffer's storage.
    ///
    /// # Errors
    /// [`ModelError::Shape`] when there is no such parameter.
    pub fn view(&self, name: &str) -> Result<Tensor> {
        let spec = self.layout.get(name)?;
        Ok(self
            .flat
            .f_narrow(0, spec.offset as i64, spec.numel as i64)?
            .f_view(spec.shape.as_slice())?)
    }

    /// A view of the matrices `first..=last`, which must be neighbours of equal width, as one
    /// matrix of all their rows. Vectors give one vector.
    pub(crate) fn fused(&self, first: &str, last: &str) -> Result<Tensor> {
        let (first, last) = (self.layout.get(first)?, self.layout.get(last)?);
        let numel = (last.offset + last.numel - first.offset) as i64;
        let flat = self.flat.f_narrow(0, first.offset as i64, numel)?;
        match first.shape.as_slice() {
            [_, width] => Ok(flat.f_view([numel / width, *width])?),
            _ => Ok(flat),
        }
    }

    /// Copies the weights into new storage, as `dtype` on `device`.
    ///
    /// # Errors
    /// [`crate::model::ModelError`] when memory is short.
    pub fn copied_to(&self, device: Device, dtype: Dtype) -> Result<Self> {
        self.copied(device, kind_of(dtype))
    }

    /// Copies the weights into new storage, as `kind` on `device`.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when memory is short.
    pub fn copied(&self, device: Device, kind: Kind) -> Result<Self> {
        Self::copy_of(self, device, kind)
    }

    /// Copies the parameters of `source` into new storage, as `kind` on `device`.
    ///
    /// # Errors
    /// [`ModelError`] when memory is short, or the parameters cannot be read.
    pub fn copy_of(source: &dyn ParamSource, device: Device, kind: Kind) -> Result<Self> {
        let numel = source.layout().numel() as i64;
        let flat = Tensor::f_empty([numel], (kind, device))?;
        source.copy(&(0..numel), &flat)?;
        Ok(Self::made(flat, Arc::clone(source.layout())))
    }

    /// Copies the values of `source` into this buffer, converting device and kind.
    ///
    /// # Errors
    /// [`ModelError::Shape`] when the two models have different parameters, and the errors of
    /// [`ParamSource::copy`].
    pub fn copy_from(&mut self, source: &dyn ParamSource) -> Result<()> {
        if !Arc::ptr_eq(&self.layout, source.layout()) && self.layout != *source.layout() {
            return Err(ModelError::shape(
                "weights of another model cannot be copied into this one",
            ));
        }
        source.copy(&(0..self.layout.numel() as i64), &self.flat)
    }

    /// The weights that the beginning of `room` holds.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when `room` is too small.
    pub(crate) fn at_start_of(room: &Tensor, layout: Arc<Layout>) -> Result<Self> {
        Ok(Self::made(room.f_narrow(0, 0, layout.numel() as i64)?, layout))
    }

    /// Reads the [bytes](ParamSource::bytes) of all elements, on the CPU.
    ///
    /// # Errors
    /// [`ModelError::Shape`] when there are more or fewer values than `layout` has.
    pub fn from_bytes(layout: Arc<Layout>, dtype: Dtype, bytes: &[u8]) -> Result<Self> {
        let (kind, numel) = (kind_of(dtype), layout.numel());
        if bytes.len() != numel * kind.elt_size_in_bytes() {
            let found = bytes.len();
            return Err(ModelError::shape(format!(
                "{found} bytes are not {numel} parameters of {dtype:?}"
            )));
        }
        let flat = Tensor::f_from_data_size(bytes, &[numel as i64], kind)?;
        Ok(Self::made(flat, layout))
    }

    /// BLAKE3 over names, shapes and bytes of all parameters: equal for equal models only.
    ///
    /// # Errors
    /// [`ModelError::Torch`] when the bytes cannot be read from the device.
    pub fn digest(&self) -> Result<blake3::Hash> {
        self.digest_as(self.kind())
    }

    /// The [`Self::digest`] of frozen weights, for example of a base under adapters. It is computed
    /// once for all owners that [share](Self::share) the storage.
    ///
    /// # Errors
    /// The same as for [`Self::digest`].
    pub fn frozen_digest(&self) -> Result<blake3::Hash> {
        if let Some(known) = self.frozen.get() {
            return Ok(*known);
        }
        let digest = self.digest()?;
        Ok(*self.frozen.get_or_init(|| digest))
    }
}

/// Allocates values in this process's memory. Too large a size is an error instead of an abort.
fn filled(value: f32, numel: usize) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    values.try_reserve_exact(numel).map_err(|_| {
        let gib = numel as f64 * 4.0 / (1u64 << 30) as f64;
        ModelError::shape(format!(
            "its {numel} parameters are {gib:.1} GiB in f32, which this machine cannot allocate"
        ))
    })?;
    values.resize(numel, value);
    Ok(values)
}

/// The random stream of a parameter: the first 8 bytes of its name's BLAKE3.
fn stream_of(name: &str) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tiny;

    const INIT: Init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };

    #[test]
    fn random_weights_have_the_asked_deviation_and_norms_are_one() {
        let weights = Weights::random(&tiny(), INIT, 5).unwrap();
        for spec in weights.params() {
            let view = weights.view(&spec.name).unwrap();
            let (mean, std) = (
                view.mean(Kind::Double).double_value(&[]),
                view.std(false).double_value(&[]),
            );
            let wanted = match spec.kind {
                ParamKind::Norm => {
                    assert_eq!((mean, std), (1.0, 0.0), "{}", spec.name);
                    continue;
                }
                ParamKind::Embedding => 1.0,
                ParamKind::Matrix | ParamKind::Bias => 0.2,
            };
            assert!((std / wanted - 1.0).abs() < 0.15, "{} has deviation {std}", spec.name);
        }
    }

    #[test]
    fn the_digest_follows_seed_and_values() {
        let one = Weights::random(&tiny(), INIT, 5).unwrap();
        let same = Weights::random(&tiny(), INIT, 5).unwrap();
        let other = Weights::random(&tiny(), INIT, 6).unwrap();
        assert_eq!(one.digest().unwrap(), same.digest().unwrap());
        assert_ne!(one.digest().unwrap(), other.digest().unwrap());
        // Manifests on disk hold such digests: a change of the generator or of the digest's
        // definition fails here.
        assert_eq!(&one.digest().unwrap().to_hex()[..16], "8cf6883e39abfea5");
        let mut copy = one.copied(Device::Cpu, Kind::Float).unwrap();
        let _ = copy.flat.narrow(0, 17, 1).fill_(3.0);
        assert_ne!(
            one.digest().unwrap(),
            copy.digest().unwrap(),
            "a copy has storage of its own"
        );
        copy.copy_from(&one).unwrap();
        assert_eq!(one.digest().unwrap(), copy.digest().unwrap());
    }

    #[test]
    fn weights_of_another_shape_are_not_copied() {
        let mut tied = Weights::zeros(&ModelShape { tied: true, ..tiny() }, Device::Cpu, Kind::Float).unwrap();
        let untied = Weights::zeros(&tiny(), Device::Cpu, Kind::Float).unwrap();
        assert!(tied.copy_from(&untied).is_err());
    }

    #[test]
    fn more_than_the_machine_has_is_an_error() {
        // More than a process can address, whatever overcommit the system allows.
        let wide = ModelShape {
            vocab: 1 << 31,
            hidden: 1 << 15,
            ..tiny()
        };
        let init = Init {
            embedding_std: 0.02,
            matrix_std: 0.02,
        };
        let error = Weights::random(&wide, init, 1).unwrap_err().to_string();
        assert!(error.contains("GiB"), "{error}");
        let error = Weights::zeros(&wide, Device::Cpu, Kind::Float).unwrap_err().to_string();
        assert!(error.contains("memory") && !error.contains('\n'), "{error}");
    }
}
