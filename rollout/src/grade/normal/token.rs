//! The pieces of a formula.

/// A piece of a formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Digits with at most one point, and true if white space stood before them.
    Number(String, bool),
    Letter(char),
    /// The name of a command, without the backslash.
    Command(String),
    Symbol(char),
    /// `\{` or `\}`.
    Set(char),
    /// Words: the content of `\text{}` and similar commands, units, currencies, prose.
    Text(String),
}

impl Token {
    pub(crate) fn is_command(&self, wanted: &str) -> bool {
        matches!(self, Self::Command(name) if name == wanted)
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number(..))
    }
}
