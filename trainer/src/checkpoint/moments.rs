//! `optimizer.safetensors`: AdamW's moments, parameter by parameter under `exp_avg.NAME` and
//! `exp_avg_sq.NAME`.
//!
//! The moments have names instead of one flat tensor, so that a file stays readable when the order
//! of the buffer changes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tch::Kind;

use super::error::CheckpointError;
use crate::model::{Layout, ModelError, ParamSource, StoredParams};

const PREFIXES: [&str; 2] = ["exp_avg.", "exp_avg_sq."];

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
            header.insert(format!("{prefix}{}", spec.name), entry);
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

/// Opens both moments of the parameters of `layout`, after a check of the file's header.
///
/// # Errors
/// [`CheckpointError`] when the file cannot be read, or a parameter is missing or has another shape
/// or kind.
pub(crate) fn open(path: &Path, layout: &Arc<Layout>) -> Result<[StoredParams; 2], CheckpointError> {
    let open = |prefix| {
        let moment = StoredParams::open(path, layout, prefix, Kind::Float)?;
        moment.check_names()?;
        Ok(moment)
    };
    let [first, second] = PREFIXES.map(open);
    let both = first.and_then(|first| Ok([first, second?]));
    both.map_err(|error: ModelError| match error {
        ModelError::Io { source, .. } => CheckpointError::io("reading", path)(source),
        ModelError::Format { reason, .. } => CheckpointError::content(path, reason),
        other => CheckpointError::content(path, other.to_string()),
    })
}
