//! Frozen base models of this process. All adapters on the same base share one copy of it.

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

/// Returns the model in `folder` as `dtype` on `device`. The first call loads it, and later calls
/// share its storage. Callers must not change the weights.
pub(crate) fn shared(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> anyhow::Result<Weights> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("finding {}", folder.display()))?;
    // The lock is held during loading: a second agent waits instead of loading the model again.
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
