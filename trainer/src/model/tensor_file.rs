//! Reading one safetensors file tensor by tensor, without holding it whole.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use tch::{Kind, Tensor};

use super::error::{ModelError, Result};
use super::layout::ParamSpec;
use super::write::io;

/// One safetensors file, read tensor by tensor.
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    tensors: HashMap<String, TensorInfo>,
    data: u64,
}

/// Longest header that is believed: what the safetensors crate itself allows.
const MAX_HEADER: u64 = 100_000_000;

impl TensorFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(io("opening", path))?;
        let format = |reason: String| ModelError::Format {
            path: path.to_owned(),
            reason,
        };
        let mut length = [0u8; 8];
        file.read_exact(&mut length).map_err(io("reading", path))?;
        let len = u64::from_le_bytes(length);
        let total = file.metadata().map_err(io("reading", path))?.len();
        if len > MAX_HEADER.min(total) {
            return Err(format(
                "its header is longer than the file: it is no safetensors file".into(),
            ));
        }
        let mut header = vec![0u8; len as usize];
        file.read_exact(&mut header).map_err(io("reading", path))?;
        // The crate checks that the tensors lie without gaps and overlaps; that the data is all there is ours to check.
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| format(error.to_string()))?;
        let data = 8 + len;
        if total < data + metadata.data_len() as u64 {
            return Err(format(format!("it is cut off at {total} bytes; fetch it again")));
        }
        let tensors = metadata
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

    /// A parameter in its own kind, if the file has it.
    pub(super) fn read(&mut self, spec: &ParamSpec) -> Result<Option<Tensor>> {
        let Some(info) = self.tensors.get(&spec.name) else {
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
                    "{} is stored as {other:?}; f32, bf16 and f16 are read",
                    spec.name
                )));
            }
        };
        if !info.shape.iter().map(|&n| n as i64).eq(spec.shape.iter().copied()) {
            let reason = format!(
                "{} is {:?}; config.json asks for {:?}",
                spec.name, info.shape, spec.shape
            );
            return Err(format(reason));
        }
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0u8; end - start];
        self.file
            .seek(SeekFrom::Start(self.data + start as u64))
            .map_err(io("reading", &self.path))?;
        self.file.read_exact(&mut bytes).map_err(io("reading", &self.path))?;
        Ok(Some(Tensor::f_from_data_size(&bytes, &spec.shape, kind)?))
    }
}
