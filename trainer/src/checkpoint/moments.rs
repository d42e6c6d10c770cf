//! `optimizer.safetensors`: AdamW's moments, parameter by parameter under `exp_avg.NAME` and
//! `exp_avg_sq.NAME`.
//!
//! The moments have names instead of one flat tensor, so that a file stays readable when the order
//! of the buffer changes.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use tch::{Kind, TchError, Tensor};

use super::error::CheckpointError;
use crate::model::{ParamSource, ParamSpec};

const PREFIXES: [&str; 2] = ["exp_avg", "exp_avg_sq"];
/// The longest header that the reader accepts, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Writes both moments (f32), which have the same layout.
pub(crate) fn write(path: &Path, moments: [&dyn ParamSource; 2]) -> Result<(), CheckpointError> {
    let params = moments[0].layout().params();
    let io = |source| CheckpointError::io("writing", path)(source);
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for prefix in PREFIXES {
        for spec in params {
            let start = end;
            end += Kind::Float.elt_size_in_bytes() * spec.numel;
            let entry = json!({"dtype": "F32", "shape": spec.shape, "data_offsets": [start, end]});
            header.insert(format!("{prefix}.{}", spec.name), entry);
        }
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    for moment in moments {
        for spec in params {
            let bytes = moment.bytes_as(spec, Kind::Float);
            let bytes = bytes.map_err(|error| CheckpointError::Tensors {
                path: path.to_path_buf(),
                reason: error.to_string(),
            })?;
            file.write_all(&bytes).map_err(io)?;
        }
    }
    file.flush().map_err(io)
}

/// A stretch of the flat buffer, and its beginning in the buffers that receive it.
pub(crate) type Piece = (Range<i64>, i64);

/// Reads the elements of `pieces` of both moments into `moments` (f32), each to its place there.
pub(crate) fn read(
    path: &Path,
    params: &[ParamSpec],
    pieces: &[Piece],
    moments: [&Tensor; 2],
) -> Result<(), CheckpointError> {
    let content = |reason: String| CheckpointError::content(path, reason);
    let mut file = File::open(path).map_err(CheckpointError::io("reading", path))?;
    let (header, data) = header_of(path, &mut file)?;
    for (prefix, moment) in PREFIXES.into_iter().zip(moments) {
        for spec in params {
            let name = format!("{prefix}.{}", spec.name);
            let info = header
                .info(&name)
                .ok_or_else(|| content(format!("{name} is missing")))?;
            let shape = info.shape.iter().map(|n| *n as i64);
            if info.dtype != safetensors::Dtype::F32 || !shape.eq(spec.shape.iter().copied()) {
                let found = format!("{name} is {:?} of {:?}", info.shape, info.dtype);
                return Err(content(format!("{found}, the model asks for {:?} of F32", spec.shape)));
            }
            let start = data + info.data_offsets.0 as u64;
            for piece in pieces {
                read_piece(path, &mut file, start, spec, piece, moment)?;
            }
        }
    }
    Ok(())
}

/// The header of a safetensors file, and the place where its data begins.
fn header_of(path: &Path, file: &mut File) -> Result<(Metadata, u64), CheckpointError> {
    let io = |source| CheckpointError::io("reading", path)(source);
    let content = |reason: String| CheckpointError::content(path, reason);
    let mut length = [0u8; 8];
    file.read_exact(&mut length).map_err(io)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(content("it is not a safetensors file".into()));
    }
    let mut header = vec![0u8; length as usize];
    file.read_exact(&mut header).map_err(io)?;
    let header = serde_json::from_slice(&header).map_err(|error| content(error.to_string()))?;
    Ok((header, 8 + length))
}

/// Reads the elements that a piece has of one parameter, which begins at `start` in the file.
fn read_piece(
    path: &Path,
    file: &mut File,
    start: u64,
    spec: &ParamSpec,
    (range, place): &Piece,
    moment: &Tensor,
) -> Result<(), CheckpointError> {
    let (offset, numel) = (spec.offset as i64, spec.numel as i64);
    let (from, to) = (offset.max(range.start), (offset + numel).min(range.end));
    if from >= to {
        return Ok(());
    }
    let width = Kind::Float.elt_size_in_bytes();
    let mut bytes = vec![0u8; (to - from) as usize * width];
    let start = start + (from - offset) as u64 * width as u64;
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.read_exact(&mut bytes))
        .map_err(CheckpointError::io("reading", path))?;
    let copy = || -> Result<(), TchError> {
        let value = Tensor::f_from_data_size(&bytes, &[to - from], Kind::Float)?;
        moment
            .f_narrow(0, place + from - range.start, to - from)?
            .f_copy_(&value)
    };
    copy().map_err(|error| CheckpointError::content(path, error.to_string()))
}
