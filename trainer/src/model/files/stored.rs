//! Parameters that are read from safetensors files: one at a time, or in stretches of their flat
//! buffer.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tch::{Kind, Tensor};

use super::load::checked;
use super::tensor_file::TensorFile;
use crate::model::error::{ModelError, Result};
use crate::model::param_source::ParamSource;
use crate::model::shape::{Layout, ModelShape, ParamSpec};

/// Parameters in files. Memory holds only the values that are read. The files stay open: on a local
/// disk they may be removed or replaced in the meantime, but not overwritten in place.
pub struct StoredParams {
    files: RefCell<Vec<TensorFile>>,
    layout: Arc<Layout>,
    /// Each tensor has the name of a parameter, after this prefix.
    prefix: &'static str,
    kind: Kind,
    read: Box<dyn Fn() + Send>,
}

impl StoredParams {
    /// Opens a model of this shape. Checks its files as [`Weights::load_as`] does, and that every
    /// value is finite as `kind`.
    ///
    /// # Errors
    /// The errors of [`Weights::load_as`].
    ///
    /// [`Weights::load_as`]: crate::model::Weights::load_as
    pub fn of_model(shape: &ModelShape, folder: &Path, kind: Kind) -> Result<Self> {
        Self::of_model_marked(shape, folder, kind, || {})
    }

    /// [`Self::of_model`]. Calls `read` for each parameter that is checked, and later
    /// [read](Self::on_read).
    ///
    /// # Errors
    /// The same as for [`Self::of_model`].
    pub(crate) fn of_model_marked(
        shape: &ModelShape,
        folder: &Path,
        kind: Kind,
        read: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (layout, mut files) = checked(shape, folder)?;
        for file in &mut files {
            for spec in layout.params() {
                if file.check_finite(&spec.name, &spec.shape, kind)? {
                    file.release(&spec.name);
                    read();
                }
            }
        }
        Ok(Self {
            files: RefCell::new(files),
            layout,
            prefix: "",
            kind,
            read: Box::new(read),
        })
    }

    /// Opens one file for parameters of `layout`, stored as `kind`.
    ///
    /// # Errors
    /// [`ModelError::Io`] and [`ModelError::Format`].
    pub(crate) fn open(path: &Path, layout: &Arc<Layout>, prefix: &'static str, kind: Kind) -> Result<Self> {
        Ok(Self {
            files: RefCell::new(vec![TensorFile::open(path)?]),
            layout: Arc::clone(layout),
            prefix,
            kind,
            read: Box::new(|| {}),
        })
    }

    /// Calls `read` for each parameter that is read.
    #[must_use]
    pub(crate) fn on_read(mut self, read: impl Fn() + Send + 'static) -> Self {
        self.read = Box::new(read);
        self
    }

    /// Checks that every parameter is there in its shape and kind.
    ///
    /// # Errors
    /// [`ModelError::Format`].
    pub(crate) fn check_names(&self) -> Result<()> {
        let files = self.files.borrow();
        let required = |file: &TensorFile| {
            let mut params = self.layout.params().iter();
            params.try_for_each(|spec| file.require(&self.name(spec), &spec.shape, self.kind))
        };
        files.iter().try_for_each(required)
    }

    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn name(&self, spec: &ParamSpec) -> String {
        format!("{}{}", self.prefix, spec.name)
    }

    fn read_part(&self, spec: &ParamSpec, from: usize, target: &mut Tensor) -> Result<()> {
        let name = self.name(spec);
        // The last of several files with the same tensor counts, as for [`Weights::load_as`].
        for file in self.files.borrow_mut().iter_mut().rev() {
            if file.read_part(&name, &spec.shape, from, target)? {
                (self.read)();
                return Ok(());
            }
        }
        Err(missing(&name))
    }
}

fn missing(name: &str) -> ModelError {
    ModelError::shape(format!("{name} is missing in the file"))
}

impl ParamSource for StoredParams {
    fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<()> {
        let target = target.f_detach()?;
        for spec in self.layout.params() {
            let own = spec.range();
            let (from, to) = (own.start.max(range.start), own.end.min(range.end));
            if from < to {
                let mut part = target.f_narrow(0, from - range.start, to - from)?;
                self.read_part(spec, (from - own.start) as usize, &mut part)?;
            }
        }
        Ok(())
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        let name = self.name(spec);
        for file in self.files.borrow_mut().iter_mut() {
            file.check_finite(&name, &spec.shape, kind)?;
        }
        self.bytes(&spec.range(), kind)
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::super::load::tests::INIT;
    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::Weights;

    #[test]
    fn stretches_are_those_of_the_whole_buffer() {
        let folder = tempfile::tempdir().unwrap();
        for (tied, kind, most) in [
            (false, Kind::Float, u64::MAX),
            (false, Kind::BFloat16, 6000),
            (true, Kind::Float, 6000),
        ] {
            let shape = ModelShape { tied, ..tiny() };
            let weights = Weights::random(&shape, INIT, 3).unwrap();
            weights.save_as(&shape, folder.path(), kind, most).unwrap();
            let whole = Weights::load(&shape, folder.path()).unwrap();
            let stored = StoredParams::of_model(&shape, folder.path(), Kind::Float).unwrap();
            let numel = whole.layout().numel() as i64;
            for (from, to) in [(0, numel), (1, numel - 1), (numel / 3, numel / 2), (7, 8), (5, 5)] {
                for wanted in [Kind::Float, Kind::BFloat16] {
                    let target = Tensor::full([to - from], f64::NAN, (wanted, Device::Cpu));
                    stored.copy(&(from..to), &target).unwrap();
                    let expected = whole.flat().narrow(0, from, to - from).to_kind(wanted);
                    assert!(target.equal(&expected), "{from}..{to} of {kind:?} as {wanted:?}");
                }
            }
            let copied = Weights::copy_of(&stored, Device::Cpu, Kind::BFloat16).unwrap();
            assert!(copied.flat().equal(&whole.flat().to_kind(Kind::BFloat16)));
            std::fs::remove_dir_all(folder.path()).unwrap();
            std::fs::create_dir(folder.path()).unwrap();
            let left = Weights::copy_of(&stored, Device::Cpu, Kind::Float).unwrap();
            assert!(left.flat().equal(whole.flat()), "the files are open");
        }
    }

    #[test]
    fn damaged_models_are_refused_when_they_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let weights = Weights::random(&tiny(), INIT, 2).unwrap();
        let spec = &weights.params()[3];
        let _ = weights.flat().narrow(0, spec.offset as i64 + 5, 1).fill_(f64::NAN);
        weights.save(&tiny(), folder.path()).unwrap();
        let opened = || {
            StoredParams::of_model(&tiny(), folder.path(), Kind::Float)
                .err()
                .unwrap()
        };
        assert!(matches!(opened(), ModelError::NotFinite { tensor, .. } if tensor == spec.name));
        let file = folder.path().join("model.safetensors");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() - 4]).unwrap();
        assert!(matches!(opened(), ModelError::Format { .. }));
    }
}
