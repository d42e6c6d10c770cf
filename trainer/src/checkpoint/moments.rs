//! `optimizer.safetensors`: AdamW's moments, parameter by parameter under `exp_avg.NAME` and
//! `exp_avg_sq.NAME`.
//!
//! The moments have names instead of one flat tensor, so that a file stays readable when the order
//! of the buffer changes.

use std::path::Path;
use std::sync::Arc;

use tch::Kind;

use super::error::CheckpointError;
use crate::model::{Layout, ModelError, NewFile, ParamSource, StoredParams, Tensors};

pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
const PREFIXES: [&str; 2] = ["exp_avg.", "exp_avg_sq."];

/// The file of both moments (f32).
pub(crate) fn file<'a>([first, second]: [&'a dyn ParamSource; 2]) -> NewFile<'a> {
    let both = [Tensors::all(first, PREFIXES[0]), Tensors::all(second, PREFIXES[1])];
    NewFile::tensors(OPTIMIZER, Kind::Float, both.into())
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
