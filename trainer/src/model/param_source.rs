//! Parameters that are read one at a time, wherever their values are.

use tch::Kind;

use super::error::Result;
use super::shape::{Layout, ParamSpec};

/// Parameters of a model. Writers read them one after another, so no copy of all is needed.
pub(crate) trait ParamSource {
    fn layout(&self) -> &Layout;

    /// The kind of the stored values.
    fn kind(&self) -> Kind;

    /// The bytes of one parameter as `kind`, little-endian.
    ///
    /// # Errors
    /// [`super::ModelError`] when they cannot be read from their place.
    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>>;
}

/// BLAKE3 over names, shapes and bytes of all parameters as `kind`: equal for equal models only.
///
/// # Errors
/// The same as for [`ParamSource::bytes_as`].
pub(crate) fn digest(source: &dyn ParamSource, kind: Kind) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new_derive_key("dyad weights v1");
    for spec in source.layout().params() {
        let head = format!("{} {:?} {kind:?}\n", spec.name, spec.shape);
        hasher.update(head.as_bytes());
        hasher.update(&source.bytes_as(spec, kind)?);
    }
    Ok(hasher.finalize())
}
