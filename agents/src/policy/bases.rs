//! Frozen models that several agents of this process train adapters of: one copy of each.

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

/// They stay for the life of the process: an agent that restarts finds its base again.
static LOADED: Mutex<Vec<Base>> = Mutex::new(Vec::new());

/// The model in `folder`, as it computes on `device`. Loaded once; all who ask share its storage, and none may change it.
pub(crate) fn shared(shape: &ModelShape, folder: &Path, device: Device, dtype: Dtype) -> anyhow::Result<Weights> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("finding {}", folder.display()))?;
    // Held while it loads: a second agent waits rather than load it again.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = loaded
        .iter()
        .find(|base| base.folder == folder && base.device == device && base.dtype == dtype);
    if let Some(base) = known {
        tracing::info!(folder = %folder.display(), "shares the base that is loaded already");
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
