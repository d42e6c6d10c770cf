//! Reads parameters out of the flat buffer, for files and digests.

use tch::{Device, Kind};

use super::Weights;
use crate::model::error::Result;
use crate::model::param_source::ParamSource;
use crate::model::shape::{Layout, ParamSpec};

impl ParamSource for Weights {
    fn layout(&self) -> &Layout {
        Weights::layout(self)
    }

    fn kind(&self) -> Kind {
        Weights::kind(self)
    }

    fn bytes_as(&self, spec: &ParamSpec, kind: Kind) -> Result<Vec<u8>> {
        let values = self
            .flat()
            .f_narrow(0, spec.offset as i64, spec.numel as i64)?
            .f_detach()?
            .f_to_device_(Device::Cpu, kind, false, false)?;
        let mut bytes = vec![0u8; spec.numel * kind.elt_size_in_bytes()];
        values.f_copy_data_u8(&mut bytes, spec.numel)?;
        Ok(bytes)
    }
}
