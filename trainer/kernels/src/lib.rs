//! The computation of an engine's steps on a CPU: products of few rows with weights, and attention
//! of single tokens. Weights, keys and values are f32 or bf16, sums are f32.
//!
//! libtorch has both for large shapes. With one row, or thirty rows of different lengths, its
//! libraries spend most of the time on other work than the sums. They reorder the weights at each
//! call, do not use AVX-512 on some processors, and read as many keys as the longest row has. This
//! crate orders weights once ([`Packed`]), and each row reads only its own keys ([`attend`]).
//!
//! The widest vectors of the processor are chosen at run time (pulp). On one processor, each number
//! is one sum in one order, so a row has the same bits alone and with others. The crate uses slices
//! of numbers only, no libtorch.

// A closure is not compiled for the processor of its function. So the work on each number must be
// in loops.
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

    /// This processor, and lesser ones that it can run.
    pub(crate) fn each() -> Vec<Arch> {
        let mut each = vec![Arch::new(), Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        each.extend(pulp::x86::V3::try_new().map(Arch::V3));
        each
    }
}
