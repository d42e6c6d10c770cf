//! TLS to the servers: whom dyad trusts, who it says it is, and who may be spoken to without TLS.
//!
//! Trusted are the authorities of the system, and those in a file of the user's own. One rule for RabbitMQ, Redis and engines; nothing
//! turns the check of a certificate off.

mod files;
mod plaintext;
mod refusal;
mod trust;

pub use self::files::{CA_VARIABLE, CERT_VARIABLE, ClientFiles, KEY_VARIABLE, TlsError, TlsFiles};
pub use self::plaintext::refuse_plaintext;
pub(crate) use self::refusal::refusal;
pub(crate) use self::trust::Trust;
pub use self::trust::client;
