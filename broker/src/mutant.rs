//! Guards that can be taken away, so that the tests can be tested: without a guard, a named test must fail.
//!
//! [`stands`] is always true unless this crate is built with the feature `mutants`, which only the workspace's tests ask
//! for; then `DYAD_MUTANT=NAME` removes the guard of that name. `make mutants` removes each one and expects its test to fail.

/// Whether the guard `name` is in its place.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub fn stands(_name: &str) -> bool {
    true
}

/// Whether the guard `name` is in its place.
#[cfg(feature = "mutants")]
#[must_use]
pub fn stands(name: &str) -> bool {
    static REMOVED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("DYAD_MUTANT").ok());
    REMOVED.as_deref() != Some(name)
}
