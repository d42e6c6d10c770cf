//! Parameters that are read one at a time, wherever their values are.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use blake3::Hasher;
use tch::{Device, Kind, Tensor};

use super::error::{ModelError, Result};
use super::shape::{Layout, ParamSpec};

/// Elements that are converted at once.
const BLOCK: usize = 1 << 22;

/// Parameters of a model, wherever they are: in memory, in files, or split among ranks. Readers
/// take one stretch after another, so no copy of all is needed.
pub trait ParamSource {
    fn layout(&self) -> &Arc<Layout>;

    /// The kind of the stored values.
    fn kind(&self) -> Kind;

    /// Copies the elements `range` of the flat buffer to all of `target`, whatever its kind and
    /// device.
    ///
    /// # Errors
    /// [`ModelError`] when they cannot be read from their place.
    fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<()>;

    /// The bytes of the elements `range` as `kind`, little-endian. Other memory is needed for a
    /// block of them only.
    ///
    /// # Errors
    /// The same as for [`Self::copy`].
    fn bytes(&self, range: &Range<i64>, kind: Kind) -> Result<Vec<u8>> {
        let width = kind.elt_size_in_bytes();
        let length = (range.end - range.start) as usize;
        let mut bytes = vec![0u8; length * width];
        let block = Tensor::f_empty([length.min(BLOCK) as i64], (kind, Device::Cpu))?;
        let mut start = range.start;
        for to in bytes.chunks_mut(BLOCK * width) {
            let count = to.len() / width;
            let values = block.f_narrow(0, 0, count as i64)?;
            self.copy(&(start..start + count as i64), &values)?;
            values.f_copy_data_u8(to, count)?;
            start += count as i64;
        }
        Ok(bytes)
    }

    /// The [`Self::bytes`] of one parameter.
    ///
    /// # Errors
    /// The same as for [`Self::copy`].
    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        self.bytes(&spec.range(), kind)
    }

    /// BLAKE3 over names, shapes and bytes of all parameters as `kind`: equal for equal models
    /// only.
    ///
    /// # Errors
    /// The same as for [`Self::copy`].
    fn digest_as(&self, kind: Kind) -> Result<blake3::Hash> {
        let mut hasher = hasher();
        for spec in self.layout().params() {
            add_name(&mut hasher, spec, kind);
            hasher.update_rayon(&self.bytes_as(spec, kind)?);
        }
        Ok(hasher.finalize())
    }
}

/// The hasher of [`ParamSource::digest_as`].
pub(crate) fn hasher() -> Hasher {
    Hasher::new_derive_key("dyad weights v1")
}

fn add_name(hasher: &mut Hasher, spec: &ParamSpec, kind: Kind) {
    hasher.update(format!("{} {:?} {kind:?}\n", spec.name, spec.shape).as_bytes());
}

/// Parameters that are hashed while a writer reads them: all of them as one kind, in order.
pub(crate) struct Hashed<'a> {
    source: &'a dyn ParamSource,
    kind: Kind,
    hasher: &'a RefCell<Hasher>,
    named: bool,
    /// The number of parameters read so far.
    read: Cell<usize>,
}

impl<'a> Hashed<'a> {
    /// Adds what [`ParamSource::digest_as`] covers to `hasher`.
    pub(crate) fn named(source: &'a dyn ParamSource, kind: Kind, hasher: &'a RefCell<Hasher>) -> Self {
        Self {
            source,
            kind,
            hasher,
            named: true,
            read: Cell::new(0),
        }
    }

    /// Adds the values alone to `hasher`, as f32.
    pub(crate) fn values(source: &'a dyn ParamSource, hasher: &'a RefCell<Hasher>) -> Self {
        Self {
            named: false,
            ..Self::named(source, Kind::Float, hasher)
        }
    }
}

impl ParamSource for Hashed<'_> {
    fn layout(&self) -> &Arc<Layout> {
        self.source.layout()
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn copy(&self, _: &Range<i64>, _: &Tensor) -> Result<()> {
        Err(ModelError::shape("a digest needs whole parameters in order"))
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        let (place, wanted) = (self.read.get(), self.kind);
        let next = self.layout().params().get(place);
        if kind != wanted || next.is_none_or(|next| next.name != spec.name) {
            let name = &spec.name;
            return Err(ModelError::shape(format!(
                "{name} is read as {kind:?} at place {place}; a digest needs {wanted:?} in order"
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
