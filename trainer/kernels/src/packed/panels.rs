//! The order of weights: panels of columns, and the words that hold their numbers.

use pulp::Simd;

use super::ACROSS;

/// Orders rows in panels of `width` columns, which have `words` words for each input.
pub(super) fn panels<E: Copy, W: Copy + Default>(
    weight: &[E],
    inputs: usize,
    [width, words]: [usize; 2],
    put: impl Fn(&mut W, usize, E),
) -> Vec<W> {
    let outputs = weight.len() / inputs;
    let mut panels = vec![W::default(); outputs.div_ceil(width) * words * inputs];
    for (panel, rows) in panels
        .chunks_exact_mut(words * inputs)
        .zip(weight.chunks(width * inputs))
    {
        turn(rows, inputs, panel, words, &put);
    }
    panels
}

/// The number of inputs that are transposed before the next row, so that the destination is still
/// in the nearest cache.
const TURNED: usize = 64;

/// Transposes `rows` (`[_, inputs]`): calls `put(place, r, number)` for number `k` of row `r`, with
/// the place `to[k * width + r % width]`.
pub(super) fn turn<E: Copy, W>(rows: &[E], inputs: usize, to: &mut [W], width: usize, put: impl Fn(&mut W, usize, E)) {
    for (block, to) in to.chunks_mut(TURNED * width).enumerate() {
        for (column, row) in rows.chunks_exact(inputs).enumerate() {
            let row = &row[block * TURNED..];
            for (place, value) in to.iter_mut().skip(column % width).step_by(width).zip(row) {
                put(place, column, *value);
            }
        }
    }
}

/// A stored number, or two: `bf16` numbers are stored in pairs.
pub(super) trait Word: Copy {
    /// One input's words.
    type Across<S: Simd>: Copy;

    fn across<S: Simd>(panel: &[Self]) -> &[Self::Across<S>];

    fn wide<S: Simd>(simd: S, across: Self::Across<S>) -> [S::f32s; ACROSS];
}

impl Word for f32 {
    type Across<S: Simd> = [S::f32s; ACROSS];

    #[inline(always)]
    fn across<S: Simd>(panel: &[Self]) -> &[Self::Across<S>] {
        S::as_simd_f32s(panel).0.as_chunks().0
    }

    #[inline(always)]
    fn wide<S: Simd>(_: S, across: Self::Across<S>) -> [S::f32s; ACROSS] {
        across
    }
}

impl Word for u32 {
    type Across<S: Simd> = S::u32s;

    #[inline(always)]
    fn across<S: Simd>(panel: &[Self]) -> &[Self::Across<S>] {
        S::as_simd_u32s(panel).0
    }

    /// A bf16 number is the upper half of the same f32 number.
    #[inline(always)]
    fn wide<S: Simd>(simd: S, across: Self::Across<S>) -> [S::f32s; ACROSS] {
        let lower = simd.wrapping_dyn_shl_u32s(across, simd.splat_u32s(16));
        let upper = simd.and_u32s(across, simd.splat_u32s(0xffff_0000));
        [lower, upper].map(|bits| simd.transmute_f32s_u32s(bits))
    }
}
