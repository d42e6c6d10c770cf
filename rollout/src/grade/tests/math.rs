//! The math grader, by tables of answers.

use serde_json::json;

use crate::grade::Grader;

#[test]
fn math_compares_normal_forms_and_values() {
    let right = [
        ("\\boxed{42}", "42"),
        ("so \\boxed{\\frac{1}{2}}.", "\\dfrac12"),
        ("\\boxed{0.5}", "\\frac{1}{2}"),
        ("\\boxed{\\frac{2}{4}}", "1/2"),
        ("\\boxed{-\\frac{3}{4}}", "-0.75"),
        ("\\boxed{2\\sqrt{3}}", "\\sqrt{12}"),
        ("\\boxed{\\sqrt[3]{27}}", "3"),
        ("\\boxed{3\\frac{1}{2}}", "3.5"),
        ("\\boxed{1,234,567}", "1234567"),
        ("\\boxed{\\$18.90}", "18.9"),
        ("\\boxed{50\\%}", "50"),
        ("\\boxed{90^\\circ}", "90"),
        ("\\boxed{x = 5}", "5"),
        ("\\boxed{12\\text{ cm}}", "12"),
        ("\\boxed{\\text{Evelyn}}", "\\text{Evelyn}"),
        ("\\boxed{\\text{(B)}}", "(B)"),
        ("\\boxed{\\left(3, \\frac{\\pi}{2}\\right)}", "(3,0.5\\pi)"),
        ("\\boxed{[0, 1)}", "[0,1)"),
        ("\\boxed{x+1}", "x + 1"),
        ("\\boxed{2^{10}}", "1024"),
        ("\\boxed{2^{-1}}", "0.5"),
        ("\\boxed{\\boxed{7}}", "7"),
        ("The answer is 7.", "7"),
        ("Answer: $\\frac{1}{3}$", "1/3"),
        ("We get 3 and then 1/4", "0.25"),
        ("it is -3", "-3"),
        ("The answer is 7 apples.", "7"),
        ("The answer is 7 apples.", "7 apples"),
        ("Answer: 2 hours and 30 minutes", "2 hours and 30 minutes"),
        ("10-3", "3"),
        ("The answer is: \n\n$$\\frac{3}{4}$$", "3/4"),
        ("So x = **18** or x = **20**.", "18, 20"),
        ("The roots are **2** and **3**.", "2, 3"),
        ("The roots are **2 and 3**.", "2, 3"),
        ("So **$x=2$** or **$x=3$**.", "2, 3"),
        ("It is 0.667 or 2/3.", "2/3"),
        ("The answer is **5** percent.", "5\\%"),
        ("Answer: **1723** km/h", "1723"),
        ("Answer: USD **15**", "15"),
        ("Answer: [**5,** ∞)", "[5,\\infty)"),
        ("It is 0.5, or 1/2.", "1/2"),
        ("It is **2/3** or **0.667**.", "2/3"),
        ("So it is $0.667$ or $2/3$.", "2/3"),
        ("The roots are 12 and 24 (or 24).", "12, 24"),
        ("The values are **1** and **0.667** (or 2/3).", "1, 2/3"),
        ("**Answer:**\n$\\frac{1}{2}$", "1/2"),
        ("Thus $x=\\sqrt{2}$.", "\\sqrt{2}"),
        ("$2^{10}$", "1024"),
        ("So it is \\frac{3}{4}.", "0.75"),
        ("Answer: 5\n\nThis answer is verified.", "5"),
        ("The answer is 5. I checked: this answer is right.", "5"),
        ("The answer is correct.", "correct"),
        ("1{,}000 or \\boxed{10^3}", "1000"),
        // Forms of labels in the MATH data set.
        ("\\boxed{11111111100}", "11,\\! 111,\\! 111,\\! 100"),
        ("\\boxed{-2, 1-\\sqrt5, 1+\\sqrt5}", "\\{1\\pm\\sqrt{5},-2\\}"),
        ("\\boxed{15 cm^2}", "15\\mbox{ cm}^2"),
        ("\\boxed{x<2 or x>3}", "(-\\infty, 2) \\cup (3, \\infty)"),
        ("\\boxed{(-\\infty,\\infty)}", "\\mathbb{R}"),
        ("\\boxed{3, 5 and 7}", "3,5,7"),
        ("\\boxed{\\textbf{5}}", "5"),
        ("\\boxed{12\\,345}", "12345"),
        ("\\boxed{S_n = n(n+1)/2}", "\\frac{n(n+1)}{2}"),
        ("\\boxed{\\tan^{-1} 1}", "\\frac{\\pi}{4}"),
        ("\\boxed{\\binom{n}{2}}", "\\frac{n(n-1)}{2}"),
        ("\\boxed{2^a 3^b}", "2^a\\cdot 3^b"),
        ("\\boxed{{1 \\over 2}}", "0.5"),
        ("\\boxed{5}", "\\boxed{5}"),
        ("The answer is 5米", "5"),
        ("答案是5米。", "5"),
        ("答案是５。", "5"),
        ("第1题答案是５", "5"),
        ("Answer：５", "5"),
        ("\\boxed{5米}", "5"),
        ("The answer is ½.", "1/2"),
        ("#### 18. Well done!", "18"),
        ("The answer is 18 apples!", "18"),
        ("so it is 2½", "2.5"),
    ];
    for (text, label) in right {
        assert_eq!(Grader::Math.grade(text, &json!(label)), 1.0, "{text} is {label}");
    }
    let wrong = [
        ("\\boxed{41}", "42"),
        ("42 but \\boxed{41}", "42"),
        ("\\boxed{0.333}", "1/3"),
        ("\\boxed{[0,1]}", "[0,1)"),
        ("\\boxed{(1,2)}", "(2,1)"),
        ("\\boxed{(1,2)}", "(1,2,3)"),
        ("\\boxed{}", "0"),
        ("\\boxed{1/0}", "0"),
        ("\\boxed{x+1}", "x+2"),
        ("\\boxed{\\text{Even}}", "\\text{Odd}"),
        ("no answer", "1"),
        ("The answer is: \n\n$$\\frac{3}{4}$$", "4"),
        ("So x = **18** or x = **20**.", "20"),
        ("The roots are **2 and 3**.", "3"),
        ("The roots are -1 and 0.5 (or 1/2)", "1/2"),
        ("The values are **1** and **0.667** (or 2/3).", "2/3"),
        ("The solutions are 1, 0.667 or 2/3", "2/3"),
        ("So **$x=2$** or **$x=3$**.", "3"),
        ("**Answer:**\n$\\frac{1}{2}$", "2"),
        ("Thus $x=\\sqrt{2}$.", "2"),
        ("$2^{10}$", "10"),
        ("So it is \\frac{3}{4}.", "4"),
        ("\\boxed{e^{-1000}}", "0"),
        ("\\boxed{\\sin(10^{30})}", "\\sin(10^{30}+1)"),
        ("Answer: 3 times 5", "3"),
        ("Answer: 1 over 2", "1"),
        ("Answer: 5 factorial", "5"),
        ("Answer: 10 choose 3", "10"),
        ("Answer: 3 fifths", "3"),
        ("Answer: 2 hours and 30 minutes", "2"),
        ("Answer: 3 (when x>0) or 5 (when x<0)", "3"),
        ("Answer: 7 is wrong", "7"),
        ("", ""),
        ("\\boxed{2^{2^{2^{99}}}}", "1"),
        ("\\boxed{\\{(1,2)\\}}", "\\{(2,1)\\}"),
        ("\\boxed{1 \\pm \\sqrt5}", "1+\\sqrt5"),
        ("\\boxed{n!}", "(n+1)!"),
        ("\\boxed{\\sin^{-1} x}", "\\frac{1}{\\sin x}"),
        ("\\boxed{x<2 or x>3}", "(-\\infty, 2] \\cup (3, \\infty)"),
        ("\\boxed{1\\,0000}", "10000"),
        ("\\boxed{15 cm^2}", "16\\mbox{ cm}^2"),
    ];
    for (text, label) in wrong {
        assert_eq!(Grader::Math.grade(text, &json!(label)), 0.0, "{text} is not {label}");
    }
    assert_eq!(Grader::Math.grade("\\boxed{5}", &json!(5)), 1.0);
    assert!(Grader::Math.check_label(&json!("")).is_err() && Grader::Math.check_label(&json!("x^2")).is_ok());
}

#[test]
fn votes_compare_units_as_grades_do() {
    for (a, b, same) in [
        ("\\boxed{5\\text{ m}}", "The answer is 5 meters.", true),
        ("\\boxed{5}", "\\boxed{5\\text{ m}}", true),
        ("\\boxed{5\\text{ km}}", "\\boxed{5\\text{ m}}", false),
        ("The answer is 5 °C.", "The answer is 5 °F.", false),
        ("The answer is 5 cents.", "The answer is $5.", false),
    ] {
        assert_eq!(Grader::Math.same(a, b), Some(same), "{a} and {b}");
        assert_eq!(Grader::Math.same(b, a), Some(same), "{b} and {a}");
    }
}
