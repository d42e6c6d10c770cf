//! Parameters that are read one at a time, wherever their values are.

use std::cell::{Cell, RefCell};

use blake3::Hasher;
use tch::Kind;

use super::error::{ModelError, Result};
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
    let mut hasher = hasher();
    for spec in source.layout().params() {
        add_name(&mut hasher, spec, kind);
        hasher.update_rayon(&source.bytes_as(spec, kind)?);
    }
    Ok(hasher.finalize())
}

/// The hasher of [`digest`].
pub(crate) fn hasher() -> Hasher {
    Hasher::new_derive_key("dyad weights v1")
}

fn add_name(hasher: &mut Hasher, spec: &ParamSpec, kind: Kind) {
    hasher.update(format!("{} {:?} {kind:?}\n", spec.name, spec.shape).as_bytes());
}

/// Parameters that are hashed while a writer reads them: all of them as f32, in order.
pub(crate) struct Hashed<'a> {
    source: &'a dyn ParamSource,
    hasher: &'a RefCell<Hasher>,
    named: bool,
    /// The number of parameters read so far.
    read: Cell<usize>,
}

impl<'a> Hashed<'a> {
    /// Adds what [`digest`] covers to `hasher`.
    pub(crate) fn named(source: &'a dyn ParamSource, hasher: &'a RefCell<Hasher>) -> Self {
        Self {
            source,
            hasher,
            named: true,
            read: Cell::new(0),
        }
    }

    /// Adds the values alone to `hasher`.
    pub(crate) fn values(source: &'a dyn ParamSource, hasher: &'a RefCell<Hasher>) -> Self {
        Self {
            named: false,
            ..Self::named(source, hasher)
        }
    }
}

impl ParamSource for Hashed<'_> {
    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    fn kind(&self) -> Kind {
        self.source.kind()
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        let place = self.read.get();
        let next = self.layout().params().get(place);
        if kind != Kind::Float || next.is_none_or(|next| next.name != spec.name) {
            let name = &spec.name;
            return Err(ModelError::shape(format!(
                "{name} is read as {kind:?} at place {place}; a digest needs f32 in order"
            )));
        }
        let bytes = self.source.bytes_as(spec, kind)?;
        let mut hasher = self.hasher.borrow_mut();
        if self.named {
            add_name(&mut hasher, spec, kind);
        }
        hasher.update_rayon(&bytes);
        self.read.set(place + 1);
        Ok(bytes)
    }
}
