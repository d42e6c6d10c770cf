//! Reads one safetensors file tensor by tensor: mapped, and copied once to its final place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use tch::{Device, Kind, Tensor};

use super::atomic_write::io;
use super::regular_file::require;
use super::tensor_header::Header;
use crate::model::error::{ModelError, Result};
use crate::model::weights::bytes_are_finite;
use crate::shim::MappedFile;

/// One safetensors file.
pub(in crate::model) struct TensorFile {
    path: PathBuf,
    file: MappedFile,
    tensors: HashMap<String, TensorInfo>,
    /// The offset of the data.
    data: usize,
}

impl TensorFile {
    pub(in crate::model) fn open(path: &Path) -> Result<Self> {
        require(path)?;
        let file = MappedFile::open(path).map_err(io("opening", path))?;
        let Header { tensors, data } = Header::read(file.bytes(), file.bytes().len() as u64, path)?;
        let tensors = tensors
            .tensors()
            .into_iter()
            .map(|(name, info)| (name, info.clone()))
            .collect();
        Ok(Self {
            path: path.to_owned(),
            file,
            tensors,
            data,
        })
    }

    /// Returns true if the file has the tensor `name`.
    ///
    /// # Errors
    /// [`ModelError::Format`] when its shape is not `wanted`, or its kind is not supported.
    pub(in crate::model) fn has(&self, name: &str, wanted: &[i64]) -> Result<bool> {
        Ok(self.find(name, wanted)?.is_some())
    }

    /// Checks that the file has the tensor `name` in this shape and kind.
    ///
    /// # Errors
    /// [`ModelError::Format`] if it does not.
    pub(in crate::model) fn require(&self, name: &str, wanted: &[i64], kind: Kind) -> Result<()> {
        let reason = match self.find(name, wanted)? {
            Some((found, _)) if found == kind => return Ok(()),
            Some((found, _)) => format!("{name} is stored as {found:?}; {kind:?} is asked for"),
            None => format!("{name} is missing"),
        };
        Err(ModelError::Format {
            path: self.path.clone(),
            reason,
        })
    }

    /// Copies the tensor `name` to `target`, converting its kind. Returns `false` if the file does
    /// not have it.
    ///
    /// # Errors
    /// [`ModelError::Format`] for another shape or kind, and [`ModelError::NotFinite`].
    pub(in crate::model) fn read(&mut self, name: &str, target: &mut Tensor) -> Result<bool> {
        let dims = target.size();
        Ok(self.check_finite(name, &dims, target.kind())? && self.read_part(name, &dims, 0, target)?)
    }

    /// Copies as many values of the tensor `name` as `target` has, beginning at value `from`.
    /// Returns `false` if the file does not have a tensor of this name.
    ///
    /// # Errors
    /// [`ModelError::Format`] for a shape other than `dims` or another kind; [`ModelError::Torch`].
    pub(in crate::model) fn read_part(
        &mut self,
        name: &str,
        dims: &[i64],
        from: usize,
        target: &mut Tensor,
    ) -> Result<bool> {
        let Some((kind, (start, _))) = self.find(name, dims)? else {
            return Ok(false);
        };
        let start = self.data + start + from * kind.elt_size_in_bytes();
        self.file.copy_into(start, kind, target)?;
        self.file.release(start, target.numel() * kind.elt_size_in_bytes());
        Ok(true)
    }

    /// Checks the values of the tensor `name`, converted to `target`. Returns `false` if the file
    /// does not have it.
    ///
    /// # Errors
    /// The same as for [`Self::read`].
    pub(in crate::model) fn check_finite(&self, name: &str, dims: &[i64], target: Kind) -> Result<bool> {
        let Some((kind, place)) = self.find(name, dims)? else {
            return Ok(false);
        };
        if !bytes_are_finite(self.stored(place), kind, target) {
            return Err(ModelError::NotFinite {
                path: self.path.clone(),
                tensor: name.to_owned(),
            });
        }
        Ok(true)
    }

    /// Returns true if `name` has the values of `other` in `file`, whatever kinds they are stored
    /// in. Both must have the shape `dims`. Returns `None` if one of them is missing.
    ///
    /// # Errors
    /// The same as for [`Self::has`].
    pub(in crate::model) fn same(&self, name: &str, file: &Self, other: &str, dims: &[i64]) -> Result<Option<bool>> {
        let (Some(here), Some(there)) = (self.find(name, dims)?, file.find(other, dims)?) else {
            return Ok(None);
        };
        if here.0 == there.0 && self.stored(here.1) == file.stored(there.1) {
            return Ok(Some(true));
        }
        let wide = |file: &Self, (kind, (start, _)): (Kind, (usize, usize))| -> Result<Tensor> {
            let mut values = Tensor::f_empty(dims, (Kind::Float, Device::Cpu))?;
            file.file.copy_into(file.data + start, kind, &mut values)?;
            Ok(values)
        };
        Ok(Some(wide(self, here)?.f_equal(&wide(file, there)?)?))
    }

    /// Releases the memory of the pages of `name`.
    pub(in crate::model) fn release(&mut self, name: &str) {
        if let Some(info) = self.tensors.get(name) {
            let (start, end) = info.data_offsets;
            self.file.release(self.data + start, end - start);
        }
    }

    fn stored(&self, (start, end): (usize, usize)) -> &[u8] {
        &self.file.bytes()[self.data + start..self.data + end]
    }

    /// The kind of the tensor `name`, and its range in the data.
    fn find(&self, name: &str, wanted: &[i64]) -> Result<Option<(Kind, (usize, usize))>> {
        let Some(info) = self.tensors.get(name) else {
            return Ok(None);
        };
        let format = |reason: String| ModelError::Format {
            path: self.path.clone(),
            reason,
        };
        let kind = match info.dtype {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            other => {
                return Err(format(format!(
                    "{name} is stored as {other:?}; f32, bf16 and f16 are read"
                )));
            }
        };
        if !info.shape.iter().map(|&n| n as i64).eq(wanted.iter().copied()) {
            let reason = format!("{name} is {:?}; {wanted:?} is asked for", info.shape);
            return Err(format(reason));
        }
        Ok(Some((kind, info.data_offsets)))
    }

    /// Names of all tensors, sorted.
    pub(in crate::model) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}
