//! Reads letters that a label or a value names: `Correct: B`, `The answer is 24 (option B).`

use super::statement::{NEAR, is_positive, unset};

/// Words before a colon and the letter that is all of the line.
const LABELS: [&str; 7] = ["correct", "solution", "result", "conclusion", "key", "output", "choice"];

/// `Correct: B`
pub(super) fn is_labelled(before: &str, after: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before);
    let whole = line.len() < before.len() || before.len() < NEAR;
    let line = line.trim_matches(|c: char| " *_#>([\"$".contains(c));
    let word = line.strip_suffix(':').map(|word| word.trim_end_matches(['*', '_']));
    let rest = unset(after).trim_start_matches(['.', ' ', '!']);
    whole && word.is_some_and(|word| LABELS.contains(&word)) && (rest.is_empty() || rest.starts_with('\n'))
}

/// `The answer is 24 (option B).`, `The answer is 24. Option B.`
pub(super) fn is_behind_its_value(before: &str, after: &str) -> bool {
    let rest = before.trim_end_matches([' ', '*', '(']);
    let Some(rest) = ["option", "choice"].iter().find_map(|word| rest.strip_suffix(word)) else {
        return false;
    };
    let apart = rest.trim_end_matches([' ', '*']);
    let said = apart.rsplit('\n').next().unwrap_or(apart);
    let answer = said.split("answer is ").nth(1).is_some_and(|value| {
        value.trim_end_matches(['(', ',', '.']).contains(char::is_alphanumeric) && is_positive(value)
    });
    answer && apart.ends_with(['(', ',', '.']) && !after.contains(char::is_alphanumeric)
}

/// `选项B是正确的`, `B选项正确`
pub(super) fn is_right_in_chinese(before: &str, after: &str) -> bool {
    let after = unset(after).trim_start();
    let after = ["选项", "項", "项"]
        .iter()
        .find_map(|word| after.strip_prefix(word))
        .unwrap_or(after);
    let right = ["是正确", "正确", "是对的"]
        .iter()
        .any(|words| after.starts_with(words));
    right && !before.ends_with(['若', '果', '设', '如', '和', '与'])
}
