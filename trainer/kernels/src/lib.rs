//! What an engine computes at each step on a CPU, in f32: products of few rows with weights, and attention of single tokens (over keys and
//! values in f32 or bf16).
//!
//! libtorch has both for large shapes. With one row, or thirty of unlike lengths, its libraries spend most of the time on other things
//! than the sums: they order the weights anew at each call, take no AVX-512 on some processors, and attend over as many keys as the
//! longest row has. Here weights are put in order once ([`Packed`]), and each row is attended over its own keys ([`attend`]).
//!
//! The widest vectors of the processor are chosen at run time (pulp). On one processor each number is one sum in one order, whatever is
//! computed with it: a row has the same bits alone and beside others. No libtorch here: slices of numbers alone.

// A closure is compiled for any processor, whatever the function is compiled for in which it stands: what is worked on at each number stands in
// loops.
#![allow(clippy::needless_range_loop)]

mod attention;
mod elements;
mod exp;
mod packed;

pub use attention::{Cache, Element, Shape, attend};
pub use elements::{Heads, gate, rms_norm, turn_heads};
pub use packed::{Packed, pays};

#[cfg(test)]
mod processors {
    use pulp::Arch;

    /// This processor, and lesser ones for which it can stand.
    pub(crate) fn each() -> Vec<Arch> {
        let mut each = vec![Arch::new(), Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        each.extend(pulp::x86::V3::try_new().map(Arch::V3));
        each
    }
}
