//! Random ids: attempts, incarnations, run ids. Nothing that is computed follows from them.

/// 128 random bits.
#[must_use]
pub fn random_bytes() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}

/// A name for one start of one process, such as `c4f09a2e`; also the tail of a run id.
#[must_use]
pub fn incarnation() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}
