//! The change that an adapter adds to a linear layer, bound to its tensors.

use tch::{Kind, Tensor};

use crate::model::error::Result;

/// `x -> scale (x A^T) B^T` for neighbouring ranges of a linear layer's output, each with its own A
/// and B.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(in crate::model) parts: Vec<Part>,
    /// Width of the whole output.
    pub(in crate::model) width: i64,
    pub(in crate::model) scale: f64,
}

#[derive(Debug)]
pub(crate) struct Part {
    /// `[rank, in]`
    pub(in crate::model) a: Tensor,
    /// `[count, rank]`
    pub(in crate::model) b: Tensor,
    /// The first output column of its range.
    pub(in crate::model) start: i64,
    pub(in crate::model) count: i64,
}

impl Delta {
    /// Returns `y` plus the change; `x` is `[n, in]`, `y` `[n, width]`.
    pub(in crate::model) fn add_to(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        if let [part] = self.parts.as_slice()
            && part.count == self.width
        {
            return Ok(y.f_addmm(&self.low(part, x)?, &part.b.f_tr()?)?);
        }
        let (rows, mut next) = (x.size()[0], 0);
        let mut pieces = Vec::with_capacity(2 * self.parts.len() + 1);
        let gap = |count: i64| Tensor::f_zeros([rows, count], (x.kind(), x.device()));
        for part in &self.parts {
            if part.start > next {
                pieces.push(gap(part.start - next)?);
            }
            pieces.push(self.low(part, x)?.f_matmul(&part.b.f_tr()?)?);
            next = part.start + part.count;
        }
        if next < self.width {
            pieces.push(gap(self.width - next)?);
        }
        Ok(y.f_add(&Tensor::f_cat(&pieces, -1)?)?)
    }

    pub(in crate::model) fn to_kind(&self, kind: Kind) -> Result<Self> {
        let converted = |part: &Part| -> Result<Part> {
            Ok(Part {
                a: part.a.f_detach()?.f_to_kind(kind)?,
                b: part.b.f_detach()?.f_to_kind(kind)?,
                start: part.start,
                count: part.count,
            })
        };
        Ok(Self {
            parts: self.parts.iter().map(converted).collect::<Result<_>>()?,
            width: self.width,
            scale: self.scale,
        })
    }

    /// The same products with other numbers: a fresh adapter adds 0, which would hide how its
    /// products are computed.
    pub(in crate::model) fn for_trial(&self) -> Result<Self> {
        let filled = |part: &Part| -> Result<Part> {
            let places = Tensor::f_arange(part.b.numel() as i64, (Kind::Float, part.b.device()))?;
            let values = places.f_mul_scalar(0.3)?.f_add_scalar(0.5)?.f_sin()?;
            Ok(Part {
                a: part.a.f_detach()?,
                b: values.f_view(part.b.size().as_slice())?.f_to_kind(part.b.kind())?,
                start: part.start,
                count: part.count,
            })
        };
        Ok(Self {
            parts: self.parts.iter().map(filled).collect::<Result<_>>()?,
            width: self.width,
            scale: self.scale,
        })
    }

    /// The bottleneck, scaled where it is narrowest.
    fn low(&self, part: &Part, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_matmul(&part.a.f_tr()?)?.f_mul_scalar(self.scale)?)
    }

    /// The same change as one part with a block-diagonal B: two multiplications instead of two for
    /// each part. It is a copy, so it serves inference only.
    pub(in crate::model) fn fused(self) -> Result<Self> {
        if self.parts.len() == 1 && self.parts.iter().all(|part| part.count == self.width) {
            return Ok(self);
        }
        let a = Tensor::f_cat(&self.parts.iter().map(|part| &part.a).collect::<Vec<_>>(), 0)?;
        let b = Tensor::f_zeros([self.width, a.size()[0]], (a.kind(), a.device()))?;
        let mut column = 0;
        for part in &self.parts {
            let rank = part.a.size()[0];
            let block = b.f_narrow(0, part.start, part.count)?;
            block.f_narrow(1, column, rank)?.f_copy_(&part.b)?;
            column += rank;
        }
        let part = Part {
            a,
            b,
            start: 0,
            count: self.width,
        };
        Ok(Self {
            parts: vec![part],
            width: self.width,
            scale: self.scale,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn parts_with_gaps_equal_their_fusion() {
        let options = (Kind::Float, Device::Cpu);
        let values = |rows: i64, columns: i64, salt: f64| {
            (Tensor::arange(rows * columns, options) * 0.37 + salt)
                .sin()
                .view([rows, columns])
        };
        let delta = |width| Delta {
            parts: vec![
                Part {
                    a: values(2, 5, 0.1),
                    b: values(3, 2, 0.2),
                    start: 1,
                    count: 3,
                },
                Part {
                    a: values(2, 5, 0.3),
                    b: values(2, 2, 0.4),
                    start: 6,
                    count: 2,
                },
            ],
            width,
            scale: 0.5,
        };
        for width in [8, 9] {
            let (x, y) = (values(4, 5, 0.5), values(4, width, 0.6));
            let apart = delta(width).add_to(&y, &x).unwrap();
            let fused = delta(width).fused().unwrap().add_to(&y, &x).unwrap();
            assert!((&apart - fused).abs().max().double_value(&[]) < 1e-6);
            let changed = (apart - y).abs().sum_dim_intlist(&[0i64][..], false, Kind::Float);
            assert_eq!(changed.double_value(&[0]), 0.0);
            assert!(changed.double_value(&[2]) > 0.01);
        }
    }

    #[test]
    fn a_trial_of_what_adds_nothing_adds_something() {
        for kind in [Kind::Float, Kind::BFloat16] {
            let options = (kind, Device::Cpu);
            let fresh = Delta {
                parts: vec![Part {
                    a: Tensor::ones([2, 5], options),
                    b: Tensor::zeros([9, 2], options),
                    start: 0,
                    count: 9,
                }],
                width: 9,
                scale: 0.5,
            };
            let (x, y) = (Tensor::ones([4, 5], options), Tensor::zeros([4, 9], options));
            let added = |delta: &Delta| delta.add_to(&y, &x).unwrap().abs().min().double_value(&[]);
            assert_eq!(added(&fresh), 0.0);
            assert!(added(&fresh.for_trial().unwrap()) > 1e-3, "{kind:?}");
        }
    }
}
