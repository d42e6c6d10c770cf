//! The contents of the files and of the system's certificates, in the forms for the servers'
//! clients.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::files::{CA_VARIABLE, CERT_VARIABLE, ClientFiles, KEY_VARIABLE, TlsError, TlsFiles};

const AUTHORITIES: &str = "the certificates of the authorities that signed the servers'";
const OURS: &str = "the certificate for the servers";
const KEY: &str = "that certificate's key, without a password";
/// The largest size of a file in bytes; a larger one was named by mistake.
const LARGEST: u64 = 16 << 20;

/// Returns the configuration of a rustls client: its trusted authorities and its own certificate.
///
/// # Errors
/// A file cannot be read or has the wrong content.
pub fn client(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    Ok(Arc::unwrap_or_clone(Trust::load(files)?.config()?))
}

impl TlsFiles {
    /// Checks that TLS works with these files.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn check(&self) -> Result<(), TlsError> {
        Trust::load(self).and_then(|trust| trust.config()).map(drop)
    }
}

/// The trusted authorities and our own certificate.
pub(crate) struct Trust {
    roots: Vec<CertificateDer<'static>>,
    client: Option<Client>,
}

/// The contents of the two files of [`ClientFiles`].
struct Client {
    files: ClientFiles,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Trust {
    /// Reads the system's certificates and the files.
    ///
    /// # Errors
    /// A file cannot be read or has the wrong content. Unreadable certificates of the system are
    /// left out.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let mut roots = system();
        if let Some(path) = &files.ca {
            roots.extend(authorities(path)?);
        }
        let client = files.client.clone().map(Client::load).transpose()?;
        let trust = Self { roots, client };
        // Checked here, so that both clients report the same error about files that do not fit
        // together.
        trust.config()?;
        Ok(trust)
    }

    /// Returns the configuration for a client that uses rustls.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.roots.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?
            .with_root_certificates(store);
        let Some(client) = &self.client else {
            return Ok(Arc::new(trusting.with_no_client_auth()));
        };
        let config = trusting.with_client_auth_cert(client.chain()?, client.private_key()?);
        config.map(Arc::new).map_err(|error| TlsError::Pair {
            files: client.files.clone(),
            reason: error.to_string(),
        })
    }

    /// Returns the authorities as one PEM text.
    #[cfg(feature = "redis")]
    pub(crate) fn roots_pem(&self) -> Vec<u8> {
        use base64::Engine;
        let base64 = base64::engine::general_purpose::STANDARD;
        let block = |der: &CertificateDer<'_>| {
            let text = base64.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        self.roots.iter().map(block).collect::<String>().into_bytes()
    }

    /// Returns our certificate and key as they are in their files.
    #[cfg(feature = "redis")]
    pub(crate) fn client_pem(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let client = self.client.as_ref()?;
        Some((client.certificate.clone(), client.key.clone()))
    }
}

impl Client {
    fn load(files: ClientFiles) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(CERT_VARIABLE, &files.certificate, OURS)?,
            key: read(KEY_VARIABLE, &files.key, KEY)?,
            files,
        })
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(CERT_VARIABLE, &self.files.certificate, OURS, &self.certificate)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| TlsError::Content {
            variable: KEY_VARIABLE,
            path: self.files.key.clone(),
            holds: KEY,
            reason: format!("no private key is in it ({error})"),
        })
    }
}

/// Returns the system's authorities, if it has any: a container often has none.
fn system() -> Vec<CertificateDer<'static>> {
    let loaded = rustls_native_certs::load_native_certs();
    for error in loaded.errors {
        tracing::debug!(%error, "some certificates of the system cannot be read");
    }
    loaded.certs.into_iter().filter(anchors).collect()
}

/// Returns the user's authorities. Each must be usable, because the user named the file.
fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(CA_VARIABLE, path, AUTHORITIES)?;
    let found = certificates(CA_VARIABLE, path, AUTHORITIES, &text)?;
    match found.iter().position(|certificate| !anchors(certificate)) {
        None => Ok(found),
        Some(place) => Err(TlsError::Content {
            variable: CA_VARIABLE,
            path: path.to_owned(),
            holds: AUTHORITIES,
            reason: format!("certificate {} in it is damaged", place + 1),
        }),
    }
}

fn anchors(certificate: &CertificateDer<'static>) -> bool {
    RootCertStore::empty().add(certificate.clone()).is_ok()
}

/// Returns the certificates in a file, at least one.
fn certificates(
    variable: &'static str,
    path: &Path,
    holds: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = |reason: String| TlsError::Content {
        variable,
        path: path.to_owned(),
        holds,
        reason,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| content(format!("it is no PEM ({error})")))?;
    if found.is_empty() {
        return Err(content("no certificate is in it".into()));
    }
    Ok(found)
}

fn read(variable: &'static str, path: &Path, holds: &'static str) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    read.map_err(|source| TlsError::Read {
        variable,
        path: path.to_owned(),
        holds,
        source,
    })?;
    Ok(bytes)
}
