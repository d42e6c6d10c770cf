//! Finds texts that give up: `There is not enough information`. Their last number is no answer.

use super::text::tail;

/// Words with which a text gives up.
const PHRASES: [&str; 20] = [
    "can't determine",
    "cannot determine",
    "can not determine",
    "can't be determined",
    "cannot be determined",
    "unable to determine",
    "impossible to determine",
    "can't solve",
    "cannot solve",
    "cannot be solved",
    "unable to solve",
    "can't answer",
    "cannot answer",
    "unable to answer",
    "not enough information",
    "insufficient information",
    "not enough data",
    "don't know the answer",
    "don't know how",
    "无法确定",
];
/// Words and signs with which a text goes on to an answer after it gave up.
const GOING_ON: [&str; 12] = [
    "but",
    "however",
    "so ",
    "thus",
    "hence",
    "therefore",
    "if ",
    "assum",
    "still",
    "answer",
    "=",
    "≈",
];
/// Most bytes of the end of a text that are read.
const REACH: usize = 240;

/// Returns true if one of the last two sentences gives up, and the words behind do not go on to an
/// answer.
pub(super) fn gives_up(text: &str) -> bool {
    let text = tail(text.trim_end(), REACH);
    let lower = text.to_lowercase().replace('’', "'");
    let ends: Vec<usize> = [". ", ".\n", "! ", "\n"]
        .iter()
        .flat_map(|stop| lower.match_indices(stop).map(|(at, stop)| at + stop.len()))
        .collect();
    let later = |at: usize| ends.iter().filter(|end| **end > at).count();
    let found = PHRASES
        .iter()
        .filter_map(|words| Some((lower.rfind(words)?, words.len())));
    let Some((at, length)) = found.max() else { return false };
    let behind = &lower[at + length..];
    later(at) < 2 && !GOING_ON.iter().any(|word| behind.contains(word))
}

#[cfg(test)]
mod tests {
    use super::gives_up;

    #[test]
    fn a_text_may_give_up() {
        for text in [
            "I can't determine it. There are 3 unknowns.",
            "I cannot solve this problem, as 3 pieces of data are missing.",
            "Not enough information. We'd need 2 more equations.",
            "The price can’t be determined from these 2 facts.",
        ] {
            assert!(gives_up(text), "{text}");
        }
        for text in [
            "We cannot determine x, but x + y = 10.",
            "We can't determine both ages, so we add them: 10.",
            "At first there is not enough information. We use the second fact. It is 10.",
            "We can't have 0.6 of a bus. They need 25 buses.",
            "It is 10.",
            "",
        ] {
            assert!(!gives_up(text), "{text}");
        }
    }
}
