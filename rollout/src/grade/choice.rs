//! Multiple choice: the letter that was chosen.

/// Letters that a choice may have.
const LETTERS: std::ops::RangeInclusive<char> = 'A'..='J';

/// The letter that a text is: `B`, `(b)`, `B.`, `B) a tree`.
pub(super) fn letter(text: &str) -> Option<char> {
    let text = text.trim().trim_matches(['$', '*', ' ']);
    let text = text
        .strip_prefix("\\text{")
        .map_or(text, |inner| inner.trim_end_matches('}'));
    let inner = text.trim_start_matches(['(', '[']);
    let mut chars = inner.chars();
    let letter = chars.next()?.to_ascii_uppercase();
    // A word that begins with a letter is no choice.
    let ends = chars.next().is_none_or(|next| !next.is_alphanumeric() && next != '\'');
    let bare =
        chars.as_str().trim().is_empty() || inner.len() < text.len() || [')', '.', ':', ','].contains(&second(inner));
    (LETTERS.contains(&letter) && ends && bare).then_some(letter)
}

fn second(text: &str) -> char {
    text.chars().nth(1).unwrap_or(')')
}

/// The choice that an answer makes: boxed; else between `<answer>` and `</answer>`; else after the last "answer is" or
/// "answer:"; else the last letter in brackets; else the text itself.
pub(super) fn answer(text: &str) -> Option<char> {
    if let Some(content) = super::boxed::last(text) {
        return letter(content);
    }
    if let Some(content) = super::format::last_block(text, "answer") {
        return letter(content).or_else(|| answer(content));
    }
    announced(text).or_else(|| bracketed(text)).or_else(|| letter(text))
}

fn announced(text: &str) -> Option<char> {
    let lower = text.to_ascii_lowercase();
    let words = ["answer is", "answer:", "choice is", "option is"];
    let end = words
        .iter()
        .filter_map(|w| lower.rfind(w).map(|at| at + w.len()))
        .max()?;
    let rest = text[end..].trim_start_matches([':', ' ', '*', '\n']);
    let rest = ["option ", "choice "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .unwrap_or(rest);
    let word: String = rest.chars().take_while(|c| !c.is_whitespace()).collect();
    letter(word.trim_end_matches(['.', ',', ';', '*']))
}

fn bracketed(text: &str) -> Option<char> {
    let chars: Vec<char> = text.chars().collect();
    let within = |w: &&[char]| w[0] == '(' && w[2] == ')' && LETTERS.contains(&w[1].to_ascii_uppercase());
    chars.windows(3).rfind(within).map(|w| w[1].to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_letter_is_found() {
        for (text, chosen) in [
            ("B", Some('B')),
            ("b", Some('B')),
            ("(C)", Some('C')),
            ("D.", Some('D')),
            ("D. a tree", Some('D')),
            ("\\boxed{A}", Some('A')),
            ("\\boxed{\\text{(E)}}", Some('E')),
            ("(A) is wrong, so the answer is B.", Some('B')),
            ("Answer: **C**", Some('C')),
            ("the answer is (d)", Some('D')),
            ("<answer>B</answer>", Some('B')),
            ("<answer> the answer is B </answer>", Some('B')),
            ("either (A) or (B)", Some('B')),
            ("A tree", None),
            ("Because", None),
            ("", None),
            ("\\boxed{42} (A)", None),
            ("answer: é", None),
            ("The correct option is (H).", Some('H')),
            ("My choice is option F", Some('F')),
            ("**Answer: B**", Some('B')),
            ("Answer: [C]", Some('C')),
            ("the answer is A, not B", Some('A')),
            ("the answer is A. No, the answer is B.", Some('B')),
            ("\\boxed{A} or \\boxed{C}", Some('C')),
            ("\\boxed{\\text{D}}", Some('D')),
            ("\\boxed{B) a tree}", Some('B')),
            ("<think>(A)</think><answer>(C)</answer>", Some('C')),
            ("<answer>none of them</answer> (B)", None),
            ("K", None),
            ("(K)", None),
            ("A's", None),
            ("AB", None),
        ] {
            assert_eq!(answer(text), chosen, "{text}");
        }
    }
}
