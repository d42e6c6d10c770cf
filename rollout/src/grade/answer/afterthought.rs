//! Leaves out sentences at the end of a text that speak of something else: a case that did not
//! happen, a note, an offer to go on.

use super::conditional::is_counterfactual;
use super::text::head;

/// Beginnings of a note on what the answer assumes.
const NOTES: [&str; 8] = [
    "note",
    "this assumes",
    "this is assuming",
    "assumption",
    "disclaimer",
    "remark",
    "keep in mind",
    "remember",
];
/// Beginnings of an offer to go on.
const OFFERS: [&str; 8] = [
    "would you like",
    "do you want",
    "if you want",
    "if you'd like",
    "if you have",
    "let me know",
    "feel free",
    "shall i",
];
/// Words with which a note gives a result.
const RESULTS: [&str; 8] = ["so ", "thus", "hence", "therefore", "answer", "total", "result", "="];
/// Beginnings of a paragraph that only checks an answer.
const CHECKS: [&str; 9] = [
    "check",
    "verif",
    "to verify",
    "to check",
    "let me verify",
    "let's verify",
    "let's check",
    "double-check",
    "we can check",
];
/// Words with which a check goes on to another answer.
const CORRECTING: [&str; 7] = ["so ", "thus", "therefore", "hence", "answer", "wait", "should"];
/// Most sentences that are left out.
const MOST: usize = 3;
/// Most bytes of the beginning of a sentence that are read.
const NEAR: usize = 32;

/// Returns a text without such sentences at its end. A number must stand before them.
pub(super) fn without_afterthought(text: &str) -> &str {
    let mut kept = without_check(text);
    for _ in 0..MOST {
        let end = kept.trim_end_matches(|c: char| c.is_whitespace() || ".!?*_)".contains(c));
        let start = start(end);
        let (before, sentence) = (&kept[..start], &end[start..]);
        let said = before.contains(|c: char| c.is_ascii_digit());
        if !said || !(is_remark(sentence) || is_counterfactual(end, start) || answers_an_offer(before, sentence)) {
            return kept;
        }
        kept = before;
    }
    kept
}

/// Returns a text without a last paragraph that only checks the answer above it.
fn without_check(text: &str) -> &str {
    let Some((before, check)) = text.trim_end().rsplit_once("\n\n") else {
        return text;
    };
    let said = before
        .rsplit("\n\n")
        .next()
        .is_some_and(|last| last.contains(|c: char| c.is_ascii_digit()));
    let lower = check.to_lowercase();
    let bare = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
    let checks = CHECKS.iter().any(|words| bare.starts_with(words));
    let corrects = CORRECTING.iter().any(|word| lower.contains(word));
    if said && checks && !corrects { before } else { text }
}

/// Returns the start of the last sentence.
fn start(text: &str) -> usize {
    let ends = [". ", "? ", "! ", "\n", ".* ", ".) "];
    let found = ends.iter().filter_map(|sign| Some(text.rfind(sign)? + sign.len()));
    found.max().unwrap_or(0)
}

/// Returns true for a note without a result, and for an offer.
fn is_remark(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let bare = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
    let begins = |words: &[&str]| words.iter().any(|word| head(bare, NEAR).starts_with(word));
    begins(&OFFERS) || (begins(&NOTES) && !RESULTS.iter().any(|word| lower.contains(word)))
}

/// Returns true for a sentence that says what an offer would give: `It would be 126`.
fn answers_an_offer(before: &str, sentence: &str) -> bool {
    let end = before.trim_end();
    let asked = end
        .strip_suffix('?')
        .is_some_and(|asked| is_remark(&asked[start(asked)..]));
    asked && sentence.to_lowercase().contains("would ")
}

#[cfg(test)]
mod tests {
    use super::without_afterthought;

    #[test]
    fn sentences_about_something_else_are_left_out() {
        for behind in [
            " If she didn't bake, she would make $26.",
            "\n\nNote that if she sold all 16 eggs, she would make $32.",
            "\n\n*Note: this assumes all 9 eggs are sold.*",
            " Would you like the weekly income too? It would be $126.",
            "\n\nLet me know if you need help with the other 5 questions.",
            "\n\n**Check:** 18 / 2 = 9, and 9 + 7 = 16. ✓",
            "\n\nTo verify, 18 - 9 = 9.",
        ] {
            let text = format!("She makes $18 a day.{behind}");
            assert_eq!(without_afterthought(&text).trim_end(), "She makes $18 a day.", "{text}");
        }
        for text in [
            "She would make $18 a day.",
            "If she sells 9 eggs, she would make $18.",
            "She sells 9 eggs. Note: 9 * 2 = 18.",
            "She sells 9 eggs. So she would make $18.",
            "Note that she makes $18.",
            "She makes $20.\n\nCheck: 9 * 2 = 18, so it should be $18.",
        ] {
            assert_eq!(without_afterthought(text), text, "{text}");
        }
    }
}
