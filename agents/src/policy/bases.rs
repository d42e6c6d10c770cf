//! Frozen models below the adapters of this process: one copy of each.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use configs::Dtype;
use trainer::device::Device;
use trainer::model::{ModelShape, Weights};

struct Base {
    folder: PathBuf,
    device: Device,
    dtype: Dtype,
    weights: Weights,
}

/// Loaded models, kept for the life of the process so that a restarted agent finds its base again.
static LOADED: Mutex<Vec<Base>> = Mutex::new(Vec::new());

/// Returns the model in `folder`, in `dtype` on `device`. It is loaded once; all callers share its
/// storage and must not change it.
pub(crate) fn shared(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> anyhow::Result<Weights> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("finding {}", folder.display()))?;
    // The lock is held while it loads: a second agent waits instead of loading it again.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = loaded
        .iter()
        .find(|base| base.folder == folder && base.device == device && base.dtype == dtype);
    if let Some(base) = known {
        tracing::info!(folder = %folder.display(), "sharing a base that is already loaded");
        return Ok(base.weights.share());
    }
    let weights = Weights::load_as(shape, &folder, device, dtype)?;
    let shared = weights.share();
    loaded.push(Base {
        folder,
        device,
        dtype,
        weights,
    });
    Ok(shared)
}
