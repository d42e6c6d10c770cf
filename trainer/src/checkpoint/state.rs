//! `state.json`, and the digest that identifies a training state.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use blake3::Hasher;
use broker::ids::WeightVersion;
use configs::Dtype;
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::adapted_base::AdaptedBase;
use super::error::CheckpointError;
use super::store::Checkpoint;
use crate::model::{Hashed, ParamSource, param_hasher};

pub(crate) const STATE: &str = "state.json";
const FORMAT: u32 = 1;

/// Hugging Face's name of the dtype that a trainer computes in. Its state is always f32.
pub(crate) fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::Bf16 => "bfloat16",
    }
}

/// The state of a trainer without its tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainerState {
    pub format: u32,
    /// The step of the last published version; 0 before the first.
    pub step: u64,
    /// Exponent of AdamW's bias corrections.
    pub optimizer_steps: u64,
    /// The number of steps skipped because the gradient was not finite.
    pub skipped_steps: u64,
    /// The number of the command that saved.
    pub seq: u64,
    /// The last published version, as (lineage, step).
    pub version: Option<(u32, u64)>,
    /// True if the weights are those of `version`. Unknown in states of earlier builds, therefore
    /// false there.
    #[serde(default)]
    pub published: bool,
    /// True if `reference/` holds the reference policy.
    pub reference: bool,
    /// True if `ema/` holds the average of the weights.
    #[serde(default)]
    pub average: bool,
    /// The frozen base that the tensors are an adapter of. States of earlier builds do not record
    /// it.
    #[serde(default)]
    pub base: Option<AdaptedBase>,
    pub dtype: String,
    pub digest: String,
    /// Data of the caller, returned unchanged.
    pub meta: String,
}

impl TrainerState {
    /// A state without its digest.
    pub(crate) fn new(version: Option<WeightVersion>, meta: &str) -> Self {
        Self {
            format: FORMAT,
            step: version.map_or(0, |version| version.step),
            optimizer_steps: 0,
            skipped_steps: 0,
            seq: 0,
            version: version.map(|version| (version.lineage, version.step)),
            published: false,
            reference: false,
            average: false,
            base: None,
            dtype: dtype_name(Dtype::F32).into(),
            digest: String::new(),
            meta: meta.into(),
        }
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Reads the state of a checkpoint and verifies its file, but none of the others.
    ///
    /// # Errors
    /// The errors of [`Self::read`], and [`CheckpointError::Digest`].
    pub fn verified(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        checkpoint.manifest.verify_file(&checkpoint.folder, STATE, &|| {})?;
        Self::read(&checkpoint.folder)
    }

    /// Reads the state of a checkpoint folder.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] and [`CheckpointError::Content`].
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(STATE);
        let text = fs::read_to_string(&path).map_err(CheckpointError::io("reading", &path))?;
        let state: Self = serde_json::from_str(&text).map_err(|e| CheckpointError::content(&path, e.to_string()))?;
        if state.format != FORMAT {
            let reason = format!("it has format {}, this build reads {FORMAT}", state.format);
            return Err(CheckpointError::content(&path, reason));
        }
        Ok(state)
    }
}

/// The digest of a state, computed while its tensors are written, in this order: BLAKE3 over the
/// weights, the moments, the average of the weights if kept, the count of optimizer steps, and the
/// value of `deterministic` in the caller's `meta` (a JSON object). Paths, times, run ids, lineages
/// and the rest of `meta` are left out: equal training has an equal digest.
pub(crate) struct StateDigest(RefCell<Hasher>);

impl StateDigest {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(Hasher::new_derive_key("dyad trainer state v1")))
    }

    /// Adds weights, or their average, as `write` reads them.
    ///
    /// # Errors
    /// The errors of `write`.
    pub(crate) fn weights<E>(
        &self,
        weights: &dyn ParamSource,
        write: impl FnOnce(&dyn ParamSource) -> Result<(), E>,
    ) -> Result<(), E> {
        let hasher = RefCell::new(param_hasher());
        write(&Hashed::named(weights, Kind::Float, &hasher))?;
        self.0.borrow_mut().update(hasher.into_inner().finalize().as_bytes());
        Ok(())
    }

    /// Adds a moment as the result is read.
    pub(crate) fn moment<'a>(&'a self, moment: &'a dyn ParamSource) -> Hashed<'a> {
        Hashed::values(moment, &self.0)
    }

    pub(crate) fn finish(self, optimizer_steps: u64, meta: &str) -> String {
        let mut hasher = self.0.into_inner();
        hasher.update(&optimizer_steps.to_le_bytes());
        hasher.update(deterministic_part(meta).as_bytes());
        hasher.finalize().to_hex().to_string()
    }
}

fn deterministic_part(meta: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(meta).ok();
    value
        .and_then(|v| v.get("deterministic").map(ToString::to_string))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_the_fields_of_later_builds_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let version = WeightVersion { lineage: 1, step: 2 };
        let mut state = TrainerState::new(Some(version), "");
        state.digest = "d".into();
        state.published = true;
        state.base = Some(AdaptedBase::default());
        let path = folder.path().join(STATE);
        state.write(&mut fs::File::create(&path).unwrap()).unwrap();
        assert_eq!(TrainerState::read(folder.path()).unwrap(), state);
        let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for field in ["published", "average", "base"] {
            value.as_object_mut().unwrap().remove(field).unwrap();
        }
        fs::write(&path, value.to_string()).unwrap();
        (state.published, state.base) = (false, None);
        assert_eq!(TrainerState::read(folder.path()).unwrap(), state);
    }

    #[test]
    fn only_the_deterministic_part_of_the_meta_counts() {
        let meta = |lineage: u32, consumed: u32| {
            format!(r#"{{"lineage":{lineage},"deterministic":{{"consumed":{consumed}}}}}"#)
        };
        assert_eq!(deterministic_part(&meta(1, 7)), deterministic_part(&meta(2, 7)));
        assert_ne!(deterministic_part(&meta(1, 7)), deterministic_part(&meta(1, 8)));
        assert_eq!(deterministic_part("no json"), "");
    }
}
