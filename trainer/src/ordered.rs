//! An engine's weights in the order that its own products need (`kernels`), in addition to the
//! matrices themselves: f32 or bf16 on a CPU.
//!
//! Ordered weights must not change any more: published weights, or a frozen base. All engines of a
//! process with the same base share its order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use half::bf16;
use kernels::Packed;
use tch::{Kind, TchError, Tensor};

use crate::shim::floats;

/// An ordered matrix `[out, in]`.
#[derive(Debug)]
pub(crate) struct Ordered {
    /// Declared before the matrix, so that it is dropped first: see [`FROZEN`].
    packed: Arc<OnceLock<Packed>>,
    matrix: Tensor,
    /// Products of [`MANY`] rows and more are libtorch's. Their results are rounded to bf16.
    many_by_libtorch: bool,
}

/// The number of rows from which libtorch's products in bf16 are faster, on processors that
/// multiply bf16 numbers. On others they are slower with any number of rows.
const MANY: i64 = 16;

/// Keyed by a matrix's address, its number of elements and its number of inputs.
type Known = HashMap<[usize; 3], Weak<OnceLock<Packed>>>;

/// Frozen matrices with an order, finished or in progress. An owner of an order also owns its
/// matrix. So a live order always belongs to the matrix at this address.
static FROZEN: Mutex<Option<Known>> = Mutex::new(None);

impl Ordered {
    /// Returns `None` where libtorch's own products are used: other devices, other kinds,
    /// processors without wide vectors.
    pub(crate) fn of(weight: &Tensor, frozen: bool) -> Option<Self> {
        let many_by_libtorch = weight.kind() == Kind::BFloat16 && multiplies_bf16();
        let exact = Self::exact(weight, frozen)?;
        Some(Self {
            many_by_libtorch,
            ..exact
        })
    }

    /// Returns an order whose products are never rounded to bf16, whatever the number of rows.
    pub(crate) fn exact(weight: &Tensor, frozen: bool) -> Option<Self> {
        let (&[_, inputs], true) = (weight.size().as_slice(), kernels::pays()) else {
            return None;
        };
        let readable = floats::read::<f32>(weight).is_some() || floats::read::<bf16>(weight).is_some();
        if !readable || weight.numel() == 0 {
            return None;
        }
        let ordered = Self {
            packed: if frozen {
                known([weight.data_ptr() as usize, weight.numel(), inputs as usize])
            } else {
                Arc::default()
            },
            matrix: weight.shallow_clone(),
            many_by_libtorch: false,
        };
        let _ = ordered.packed();
        Some(ordered)
    }

    /// Built outside the lock: a large base takes seconds, and other threads need not wait.
    fn packed(&self) -> &Packed {
        self.packed.get_or_init(|| {
            let inputs = self.matrix.size().last().map_or(1, |inputs| *inputs as usize);
            match floats::read(&self.matrix) {
                Some(halves) => Packed::of_bf16(halves, inputs),
                None => Packed::new(floats::read(&self.matrix).unwrap_or_default(), inputs),
            }
        })
    }

    /// Returns true if a row's numbers do not depend on the other rows, or on their number.
    pub(crate) fn keeps_rows_apart(&self) -> bool {
        !self.many_by_libtorch
    }

    /// Computes `x W^T`: `x` is `[n, in]` of f32 on the CPU. Records no gradient.
    pub(crate) fn times(&self, x: &Tensor) -> Result<Tensor, TchError> {
        if self.many_by_libtorch && x.size2()?.0 >= MANY {
            let narrow = x.f_to_kind(Kind::BFloat16)?;
            return narrow.f_matmul(&self.matrix.f_tr()?)?.f_to_kind(Kind::Float);
        }
        let (rows, dense, packed) = (x.size2()?.0, x.f_contiguous()?, self.packed());
        let numbers = floats::read(&dense)
            .filter(|numbers| numbers.len() == rows as usize * packed.inputs())
            .ok_or_else(|| {
                TchError::Shape(format!(
                    "{:?} {:?} by {} inputs in f32",
                    x.kind(),
                    x.size(),
                    packed.inputs()
                ))
            })?;
        floats::made(&[rows, packed.outputs() as i64], |y| packed.multiply(numbers, y))
    }
}

impl Clone for Ordered {
    fn clone(&self) -> Self {
        Self {
            packed: Arc::clone(&self.packed),
            matrix: self.matrix.shallow_clone(),
            many_by_libtorch: self.many_by_libtorch,
        }
    }
}

/// Returns true if this processor multiplies bf16 numbers.
fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    let multiplies = std::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    let multiplies = false;
    multiplies
}

/// The order of the frozen matrix at this address, empty if it has none yet.
fn known(place: [usize; 3]) -> Arc<OnceLock<Packed>> {
    let mut known = FROZEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    known.retain(|_, packed| packed.strong_count() > 0);
    known.get(&place).and_then(Weak::upgrade).unwrap_or_else(|| {
        let packed = Arc::default();
        known.insert(place, Arc::downgrade(&packed));
        packed
    })
}

#[cfg(test)]
impl Ordered {
    /// Observes the order without keeping it alive.
    pub(crate) fn watched(&self) -> Weak<OnceLock<Packed>> {
        Arc::downgrade(&self.packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn values(size: &[i64]) -> Tensor {
        let count: i64 = size.iter().product();
        (Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.7)
            .sin()
            .view(size)
    }

    #[test]
    fn products_are_libtorchs() {
        let (x, weight) = (values(&[2, 40, 48]).transpose(0, 1).select(1, 1), values(&[70, 48]));
        if let Some(ordered) = Ordered::of(&weight, false) {
            let gap = (ordered.times(&x).unwrap() - x.matmul(&weight.tr()))
                .abs()
                .max()
                .double_value(&[]);
            assert!(gap < 1e-5, "{gap}");
            assert_eq!(ordered.times(&x.narrow(0, 0, 0)).unwrap().size(), [0, 70]);
            assert!(ordered.times(&values(&[3, 47])).is_err() && ordered.times(&x.to_kind(Kind::Double)).is_err());
        }
        assert!(Ordered::of(&weight.to_kind(Kind::Double), false).is_none());
    }

    #[test]
    fn products_in_bf16_are_those_of_the_widened_matrix() {
        let weight = values(&[70, 48]).to_kind(Kind::BFloat16);
        let (Some(ordered), Some(exact)) = (Ordered::of(&weight, false), Ordered::exact(&weight, false)) else {
            return;
        };
        assert!(exact.keeps_rows_apart());
        let wide = weight.to_kind(Kind::Float);
        for rows in [1, MANY - 1, MANY, 3 * MANY] {
            let x = values(&[rows, 48]);
            let beyond = |found: Tensor, x: &Tensor, relative: f64| {
                let wanted = x.matmul(&wide.tr());
                let gap = (found - &wanted).abs() - wanted.abs() * relative;
                gap.max().double_value(&[])
            };
            let found = beyond(exact.times(&x).unwrap(), &x, 0.0);
            assert!(found < 1e-5, "{rows}: {found}");
            let rounds = !ordered.keeps_rows_apart() && rows >= MANY;
            let (x, relative) = if rounds {
                // Half of the distance between neighbours, 2^-8 at most.
                (x.to_kind(Kind::BFloat16).to_kind(Kind::Float), 0.5f64.powi(8))
            } else {
                (x, 0.0)
            };
            let found = beyond(ordered.times(&x).unwrap(), &x, relative);
            assert!(found < 1e-5, "{rows}: {found}");
        }
    }

    #[test]
    fn a_frozen_matrix_is_put_in_order_once() {
        let base = values(&[70, 48]);
        let (Some(one), Some(other)) = (Ordered::of(&base, true), Ordered::of(&base.view([70, 48]), true)) else {
            return;
        };
        assert!(Arc::ptr_eq(&one.packed, &other.packed));
        let moving = Ordered::of(&base, false).unwrap();
        assert!(!Arc::ptr_eq(&one.packed, &moving.packed));
        for unlike in [base.narrow(0, 0, 35), base.view([48, 70])] {
            let unlike = Ordered::of(&unlike, true).unwrap();
            assert!(!Arc::ptr_eq(&one.packed, &unlike.packed));
        }
    }
}
