//! The servers of a live run, stored in its folder for its owner alone.

use std::fs;
use std::io;

use broker::atomic_file;
use serde::{Deserialize, Serialize};

use super::{FolderError, RunFolder, io_error};

/// The URLs of a live run's servers. They contain passwords: only the owner can read the file, and
/// they are never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub broker: String,
    pub state: String,
}

impl RunFolder {
    /// Reads the URLs of the live run's servers (`connection.json`); `None` if the file is missing.
    pub fn connection(&self) -> Result<Option<Connection>, FolderError> {
        let path = self.path.join("connection.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| FolderError::Broken {
                path,
                reason: e.to_string(),
            })
    }

    /// Writes the URLs of the servers. They contain passwords: only the owner can read the file.
    pub fn set_connection(&self, connection: &Connection) -> Result<(), FolderError> {
        let path = self.path.join("connection.json");
        let text = broker::codec::encode_json(connection);
        atomic_file::replace_private(&path, &text).map_err(io_error("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn connection_data_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert!(folder.connection().unwrap().is_none());
        let urls = Connection {
            broker: "amqp://u:p@127.0.0.1:1/".into(),
            state: "redis://127.0.0.1:2".into(),
        };
        folder.set_connection(&urls).unwrap();
        folder.set_connection(&urls).unwrap();
        assert_eq!(folder.connection().unwrap().unwrap().broker, urls.broker);
        let mode = fs::metadata(folder.path().join("connection.json"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
