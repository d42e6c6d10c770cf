//! Reads an answer that stands first, before its explanation.

/// Beginnings of an explanation.
const EXPLAINING: [&str; 14] = [
    "explanation",
    "reason",
    "because",
    "justification",
    "here's",
    "here is how",
    "here's how",
    "how i got",
    "steps",
    "step-by-step",
    "working",
    "details",
    "derivation",
    "why",
];
/// Longest line that is an answer, in bytes.
const LONGEST: usize = 48;

/// Returns the first line if it is a number with at most a unit, and an explanation stands below it.
pub(super) fn explained(text: &str) -> Option<&str> {
    let (line, below) = text.trim_start().split_once('\n')?;
    let line = line.trim().trim_start_matches(['#', '>', ' ']);
    let bare = line.trim_matches(['*', '_', '$', '\\', '(', ')', '.', ' ']);
    let number = line.len() <= LONGEST
        && bare.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && bare.split_whitespace().count() <= 2
        && !line.ends_with(':');
    let below = below.trim_start().trim_start_matches(['*', '#', '_', ' ', '>']);
    let lower = super::text::head(below, LONGEST).to_lowercase();
    let explains = EXPLAINING.iter().any(|words| lower.starts_with(words));
    (number && explains).then(|| line.trim_matches(['*', '_', ' ']))
}

#[cfg(test)]
mod tests {
    use super::explained;

    #[test]
    fn an_answer_may_stand_before_its_explanation() {
        for (text, line) in [
            ("18\n\nExplanation: 9 eggs at $2.", Some("18")),
            ("**$18**\n\n**Reasoning:**\n9 * 2", Some("$18")),
            ("18 dollars\n\nBecause she sells 9 eggs.", Some("18 dollars")),
            ("18\n\nShe sells 9 eggs.", None),
            ("She makes 18\n\nExplanation: 9 eggs.", None),
            ("1. 9 eggs are left\nBecause 16 - 7 = 9", None),
            ("18", None),
        ] {
            assert_eq!(explained(text), line, "{text}");
        }
    }
}
