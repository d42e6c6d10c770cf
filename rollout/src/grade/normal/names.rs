//! Names that are mathematics although they are written in letters.

use super::greek;

/// Names that people write without a backslash in plain text.
pub(crate) const PLAIN: [&str; 19] = [
    "arcsin", "arccos", "arctan", "sqrt", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc", "log",
    "exp", "ln", "pi", "infinity", "infty",
];

/// Returns true if a word is a function with or without its variable (`sinx`), or a Greek letter.
pub(crate) fn is_mathematics(word: &str) -> bool {
    let function = PLAIN
        .iter()
        .any(|name| word.starts_with(name) && word.len() <= name.len() + 1);
    function || greek::is_name(word)
}
