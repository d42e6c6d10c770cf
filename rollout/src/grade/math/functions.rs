//! Functions of numbers, and the error of their results.

use super::complex::Complex;
use super::number::{FOLLOWED, Number, SLACK, STEP, WHOLE};

/// Periodic functions. At a large argument their value depends on digits that the argument has
/// lost.
const PERIODIC: [&str; 6] = ["sin", "cos", "tan", "cot", "sec", "csc"];
/// Largest error at which a number may be taken for the nearest whole number.
const NEAREST: f64 = 1e-9;

impl Number {
    /// Applies exp, ln, floor, ceil or a real function by its name.
    pub(super) fn function(self, name: &str) -> Option<Self> {
        match name {
            "exp" => return self.exp(),
            "ln" => return self.ln(),
            "floor" | "ceil" => return self.to_whole(name == "ceil"),
            _ => {}
        }
        let (x, error) = (self.as_real().filter(|_| self.is_approximated())?, self.error);
        if PERIODIC.contains(&name) && (x.abs() > WHOLE || error > FOLLOWED) {
            return None;
        }
        let (y, error) = match name {
            "sin" => (x.sin(), error),
            "cos" => (x.cos(), error),
            "tan" => steep(x.tan(), error)?,
            "cot" => steep(1.0 / x.tan(), error)?,
            "sec" => steep(1.0 / x.cos(), error)?,
            "csc" => steep(1.0 / x.sin(), error)?,
            "arcsin" => (x.asin(), near_one(x, error)),
            "arccos" => (x.acos(), near_one(x, error)),
            "arctan" => (x.atan(), error),
            "sinh" => (x.sinh(), growing(x, error)?),
            "cosh" => (x.cosh(), growing(x, error)?),
            "tanh" => (x.tanh(), error),
            _ => return None,
        };
        Self::inexact(Complex::real(y), error + STEP * y.abs())
    }

    /// Rounds down, or up. A value that only rounding moved off a whole number becomes that number.
    fn to_whole(&self, above: bool) -> Option<Self> {
        if let Some(value) = &self.exact {
            return Self::exact(if above { value.ceil() } else { value.floor() });
        }
        let (x, margin) = (self.as_real()?, SLACK * self.error);
        let nearest = x.round();
        let whole = if (x - nearest).abs() > margin {
            if above { x.ceil() } else { x.floor() }
        } else if margin <= NEAREST {
            nearest
        } else {
            return None;
        };
        Self::whole(whole as i128)
    }
}

/// Returns a value and error of a tangent, cotangent, secant or cosecant. The slope grows with the
/// square of the value. Returns `None` near a pole.
fn steep(y: f64, error: f64) -> Option<(f64, f64)> {
    (error * (1.0 + y.abs()) < FOLLOWED).then_some((y, 2.0 * error * (1.0 + y * y)))
}

/// Returns the error of arcsin and arccos. Near 1 and -1 they behave like a square root.
fn near_one(x: f64, error: f64) -> f64 {
    let gap = 1.0 - x.abs();
    if gap > 2.0 * error {
        2.0 * error / gap.sqrt()
    } else {
        4.0 * error.sqrt()
    }
}

/// Returns the error of sinh and cosh.
fn growing(x: f64, error: f64) -> Option<f64> {
    (error < FOLLOWED).then_some(2.0 * error * x.cosh())
}

#[cfg(test)]
mod tests {
    use crate::grade::math::testing::check;

    #[test]
    fn underflowing_values_equal_no_other_value() {
        check(&[
            ("e^{-1000}", "0", false),
            ("e^{-1000}", "e^{-1000}", true),
            ("e^{-1000}", "e^{-1001}", false),
            ("e^{-100000}", "e^{-200000}", false),
            ("\\exp(-1000)", "0", false),
            ("\\frac{1}{\\pi^{800}}", "0", false),
            ("\\frac{1}{\\sqrt{2}\\cdot 10^{200}}", "0", false),
            (
                "\\frac{1}{\\sqrt{2}\\cdot 10^{200}}",
                "\\frac{\\sqrt{2}}{2\\cdot 10^{200}}",
                true,
            ),
            ("2^{-1074.5}", "0", false),
            ("x^{-5000}", "0", false),
            ("x^{-5000}", "x^{-5001}", false),
            ("10^{-20}x", "10^{-21}x", false),
            ("10^{-20}x", "\\frac{x}{10^{20}}", true),
            ("10^{-400}", "0", false),
            ("(0,e^{-1000})\\cup(1,2)", "(0,0)\\cup(1,2)", false),
            ("(0,10^{-10})\\cup(1,2)", "(0,10^{-11})\\cup(1,2)", false),
        ]);
    }

    #[test]
    fn small_values_with_all_their_digits_are_not_zero() {
        check(&[
            ("e^{-30}", "0", false),
            ("e^{-30}", "e^{-31}", false),
            ("e^{-30}", "\\frac{1}{e^{30}}", true),
            ("\\pi\\cdot 10^{-20}", "0", false),
            ("\\pi\\cdot 10^{-20}", "\\frac{\\pi}{10^{20}}", true),
        ]);
    }

    #[test]
    fn functions_of_inexact_arguments_have_no_value() {
        check(&[
            ("\\sin(10^{30})", "\\sin(10^{30}+1)", false),
            ("\\sin(10^{30})", "\\sin(10^{30})", true),
            ("\\sin(2^{60})", "\\sin(2^{60}+1)", false),
            ("\\sin(2^{53})", "\\sin(2^{53}+1)", false),
            ("\\cos(10^{20}\\pi)", "1", false),
            ("\\cos(10^{20}\\pi)", "\\cos(10^{20}\\pi+1)", false),
            ("\\tan\\frac{\\pi}{2}", "16331239353195370", false),
            ("\\sin((10^{20}+\\pi)-10^{20})", "0", false),
            ("(10^{20}+\\pi)-10^{20}", "0", false),
            ("\\lfloor 10^{20}\\pi\\rfloor", "314159265358979326976", false),
            ("e^{10^{30}i}", "e^{(10^{30}+1)i}", false),
            ("\\frac{1}{\\sin\\pi}", "8165619676597685", false),
        ]);
    }

    #[test]
    fn values_within_rounding_of_zero_are_zero() {
        check(&[
            ("\\sin\\pi", "0", true),
            ("\\sin 1000\\pi", "0", true),
            ("\\cos\\frac{\\pi}{2}", "0", true),
            ("\\sin^2 x+\\cos^2 x-1", "0", true),
            ("e^{i\\pi}+1", "0", true),
            ("e^2\\cdot e^{-2}-1", "0", true),
            ("\\sqrt{2}\\cdot\\sqrt{3}-\\sqrt{6}", "0", true),
            ("\\ln e-1", "0", true),
            ("0\\cdot\\pi", "0", true),
            ("\\sin\\pi", "e^{-40}", false),
            ("(x-1)^8", "x^8-8x^7+28x^6-56x^5+70x^4-56x^3+28x^2-8x+1", true),
            ("(x-1)^8", "x^8-8x^7+28x^6-56x^5+70x^4-56x^3+28x^2-8x", false),
            ("\\sin 10^{9}", "\\sin(10^{9}+1)", false),
            ("\\sin 100", "\\cos(\\frac{\\pi}{2}-100)", true),
        ]);
    }

    #[test]
    fn whole_numbers_below_and_above() {
        check(&[
            ("\\lfloor\\pi\\rfloor", "3", true),
            ("\\lceil\\pi\\rceil", "4", true),
            ("\\lfloor -2.5\\rfloor", "-3", true),
            ("\\lceil -2.5\\rceil", "-2", true),
            ("\\lceil 2\\rceil", "2", true),
            ("\\lfloor\\log_2 8\\rfloor", "3", true),
            ("\\lfloor\\log_{10} 1000\\rfloor", "3", true),
            ("\\lfloor 10\\sqrt{2}\\rfloor", "14", true),
            ("\\arcsin\\frac{\\sqrt{2}}{2}", "\\frac{\\pi}{4}", true),
            ("\\arccos\\frac{\\sqrt{4}}{-2}", "\\pi", true),
        ]);
    }
}
