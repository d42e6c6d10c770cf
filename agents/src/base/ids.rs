//! Random ids of attempts, incarnations and runs. No computed value depends on them.

/// Returns 128 random bits.
#[must_use]
pub fn random_bytes() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}

/// Returns a name for one start of one process, for example `c4f09a2e`. A run id ends with such a
/// name too.
#[must_use]
pub fn incarnation() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}
