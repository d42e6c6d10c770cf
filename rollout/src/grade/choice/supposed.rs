//! Finds letters that are right only under a condition: `A would be right in a vacuum`.

use super::statement::{sentence, unset};

/// Returns true if words behind an announcement suppose its letter: ` A would be right if ..`.
pub(super) fn is_supposed(behind: &str) -> bool {
    let letter = behind.trim_start_matches([' ', '(', '*', ':']);
    let after = letter.get(1..).map(|after| unset(after).trim_start().to_lowercase());
    after.is_some_and(|after| is_conditional(&after))
}

/// Returns true if words behind a letter say when it would be right: `would be right in a vacuum`.
pub(super) fn is_conditional(after: &str) -> bool {
    let mut words = sentence(after).split([' ', ',']);
    after.starts_with("would ") && words.any(|word| ["in", "if", "for", "when", "under", "only"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::is_supposed;

    #[test]
    fn a_letter_may_be_right_under_a_condition_only() {
        assert!(is_supposed(" A would be right in a vacuum.") && is_supposed(" (A) would be correct if x were 2"));
        assert!(
            !is_supposed(" A would be the best answer.") && !is_supposed(" A is right if x is 2") && !is_supposed("")
        );
    }
}
