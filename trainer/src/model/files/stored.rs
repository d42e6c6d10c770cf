//! Parameters that are read from a safetensors file one at a time.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use super::tensor_file::TensorFile;
use crate::model::error::{ModelError, Result};
use crate::model::param_source::ParamSource;
use crate::model::shape::{Layout, ParamSpec};

/// The tensors of one file. Each has the name of a parameter, after a prefix.
pub(crate) struct StoredParams {
    file: RefCell<TensorFile>,
    layout: Arc<Layout>,
    prefix: &'static str,
    kind: Kind,
    read: Box<dyn Fn()>,
}

impl StoredParams {
    /// Opens a file for parameters of `layout`, stored as `kind`.
    ///
    /// # Errors
    /// [`ModelError::Io`] and [`ModelError::Format`].
    pub(crate) fn open(path: &Path, layout: &Arc<Layout>, prefix: &'static str, kind: Kind) -> Result<Self> {
        Ok(Self {
            file: RefCell::new(TensorFile::open(path)?),
            layout: Arc::clone(layout),
            prefix,
            kind,
            read: Box::new(|| {}),
        })
    }

    /// Calls `read` for each parameter that is read.
    #[must_use]
    pub(crate) fn on_read(mut self, read: impl Fn() + 'static) -> Self {
        self.read = Box::new(read);
        self
    }
}

impl ParamSource for StoredParams {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        let name = format!("{}{}", self.prefix, spec.name);
        let mut values = Tensor::f_empty(spec.shape.as_slice(), (kind, Device::Cpu))?;
        if !self.file.borrow_mut().read(&name, &mut values)? {
            return Err(ModelError::shape(format!("{name} is missing in the file")));
        }
        let mut bytes = vec![0u8; spec.numel * kind.elt_size_in_bytes()];
        values.f_copy_data_u8(&mut bytes, spec.numel)?;
        (self.read)();
        Ok(bytes)
    }
}
