//! Products with an ordered matrix of weights: panels of columns, each as wide as two vectors.

mod panels;
#[cfg(test)]
mod tests;

use half::bf16;
use pulp::{Arch, Simd, WithSimd};

use panels::{Word, panels, turn};

/// The number of vectors across a panel.
const ACROSS: usize = 2;

/// The weights of a linear layer, ordered for [`Self::multiply`]: as large as the matrix itself,
/// with its outputs rounded up to panels.
pub struct Packed {
    panels: Panels,
    width: usize,
    outputs: usize,
    inputs: usize,
}

/// Columns after the last output are 0.
enum Panels {
    /// `[panels, inputs, width]`.
    F32(Vec<f32>),
    /// `[panels, inputs, width / 2]`. The lower half of a word is a number of the panel's first
    /// vector, the upper half one of the second.
    Bf16(Vec<u32>),
}

impl Packed {
    /// Orders `weight`, which is `[outputs, inputs]`, row by row.
    ///
    /// # Panics
    /// If `weight` is not a whole number of rows of `inputs`, or `inputs` is 0.
    #[must_use]
    pub fn new(weight: &[f32], inputs: usize) -> Self {
        Self::new_on(Arch::new(), weight, inputs)
    }

    /// The same as [`Self::new`]. Numbers are widened when they are multiplied, so products and
    /// sums are those of f32.
    ///
    /// # Panics
    /// The same as for [`Self::new`].
    #[must_use]
    pub fn of_bf16(weight: &[bf16], inputs: usize) -> Self {
        Self::of_bf16_on(Arch::new(), weight, inputs)
    }

    /// For tests of lesser processors than this one.
    fn new_on(arch: Arch, weight: &[f32], inputs: usize) -> Self {
        Self::with(arch, weight, inputs, |width| {
            Panels::F32(panels(weight, inputs, [width, width], |place, _, value| *place = value))
        })
    }

    fn of_bf16_on(arch: Arch, weight: &[bf16], inputs: usize) -> Self {
        Self::with(arch, weight, inputs, |width| {
            let words = width / ACROSS;
            Panels::Bf16(panels(weight, inputs, [width, words], |word, column, value| {
                *word |= u32::from(value.to_bits()) << (16 * (column / words));
            }))
        })
    }

    fn with<E>(arch: Arch, weight: &[E], inputs: usize, panels: impl FnOnce(usize) -> Panels) -> Self {
        let outputs = weight.len() / inputs;
        assert_eq!(weight.len(), outputs * inputs, "rows of {inputs}");
        let width = arch.dispatch(Width);
        Self {
            panels: panels(width),
            width,
            outputs,
            inputs,
        }
    }

    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Computes `y = x W^T`: `x` is `[rows, inputs]`, `y` is `[rows, outputs]` and is written
    /// whole. Each sum runs over the inputs in their order, so a row's numbers do not depend on the
    /// others.
    ///
    /// # Panics
    /// If `x` or `y` has another size.
    pub fn multiply(&self, x: &[f32], y: &mut [f32]) {
        self.multiply_on(Arch::new(), x, y);
    }

    fn multiply_on(&self, arch: Arch, x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs;
        assert_eq!(
            (x.len(), y.len()),
            (rows * self.inputs, rows * self.outputs),
            "x and y of one number of rows"
        );
        match &self.panels {
            Panels::F32(panels) => arch.dispatch(Multiply {
                packed: self,
                panels,
                x,
                y,
            }),
            Panels::Bf16(panels) => arch.dispatch(Multiply {
                packed: self,
                panels,
                x,
                y,
            }),
        }
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed {{ outputs: {}, inputs: {} }}", self.outputs, self.inputs)
    }
}

/// Returns true if this processor has vectors that are wide enough to gain from the order.
#[must_use]
pub fn pays() -> bool {
    Arch::new().dispatch(Width) >= 4 * ACROSS
}

/// The number of columns of a panel on this processor.
struct Width;

impl WithSimd for Width {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        ACROSS * S::F32_LANES
    }
}

struct Multiply<'a, W> {
    packed: &'a Packed,
    panels: &'a [W],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<W: Word> WithSimd for Multiply<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Active sums stay in registers: two for each row of a tile, two for the weights and one
        // for a row.
        if S::REGISTER_COUNT >= 32 {
            self.tiles::<S, 8>(simd);
        } else {
            self.tiles::<S, 4>(simd);
        }
    }
}

/// The most rows that pass a panel before the next panel, a multiple of 8. They stay in the
/// nearer caches, with their results.
const BLOCK: usize = 96;

impl<W: Word> Multiply<'_, W> {
    #[inline(always)]
    fn tiles<S: Simd, const MOST: usize>(self, simd: S) {
        let Packed { outputs, inputs, .. } = self.packed;
        let mut turned = vec![0.0; self.x.len().min(BLOCK * inputs)];
        // Tiles of similar size: a last tile of a single row would wait for its own sums.
        let rows = self.x.len() / inputs;
        let tall = rows.div_ceil(rows.div_ceil(MOST).max(1)).max(1);
        let block = BLOCK / tall * tall;
        for (x, y) in self
            .x
            .chunks(block * inputs)
            .zip(self.y.chunks_mut((block * outputs).max(1)))
        {
            let turned = &mut turned[..x.len()];
            for (rows, to) in x.chunks(tall * inputs).zip(turned.chunks_mut(tall * inputs)) {
                turn(rows, *inputs, to, rows.len() / inputs, |place, _, value| *place = value);
            }
            self.packed.block::<S, W>(simd, self.panels, turned, tall, y);
        }
    }
}

impl Packed {
    /// Multiplies a block of rows. A panel stays in the cache while all rows pass it, at most
    /// `tall` (1 to 8) at a time. `turned` holds one `[inputs, tall]` tile after the other.
    #[inline(always)]
    fn block<S: Simd, W: Word>(&self, simd: S, panels: &[W], turned: &[f32], tall: usize, y: &mut [f32]) {
        let words = panels.len() / self.outputs.div_ceil(self.width).max(1);
        for (panel, weights) in panels.chunks_exact(words.max(1)).enumerate() {
            let column = panel * self.width;
            for (rows, y) in turned.chunks(tall * self.inputs).zip(y.chunks_mut(tall * self.outputs)) {
                let y = Columns {
                    y,
                    outputs: self.outputs,
                    column,
                };
                match rows.len() / self.inputs {
                    1 => tile::<S, W, 1>(simd, weights, rows, y),
                    2 => tile::<S, W, 2>(simd, weights, rows, y),
                    3 => tile::<S, W, 3>(simd, weights, rows, y),
                    4 => tile::<S, W, 4>(simd, weights, rows, y),
                    5 => tile::<S, W, 5>(simd, weights, rows, y),
                    6 => tile::<S, W, 6>(simd, weights, rows, y),
                    7 => tile::<S, W, 7>(simd, weights, rows, y),
                    _ => tile::<S, W, 8>(simd, weights, rows, y),
                }
            }
        }
    }
}

/// The destination of a panel's results for some rows.
struct Columns<'a> {
    y: &'a mut [f32],
    outputs: usize,
    column: usize,
}

/// The number of inputs that are summed separately, so that rounding does not grow with their total
/// number.
const SUMMED: usize = 512;

/// Multiplies `M` transposed rows (`[inputs, M]`) by one panel (`[inputs, width]`).
#[inline(always)]
fn tile<S: Simd, W: Word, const M: usize>(simd: S, panel: &[W], rows: &[f32], to: Columns<'_>) {
    let mut sums = [[simd.splat_f32s(0.0); ACROSS]; M];
    let weights = W::across::<S>(panel);
    let (values, _) = rows.as_chunks::<M>();
    for (values, weights) in values.chunks(SUMMED).zip(weights.chunks(SUMMED)) {
        let some = products::<S, W, M>(simd, values, weights);
        for i in 0..M {
            for j in 0..ACROSS {
                sums[i][j] = simd.add_f32s(sums[i][j], some[i][j]);
            }
        }
    }
    for (y, sums) in to.y.chunks_exact_mut(to.outputs).zip(sums) {
        let beyond = to.outputs.min(to.column + ACROSS * S::F32_LANES);
        let (whole, last) = S::as_mut_simd_f32s(&mut y[to.column..beyond]);
        for (place, sum) in whole.iter_mut().zip(sums) {
            *place = sum;
        }
        if !last.is_empty() {
            simd.partial_store_f32s(last, sums[whole.len()]);
        }
    }
}

/// Sums of products of some inputs.
#[inline(always)]
fn products<S: Simd, W: Word, const M: usize>(
    simd: S,
    values: &[[f32; M]],
    weights: &[W::Across<S>],
) -> [[S::f32s; ACROSS]; M] {
    let mut sums = [[simd.splat_f32s(0.0); ACROSS]; M];
    for (values, weights) in values.iter().zip(weights) {
        let weights = W::wide(simd, *weights);
        for (sums, value) in sums.iter_mut().zip(values) {
            let value = simd.splat_f32s(*value);
            for (sum, weight) in sums.iter_mut().zip(&weights) {
                *sum = simd.mul_add_e_f32s(value, *weight, *sum);
            }
        }
    }
    sums
}
