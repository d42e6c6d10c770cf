//! Model folders of this machine that cannot be read.

use configs::{Problem, RunConfig};
use rollout::hub_cache::Cache;
use trainer::model::{Checked, check_folder};

use crate::run_folder::models::{self, Reads};

/// Returns a problem for each model folder with a missing or damaged file. Reads no weights, and
/// leaves out models that are not on this machine.
pub(in crate::cli) fn damaged(config: &RunConfig, cache: &Cache) -> Vec<Problem> {
    let found = models::found(config, cache).into_iter();
    found
        .filter_map(|model| {
            let part = match model.reads {
                Reads::Whole => Checked::Whole,
                Reads::NoWeights => Checked::NoWeights,
            };
            let error = check_folder(&model.folder.ok()?, part).err()?;
            Some(Problem {
                path: model.key,
                message: error.to_string(),
            })
        })
        .collect()
}
