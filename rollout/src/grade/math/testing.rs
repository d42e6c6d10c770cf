//! Checks of pairs of answers, for the tests of numbers.

use super::equal;

/// Asserts for each pair, in either order, whether its sides are equal.
pub(super) fn check(cases: &[(&str, &str, bool)]) {
    for &(one, other, same) in cases {
        assert_eq!(equal(one, other), same, "{one} and {other}");
        assert_eq!(equal(other, one), same, "{other} and {one}");
    }
}
