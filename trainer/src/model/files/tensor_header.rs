//! The header of a safetensors file: its tensors, and the length of the file.

use std::io::Read;
use std::path::Path;

use safetensors::tensor::Metadata;

use super::atomic_write::io;
use super::regular_file::{POINTER, format, pointer};
use crate::model::error::Result;

pub(super) struct Header {
    pub(super) tensors: Metadata,
    /// The offset of the data.
    pub(super) data: usize,
}

impl Header {
    /// Reads the header from the start of a file of `length` bytes.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Format`] when the file is no safetensors file, or shorter than
    /// its header says.
    pub(super) fn read(mut file: impl Read, length: u64, path: &Path) -> Result<Self> {
        let mut start = [0; 8];
        if length < start.len() as u64 {
            let reason = format!("it has {length} bytes, too few for a safetensors file: fetch it again");
            return Err(format(path, reason));
        }
        file.read_exact(&mut start).map_err(io("reading", path))?;
        let header = u64::from_le_bytes(start);
        if header > length - 8 {
            if POINTER.as_bytes().starts_with(&start) {
                return Err(pointer(path));
            }
            return Err(format(
                path,
                "its header is longer than the file: it is cut off, or not a safetensors file; fetch it again",
            ));
        }
        let mut text = Vec::new();
        let mut file = file.take(header);
        file.read_to_end(&mut text).map_err(io("reading", path))?;
        // The crate checks that the tensors have no gaps and overlaps. This code checks that they
        // cover the data.
        let tensors: Metadata = serde_json::from_slice(&text)
            .map_err(|error| format(path, format!("its header is damaged ({error}): fetch it again")))?;
        let data = text.len() + 8;
        if length < (data + tensors.data_len()) as u64 {
            let reason = format!("it is cut off at {length} bytes; fetch it again");
            return Err(format(path, reason));
        }
        Ok(Self { tensors, data })
    }
}
