//! The sources and libtorch that this program was built from (`trainer/libtorch/link.rs`).

/// dyad's release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of its sources, with `+changes` if they differed from it. Empty in development
/// builds, and where neither git nor DYAD_COMMIT gave one.
pub(crate) const COMMIT: &str = env!("DYAD_BUILD_COMMIT");
/// The release of the libtorch that it was linked with; empty if unknown.
pub(crate) const LIBTORCH: &str = env!("DYAD_BUILD_LIBTORCH");
