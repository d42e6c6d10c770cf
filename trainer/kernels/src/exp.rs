//! The exponential function, over many numbers at once.

/// `ln 2` in two parts, the first with few bits, so that `n` times it is exact.
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Adding it leaves the nearest whole number in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// `e^x` for `x` at most 0, to about one unit in the last place; 0 below -87, where f32 ends; NaN
/// stays NaN. It has no branch, so that the compiler vectorises a loop over it. After Moshier's
/// Cephes (`expf`): `e^x = 2^n e^r` with `|r| <= ln 2 / 2`, and a polynomial of degree 7 for `e^r`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let inside = if x < -87.0 { -87.0 } else { x };
    let shifted = inside * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = inside - n * LN2[0] - n * LN2[1];
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let power = f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23);
    let value = (p * r * r + r + 1.0) * power;
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_f64() {
        for i in 0..870_000 {
            let x = -(i as f32) * 1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "{x}: {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        for nothing in [-88.0, -1e4, f32::NEG_INFINITY] {
            assert_eq!(exp(nothing), 0.0);
        }
        assert!(exp(f32::NAN).is_nan());
    }
}
