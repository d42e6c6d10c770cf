//! Products with an ordered matrix of weights: panels of columns, each as wide as two vectors.

use pulp::{Arch, Simd, WithSimd};

/// The number of vectors across a panel.
const ACROSS: usize = 2;

/// The weights of a linear layer, ordered for [`Self::multiply`]: as large as the matrix itself,
/// with its outputs rounded up to panels.
pub struct Packed {
    /// `[panels, inputs, width]`; columns after the last output are 0.
    panels: Vec<f32>,
    width: usize,
    outputs: usize,
    inputs: usize,
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

    /// For tests of lesser processors than this one.
    fn new_on(arch: Arch, weight: &[f32], inputs: usize) -> Self {
        let outputs = weight.len() / inputs;
        assert_eq!(weight.len(), outputs * inputs, "rows of {inputs}");
        let width = arch.dispatch(Width);
        let mut panels = vec![0.0; outputs.div_ceil(width) * width * inputs];
        for (panel, rows) in panels
            .chunks_exact_mut(width * inputs)
            .zip(weight.chunks(width * inputs))
        {
            turn(rows, inputs, panel, width);
        }
        Self {
            panels,
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
        arch.dispatch(Multiply { packed: self, x, y });
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

/// The number of inputs that are transposed before the next row, so that the destination is still
/// in the nearest cache.
const TURNED: usize = 64;

/// Writes rows as columns: row `r` of `rows` (`[_, inputs]`) to `to[k * width + r]`.
fn turn(rows: &[f32], inputs: usize, to: &mut [f32], width: usize) {
    for (block, to) in to.chunks_mut(TURNED * width).enumerate() {
        for (column, row) in rows.chunks_exact(inputs).enumerate() {
            let row = &row[block * TURNED..];
            for (place, value) in to.iter_mut().skip(column).step_by(width).zip(row) {
                *place = *value;
            }
        }
    }
}

struct Multiply<'a> {
    packed: &'a Packed,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Multiply<'_> {
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

impl Multiply<'_> {
    /// A panel stays in the cache while all rows pass it, at most `MOST` (1 to 8) at a time.
    #[inline(always)]
    fn tiles<S: Simd, const MOST: usize>(self, simd: S) {
        let Packed {
            panels,
            width,
            outputs,
            inputs,
        } = self.packed;
        let mut turned = vec![0.0; self.x.len()];
        // Tiles of similar size: a last tile of a single row would wait for its own sums.
        let rows = self.x.len() / inputs;
        let tall = rows.div_ceil(rows.div_ceil(MOST).max(1)).max(1);
        for (rows, to) in self.x.chunks(tall * inputs).zip(turned.chunks_mut(tall * inputs)) {
            turn(rows, *inputs, to, rows.len() / inputs);
        }
        for (panel, weights) in panels.chunks_exact(width * inputs).enumerate() {
            let column = panel * width;
            for (rows, y) in turned.chunks(tall * inputs).zip(self.y.chunks_mut(tall * outputs)) {
                let y = Columns {
                    y,
                    outputs: *outputs,
                    column,
                };
                match rows.len() / inputs {
                    1 => tile::<S, 1>(simd, weights, rows, y),
                    2 => tile::<S, 2>(simd, weights, rows, y),
                    3 => tile::<S, 3>(simd, weights, rows, y),
                    4 => tile::<S, 4>(simd, weights, rows, y),
                    5 => tile::<S, 5>(simd, weights, rows, y),
                    6 => tile::<S, 6>(simd, weights, rows, y),
                    7 => tile::<S, 7>(simd, weights, rows, y),
                    _ => tile::<S, 8>(simd, weights, rows, y),
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
fn tile<S: Simd, const M: usize>(simd: S, panel: &[f32], rows: &[f32], to: Columns<'_>) {
    let mut sums = [[simd.splat_f32s(0.0); ACROSS]; M];
    let (weights, _) = S::as_simd_f32s(panel);
    let (weights, _) = weights.as_chunks::<ACROSS>();
    let (values, _) = rows.as_chunks::<M>();
    for (values, weights) in values.chunks(SUMMED).zip(weights.chunks(SUMMED)) {
        let some = products::<S, M>(simd, values, weights);
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
fn products<S: Simd, const M: usize>(
    simd: S,
    values: &[[f32; M]],
    weights: &[[S::f32s; ACROSS]],
) -> [[S::f32s; ACROSS]; M] {
    let mut sums = [[simd.splat_f32s(0.0); ACROSS]; M];
    for (values, weights) in values.iter().zip(weights) {
        for (sums, value) in sums.iter_mut().zip(values) {
            let value = simd.splat_f32s(*value);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum = simd.mul_add_e_f32s(value, *weight, *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::each;
    use proptest::prelude::*;

    fn values(count: usize, salt: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.73 + salt).sin()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn products_are_those_of_f64_and_the_same_bits_alone(rows in 1usize..20, outputs in 1usize..80, inputs in prop_oneof![1usize..90, Just(1300)]) {
            let (x, weight) = (values(rows * inputs, 0.1), values(outputs * inputs, 0.2));
            for arch in each() {
            let packed = Packed::new_on(arch, &weight, inputs);
            prop_assert_eq!((packed.outputs(), packed.inputs()), (outputs, inputs));
            let mut y = vec![f32::NAN; rows * outputs];
            packed.multiply_on(arch, &x, &mut y);
            for (row, got) in x.chunks_exact(inputs).zip(y.chunks_exact(outputs)) {
                for (weights, got) in weight.chunks_exact(inputs).zip(got) {
                    let products = row.iter().zip(weights).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    let (wanted, size): (f64, f64) = (products.clone().sum(), products.map(f64::abs).sum());
                    prop_assert!((f64::from(*got) - wanted).abs() < 1e-6 * (1.0 + size), "{got} for {wanted}");
                }
                let mut alone = vec![f32::NAN; outputs];
                packed.multiply_on(arch, row, &mut alone);
                prop_assert_eq!(alone.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), got.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
            }
            }
        }
    }

    #[test]
    fn nothing_is_no_row() {
        Packed::new(&[1.0, 2.0], 2).multiply(&[], &mut []);
    }

    #[test]
    #[should_panic(expected = "x and y of one number of rows")]
    fn rows_of_another_length_are_refused() {
        Packed::new(&[1.0; 6], 3).multiply(&[1.0; 6], &mut [0.0; 3]);
    }
}
