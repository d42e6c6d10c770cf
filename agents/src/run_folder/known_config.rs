//! Configurations of runs, kept in memory.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use configs::RunConfig;

use super::{FolderError, RunFolder, io_error};

/// The number, the length and the time of a file: they change when it is written.
type Stamp = (u64, u64, Option<SystemTime>);

/// Configurations, each parsed again when its file changes.
#[derive(Debug, Default)]
pub struct KnownConfigs(Mutex<HashMap<PathBuf, (Stamp, Arc<RunConfig>)>>);

impl KnownConfigs {
    /// Returns the resolved configuration of a run. Looks at its file.
    ///
    /// # Errors
    /// Returns the errors of [`RunFolder::config`].
    pub fn of(&self, folder: &RunFolder) -> Result<Arc<RunConfig>, FolderError> {
        let path = folder.path().join("config.toml");
        let data = fs::metadata(&path).map_err(io_error("read", &path))?;
        let stamp = (data.ino(), data.len(), data.modified().ok());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((old, config)) = known.get(&path)
            && *old == stamp
        {
            return Ok(config.clone());
        }
        let config = Arc::new(folder.config()?);
        known.insert(path, (stamp, config.clone()));
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn configuration_is_parsed_again_when_its_file_changes() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        let folder = RunFolder::create(base.path(), &config, None).unwrap();
        let known = KnownConfigs::default();
        let first = known.of(&folder).unwrap();
        assert!(Arc::ptr_eq(&first, &known.of(&folder).unwrap()));
        config.run.train_steps = 9;
        folder.set_config(&config).unwrap();
        assert_eq!(known.of(&folder).unwrap().run.train_steps, 9);
        fs::remove_file(folder.path().join("config.toml")).unwrap();
        assert!(known.of(&folder).is_err());
    }
}
