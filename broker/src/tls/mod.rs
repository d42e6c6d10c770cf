//! TLS to the servers: trusted authorities, our own certificate, and hosts that need no TLS.
//!
//! The system's authorities are trusted, and those in a file of the user. One rule applies to
//! RabbitMQ, Redis and engines. No setting turns the check of certificates off.

mod files;
mod plaintext;
mod refusal;
mod trust;

pub use self::files::{CA_VARIABLE, CERT_VARIABLE, ClientFiles, KEY_VARIABLE, TlsError, TlsFiles};
pub use self::plaintext::refuse_plaintext;
pub(crate) use self::refusal::refusal;
pub(crate) use self::trust::Trust;
pub use self::trust::client;
