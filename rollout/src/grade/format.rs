//! The grader `format`: checks which tags an answer has and in which order, with a state machine.

/// The state: what may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start: reasoning or an answer may begin.
    Start,
    Thinking,
    /// Reasoning has ended: an answer must begin.
    Thought,
    Answering,
    /// The answer has ended: only white space may follow.
    Done,
}

/// A tag, or the text between tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    OpenThink,
    CloseThink,
    OpenAnswer,
    CloseAnswer,
    /// Text that is not only white space.
    Text,
}

const TAGS: [(&str, Symbol); 4] = [
    ("<think>", Symbol::OpenThink),
    ("</think>", Symbol::CloseThink),
    ("<answer>", Symbol::OpenAnswer),
    ("</answer>", Symbol::CloseAnswer),
];

/// Returns true if a text is `<think>..</think>`, then a non-empty `<answer>..</answer>`, with only
/// white space around them. The reasoning may be missing, because partners do not see it.
pub(super) fn is_right(text: &str) -> bool {
    let (mut state, mut rest, mut answered) = (State::Start, text, false);
    while !rest.is_empty() {
        let (symbol, length) = next_symbol(rest);
        if let Some(symbol) = symbol {
            answered |= state == State::Answering && symbol == Symbol::Text;
            state = match step(state, symbol) {
                Some(next) => next,
                None => return false,
            };
        }
        rest = &rest[length..];
    }
    state == State::Done && answered
}

fn step(state: State, symbol: Symbol) -> Option<State> {
    match (state, symbol) {
        (State::Start, Symbol::OpenThink) => Some(State::Thinking),
        (State::Thinking, Symbol::Text) => Some(State::Thinking),
        (State::Thinking, Symbol::CloseThink) => Some(State::Thought),
        (State::Start | State::Thought, Symbol::OpenAnswer) => Some(State::Answering),
        (State::Answering, Symbol::Text) => Some(State::Answering),
        (State::Answering, Symbol::CloseAnswer) => Some(State::Done),
        _ => None,
    }
}

/// Returns the tag at the beginning of a text, or the text up to the next tag, and its length in
/// bytes. White space between tags gives no symbol.
fn next_symbol(text: &str) -> (Option<Symbol>, usize) {
    if let Some((tag, symbol)) = TAGS.iter().find(|(tag, _)| text.starts_with(tag)) {
        return (Some(*symbol), tag.len());
    }
    let end = TAGS
        .iter()
        .filter_map(|(tag, _)| text.find(tag))
        .min()
        .unwrap_or(text.len());
    (Some(Symbol::Text).filter(|_| !text[..end].trim().is_empty()), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_form_is_a_reasoning_and_an_answer() {
        for good in [
            "<answer>5</answer>",
            "<think>hm</think><answer>5</answer>",
            " <think>\n</think>\n <answer> a\nb </answer>\n",
            "<think></think><answer>5</answer>",
            "<answer>a < b</answer>",
            "<answer><b>5</b></answer>",
            "<answer>\\boxed{5}</answer>",
        ] {
            assert!(is_right(good), "{good}");
        }
        for bad in [
            "",
            "5",
            "<answer>5",
            "<answer> </answer>",
            "<answer>5</answer> bye",
            "well <answer>5</answer>",
            "<think>a</think>b<answer>5</answer>",
            "<think>a<answer>5</answer>",
            "<think><think>a</think></think><answer>5</answer>",
            "<answer>5</answer><answer>6</answer>",
            "<answer>5</answer><think>a</think>",
            "<answer><answer>5</answer></answer>",
            "<answer></answer>",
            "</think><answer>5</answer>",
            "<think>a</think>",
            "<think>a</think><think>b</think><answer>5</answer>",
            "<answer><think>a</think>5</answer>",
            "<ANSWER>5</ANSWER>",
            "<answer>5</answer",
            "</answer>5<answer>",
        ] {
            assert!(!is_right(bad), "{bad}");
        }
    }

    proptest! {
        /// Compares the state machine with a second statement of the same rule.
        #[test]
        fn the_machine_keeps_its_rule(pieces in prop::collection::vec(
            prop::sample::select(vec!["<think>", "</think>", "<answer>", "</answer>", "x", " "]), 0..8,
        )) {
            let text = pieces.concat();
            let words: Vec<&str> = pieces.iter().copied().filter(|piece| *piece != " ").collect();
            let rest = match words.as_slice() {
                ["<think>", rest @ ..] => {
                    let inside = rest.iter().take_while(|word| **word == "x").count();
                    rest.get(inside).filter(|word| **word == "</think>").map(|_| &rest[inside + 1..])
                }
                rest => Some(rest),
            };
            let expected = rest.is_some_and(|rest| match rest {
                ["<answer>", inside @ .., "</answer>"] => !inside.is_empty() && inside.iter().all(|word| *word == "x"),
                _ => false,
            });
            prop_assert_eq!(is_right(&text), expected, "{}", text);
        }
    }
}
