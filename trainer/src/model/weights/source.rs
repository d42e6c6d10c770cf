//! Reads parameters out of the flat buffer.

use std::ops::Range;
use std::sync::Arc;

use tch::{Kind, Tensor};

use super::Weights;
use crate::model::error::Result;
use crate::model::param_source::ParamSource;
use crate::model::shape::Layout;

impl ParamSource for Weights {
    fn layout(&self) -> &Arc<Layout> {
        Weights::layout(self)
    }

    fn kind(&self) -> Kind {
        Weights::kind(self)
    }

    fn copy(&self, range: &Range<i64>, target: &Tensor) -> Result<()> {
        let values = self.flat().f_detach()?;
        let values = values.f_narrow(0, range.start, range.end - range.start)?;
        Ok(target.f_detach()?.f_copy_(&values)?)
    }
}
