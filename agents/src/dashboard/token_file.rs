//! The file with the dashboard's random token, for scripts. Only its owner can read it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file `dashboard-PORT.token`. It is removed when this is dropped, unless another dashboard
/// with the same port has written it since.
pub(super) struct TokenFile {
    path: PathBuf,
    token: String,
}

impl TokenFile {
    /// Writes the token. If the folder belongs to another user, logs a warning and goes on without
    /// the file.
    pub(super) fn write(folder: &Path, port: u16, token: &str) -> Option<Self> {
        let path = folder.join(format!("dashboard-{port}.token"));
        match write(&path, token) {
            Ok(()) => Some(Self {
                path,
                token: token.to_owned(),
            }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot write the token's file: take the token from the printed URL");
                None
            }
        }
    }
}

fn write(path: &Path, token: &str) -> io::Result<()> {
    // A killed process leaves its file behind. It is not reused: a reader that has it open must not
    // get the new token.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|token| token.trim_end() == self.token) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
