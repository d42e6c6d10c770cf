//! Reads verbs behind a letter: `A would be right in a vacuum`, `B best explains it`.

use super::statement::{sentence, unset};

/// Returns true if the letter behind an announcement has a condition: ` A would be right if ..`.
pub(super) fn is_supposed(behind: &str) -> bool {
    let letter = behind.trim_start_matches([' ', '(', '*', ':']);
    let after = letter.get(1..).map(|after| unset(after).trim_start().to_lowercase());
    after.is_some_and(|after| is_conditional(&after))
}

/// Returns true if words behind a letter name a condition for it: `would be right in a vacuum`.
pub(super) fn is_conditional(after: &str) -> bool {
    let mut words = sentence(after).split([' ', ',']);
    after.starts_with("would ") && words.any(|word| ["in", "if", "for", "when", "under", "only"].contains(&word))
}

/// Returns true if words behind a letter say that it fits best: `best explains it`. In `A best
/// guess is` the letter is an article.
pub(super) fn does_best(after: &str) -> bool {
    let does = ["correctly ", "best "].iter().find_map(|word| after.strip_prefix(word));
    let verb = does.and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    verb.ends_with('s') && !verb.ends_with("ss")
}

#[cfg(test)]
mod tests {
    use super::{does_best, is_supposed};

    #[test]
    fn a_letter_may_do_best() {
        assert!(does_best("best explains it") && does_best("correctly states the law"));
        assert!(!does_best("best guess is b") && !does_best("correctly balanced equation") && !does_best(""));
    }

    #[test]
    fn a_letter_may_be_right_under_a_condition_only() {
        assert!(is_supposed(" A would be right in a vacuum.") && is_supposed(" (A) would be correct if x were 2"));
        assert!(
            !is_supposed(" A would be the best answer.") && !is_supposed(" A is right if x is 2") && !is_supposed("")
        );
    }
}
