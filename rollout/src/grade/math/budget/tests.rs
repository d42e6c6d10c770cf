//! Hostile answers stay within the budget and do not overflow the stack.

use proptest::prelude::*;

use super::{Budget, LONGEST, MOST_STEPS};
use crate::grade::math::parser::MOST_TOKENS;
use crate::grade::math::{equal, equal_within, readings};

/// Returns true if two answers are equal, and the number of steps that this took.
fn cost(answer: &str, label: &str) -> (bool, usize) {
    let budget = Budget::new();
    let equal = equal_within(answer, label, &budget);
    (equal, budget.spent())
}

/// Returns a list of formulas.
fn set(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|n| format!("x+{n}")).collect::<Vec<_>>().join(",")
}

#[test]
fn hostile_formulas_cost_little() {
    for text in [
        format!("1{}", "!".repeat(500)),
        "\\frac".repeat(100),
        "√".repeat(170),
        "\\sqrt".repeat(100),
        "\\sin".repeat(120),
        format!("{}1{}", "(".repeat(250), ")".repeat(250)),
        format!("{}1{}", "|".repeat(250), "|".repeat(250)),
        "2^{".repeat(160),
        format!("{}2{}", "2^{".repeat(120), "}".repeat(120)),
        format!("2^{}1", "-".repeat(500)),
        format!("9^{{{}}}", "9".repeat(500)),
        "9".repeat(510),
        format!("(1/3)^{}", "9".repeat(500)),
        "1/".repeat(250),
        "\\pm 1".repeat(100),
        "\\{".repeat(250),
        "\\begin{matrix}".repeat(30),
        "1=".repeat(250),
        "1,".repeat(250),
        "x_".repeat(250),
        "\\text{".repeat(80),
        "\\binom{60}{".repeat(40),
    ] {
        assert!(text.len() <= LONGEST, "{}", text.len());
        let (equal, steps) = cost(&text, "17x");
        assert!(!equal && steps <= 4096, "{steps} steps for {text}");
    }
}

/// Both answers are hostile: on every level of the nested sets, elements are searched in both
/// directions.
#[test]
fn a_comparison_ends_with_its_budget() {
    let nested = |depth: usize, numbers: &[String]| {
        format!("{}{}{}", "\\{".repeat(depth), numbers.join(","), "\\}".repeat(depth))
    };
    let numbers: Vec<String> = (10..70).map(|n| n.to_string()).collect();
    let turned: Vec<String> = numbers.iter().rev().cloned().collect();
    let (equal, steps) = cost(&nested(3, &numbers), &nested(3, &turned));
    assert!(equal && steps < MOST_STEPS / 4, "{steps}");
    let (equal, steps) = cost(&nested(6, &numbers), &nested(6, &turned));
    assert_eq!((equal, steps), (false, MOST_STEPS));
    // Identical texts need no steps.
    assert_eq!(cost(&nested(6, &numbers), &nested(6, &numbers)), (true, 0));
}

/// The budget suffices for the largest sets that are compared at all.
#[test]
fn sets_of_the_largest_size_are_compared() {
    let (equal, steps) = cost(&set(0..64), &set((0..64).rev()));
    assert!(equal && steps < MOST_STEPS / 2, "{steps}");
    assert!(!cost(&set(0..65), &set((0..65).rev())).0, "65 are too many");
}

/// Fractions near the bound of bits make the slowest steps: the bound keeps them fast enough.
#[test]
fn nested_sets_of_long_fractions_end_with_the_budget() {
    let numbers: Vec<String> = (10..30).map(|n| format!("(7/9)^{{160}}+{n}/7^{{160}}")).collect();
    let turned: Vec<String> = numbers.iter().rev().cloned().collect();
    for depth in [1, 6] {
        let set = |numbers: &[String]| format!("{}{}{}", "\\{".repeat(depth), numbers.join(","), "\\}".repeat(depth));
        let (answer, label) = (set(&numbers), set(&turned));
        assert!(answer.len() <= LONGEST, "{}", answer.len());
        let (equal, steps) = cost(&answer, &label);
        assert!(equal || steps == MOST_STEPS, "{steps}");
    }
}

#[test]
fn a_formula_too_long_to_read_is_compared_as_words() {
    let sum = |terms: usize| vec!["x"; terms].join("+");
    let most = MOST_TOKENS / 2;
    assert!(equal(&sum(most), &format!("{most}x")));
    assert!(!equal(&sum(most + 1), &format!("{}x", most + 1)));
    assert!(equal(&sum(most + 1), &sum(most + 1).to_uppercase()));
}

/// Returns pieces of formulas, complete and broken.
fn pieces(most: usize) -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\\frac",
        "{",
        "}",
        "1",
        "23",
        "\\sqrt",
        "[3]",
        "(",
        ")",
        "^",
        "-",
        "+",
        "*",
        "/",
        ".",
        ",",
        "\\text{",
        "\\pi",
        "=",
        "$",
        "0",
        "x",
        "\\{",
        "\\}",
        "\\pm ",
        "\\cup ",
        "<",
        "!",
        "|",
        "\\boxed{",
        "\\begin{matrix}",
        "\\\\",
        "&",
        "\\end{matrix}",
        "\\in ",
        "\\infty",
        " or ",
        "9999999999",
        "_",
        "\\overline{",
        "é",
        "√",
        "%",
        ":",
        "\\over ",
        "\\mathbb{R}",
        "²",
        "\\,",
        "\\left(",
        "\\right)",
        "\\",
        "\\log_",
        "\\binom",
        "^\\circ",
        "~",
        "\n",
    ]);
    prop::collection::vec(piece, 0..most).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Compares random text, shorter and longer than the limit, with other text and with a changed
    /// copy.
    #[test]
    fn random_text_is_compared_within_the_budget(answer in pieces(200), label in pieces(200)) {
        for (answer, label) in [(&answer, &label), (&answer, &format!("{answer},1")), (&label, &format!("({label})"))] {
            let (same, steps) = cost(answer, label);
            prop_assert!(steps <= MOST_STEPS);
            prop_assert_eq!(cost(answer, label), (same, steps), "the same again");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Searches random text of more than 20 kB for answers.
    #[test]
    fn long_random_text_is_searched(text in pieces(6000)) {
        prop_assert!(readings(&text).iter().all(|answer| answer.text.len() <= LONGEST));
    }
}
