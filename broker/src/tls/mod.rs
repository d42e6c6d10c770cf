//! TLS to the servers: whom dyad trusts, who it says it is, and who may be spoken to without TLS.
//!
//! Trusted are the authorities of the system, and those in a file of the user's own. One rule for RabbitMQ, Redis and engines; nothing
//! turns the check of a certificate off.

mod files;
mod plaintext;
mod refusal;
mod trust;

pub use self::files::{ClientFiles, TlsError, TlsFiles};
pub use self::plaintext::refuse_plaintext;
pub(crate) use self::refusal::refusal;
pub(crate) use self::trust::Trust;

/// The environment variable that names a file of certificates (PEM) of authorities to trust beside the system's.
pub const CA_VARIABLE: &str = "DYAD_CA";
/// The environment variable that names the file of the certificate (PEM) that servers are shown.
pub const CERT_VARIABLE: &str = "DYAD_CLIENT_CERT";
/// The environment variable that names the file of that certificate's key (PEM).
pub const KEY_VARIABLE: &str = "DYAD_CLIENT_KEY";

/// What a client of ours that speaks rustls is to be given: whom it trusts, and who it says it is.
///
/// # Errors
/// A file cannot be read, or holds something else than it should.
pub fn client(files: &TlsFiles) -> Result<rustls::ClientConfig, TlsError> {
    Ok(std::sync::Arc::unwrap_or_clone(Trust::load(files)?.config()?))
}
