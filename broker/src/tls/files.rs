//! The user's own TLS files and their possible errors.

use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable with a file of authorities (PEM) to trust in addition to the system's.
pub const CA_VARIABLE: &str = "DYAD_CA";
/// The environment variable with the file of our certificate (PEM), which servers receive.
pub const CERT_VARIABLE: &str = "DYAD_CLIENT_CERT";
/// The environment variable with the file of that certificate's key (PEM).
pub const KEY_VARIABLE: &str = "DYAD_CLIENT_KEY";

/// The user's files, in addition to the system's certificates. They are read only when a URL asks
/// for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates (PEM) of authorities, trusted like the system's.
    pub ca: Option<PathBuf>,
    /// Our identity, for servers that ask for one.
    pub client: Option<ClientFiles>,
}

/// Our certificate and its key (both PEM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The reason why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}, which {variable} names: {source}; set {variable} to a file (PEM) with {holds}", .path.display())]
    Read {
        variable: &'static str,
        path: PathBuf,
        holds: &'static str,
        source: std::io::Error,
    },
    #[error("{}, which {variable} names, cannot be used: {reason}; set {variable} to a file (PEM) with {holds}", .path.display())]
    Content {
        variable: &'static str,
        path: PathBuf,
        holds: &'static str,
        reason: String,
    },
    #[error("{set} is set and {missing} is not: our certificate needs both files, so set {missing} or unset {set}")]
    Half { set: &'static str, missing: &'static str },
    #[error(
        "the certificate in {} and the key in {} cannot be used together: {reason}; set {CERT_VARIABLE} and {KEY_VARIABLE} to \
         a certificate and its own key", .files.certificate.display(), .files.key.display()
    )]
    Pair { files: ClientFiles, reason: String },
    #[error("TLS cannot be set up: {0}; please report this")]
    Setup(String),
}

impl TlsFiles {
    /// Reads the file names from the environment.
    ///
    /// # Errors
    /// Only one of the two files of our certificate is named.
    pub fn from_environment() -> Result<Self, TlsError> {
        Self::from(|variable| std::env::var_os(variable))
    }

    /// Reads the variables. An empty one counts as unset: compose files set every variable.
    fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, TlsError> {
        let file = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let half = |set, missing| Err(TlsError::Half { set, missing });
        let client = match (file(CERT_VARIABLE), file(KEY_VARIABLE)) {
            (Some(certificate), Some(key)) => Some(ClientFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return half(CERT_VARIABLE, KEY_VARIABLE),
            (None, Some(_)) => return half(KEY_VARIABLE, CERT_VARIABLE),
        };
        Ok(Self {
            ca: file(CA_VARIABLE),
            client,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(set: &[(&str, &str)]) -> Result<TlsFiles, TlsError> {
        TlsFiles::from(|name| {
            let found = set.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(*value))
        })
    }

    #[test]
    fn variables_name_files_and_empty_ones_name_none() {
        assert_eq!(from(&[]).unwrap(), TlsFiles::default());
        assert_eq!(
            from(&[(CA_VARIABLE, ""), (KEY_VARIABLE, "")]).unwrap(),
            TlsFiles::default()
        );
        let all = from(&[(CA_VARIABLE, "ca"), (CERT_VARIABLE, "cert"), (KEY_VARIABLE, "key")]).unwrap();
        assert_eq!(all.ca, Some("ca".into()));
        assert_eq!(all.client.unwrap().key, PathBuf::from("key"));
    }

    #[test]
    fn half_a_pair_names_the_missing_half() {
        for (set, missing) in [(CERT_VARIABLE, KEY_VARIABLE), (KEY_VARIABLE, CERT_VARIABLE)] {
            let error = from(&[(set, "file")]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{set} is set and {missing} is not")),
                "{error}"
            );
        }
    }
}
