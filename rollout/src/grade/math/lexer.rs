//! Turns LaTeX, or plain text with the same meaning, into tokens. Commands that only change the
//! look of a formula are dropped here.

use super::vulgar;
use crate::grade::answer::minus;

/// A piece of a formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// Digits with at most one point, and true if white space stood before them.
    Number(String, bool),
    Letter(char),
    /// The name of a command, without the backslash.
    Command(String),
    Symbol(char),
    /// `\{` or `\}`.
    Set(char),
    /// Words: the content of `\text{}` and similar commands.
    Text(String),
}

/// Commands that change only the look of a formula.
const LOOKS: [&str; 34] = [
    "left",
    "right",
    "big",
    "Big",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
    "bigg",
    "Bigg",
    "displaystyle",
    "textstyle",
    "limits",
    "quad",
    "qquad",
    "mathbf",
    "mathbb",
    "mathit",
    "mathsf",
    "mathcal",
    "boldsymbol",
    "bm",
    "boxed",
    "fbox",
    "approx",
    "hline",
    "thinspace",
    "middle",
    "sim",
    "therefore",
    "underline",
    "hfill",
    "newline",
    "bf",
];
const WORDS: [&str; 8] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "mbox",
    "mathrm",
    "operatorname",
    "rm",
];

/// Names with the same meaning, each with the name that replaces it.
const ALIASES: [(&str, &str); 28] = [
    ("dfrac", "frac"),
    ("tfrac", "frac"),
    ("cfrac", "frac"),
    ("nicefrac", "frac"),
    ("sfrac", "frac"),
    ("dots", "ldots"),
    ("cdots", "ldots"),
    ("dbinom", "binom"),
    ("tbinom", "binom"),
    ("cdot", "*"),
    ("times", "*"),
    ("ast", "*"),
    ("div", "/"),
    ("le", "<="),
    ("leq", "<="),
    ("leqslant", "<="),
    ("ge", ">="),
    ("geq", ">="),
    ("geqslant", ">="),
    ("lt", "<"),
    ("gt", ">"),
    ("neq", "ne"),
    ("infinity", "infty"),
    ("varnothing", "emptyset"),
    ("lbrace", "{"),
    ("rbrace", "}"),
    ("lvert", "|"),
    ("rvert", "|"),
];

/// Names that people write without a backslash in plain text.
pub(super) const PLAIN: [&str; 17] = [
    "arcsin", "arccos", "arctan", "sqrt", "sinh", "cosh", "tanh", "sin", "cos", "tan", "cot", "sec", "csc", "log",
    "exp", "ln", "pi",
];

/// Returns the tokens of a text, or `None` if a command is incomplete (`\begin` without a name). A
/// backslash at the end is dropped.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let text = vulgar::spelled(&text.replace("{,}", ","));
    let mut lexer = Lexer {
        rest: &text,
        spaced: false,
        out: Vec::new(),
    };
    while !lexer.rest.is_empty() {
        lexer.step()?;
    }
    Some(lexer.out)
}

struct Lexer<'a> {
    rest: &'a str,
    spaced: bool,
    out: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn push(&mut self, token: Token) {
        self.out.push(token);
        self.spaced = false;
    }

    fn step(&mut self) -> Option<()> {
        let first = self.rest.chars().next()?;
        match first {
            c if c.is_whitespace() || c == '~' => {
                self.take(|c| c.is_whitespace() || c == '~');
                self.spaced = true;
            }
            '\\' => return self.command(),
            c if c.is_ascii_digit() || (c == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit())) => {
                self.number();
            }
            c if c.is_ascii_alphabetic() => self.word(),
            c => {
                self.rest = &self.rest[c.len_utf8()..];
                self.sign(c);
            }
        }
        Some(())
    }

    fn number(&mut self) {
        let whole = self.take(|c| c.is_ascii_digit());
        let mut digits = whole.to_owned();
        while let Some(group) = self.thin_group(whole) {
            digits.push_str(group);
        }
        let after = self.rest.strip_prefix('.');
        if let Some(after) = after.filter(|after| after.starts_with(|c: char| c.is_ascii_digit()) || !whole.is_empty())
        {
            self.rest = after;
            digits.push('.');
            digits.push_str(self.take(|c| c.is_ascii_digit()));
        }
        let spaced = self.spaced;
        self.push(Token::Number(digits, spaced));
    }

    /// Returns the next three digits of `1\,000`, if one to three digits stood first.
    fn thin_group(&mut self, first: &str) -> Option<&'a str> {
        let after = self
            .rest
            .strip_prefix("\\,")
            .or_else(|| self.rest.strip_prefix("\\;"))?;
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits != 3 || !(1..=3).contains(&first.len()) {
            return None;
        }
        self.rest = &after[3..];
        Some(&after[..3])
    }

    /// Reads letters without a backslash: `and` or `or` between white space, a known name, or one
    /// variable.
    fn word(&mut self) {
        let between = |word: &&str| {
            let after = self.rest.strip_prefix(*word);
            self.spaced && after.is_some_and(|after| after.starts_with(char::is_whitespace))
        };
        if let Some(word) = ["and", "or"].into_iter().find(between) {
            self.rest = &self.rest[word.len()..];
            return self.push(Token::Text(word.to_owned()));
        }
        if let Some(name) = PLAIN.iter().find(|name| self.rest.starts_with(**name)) {
            self.rest = &self.rest[name.len()..];
            return self.push(Token::Command((*name).to_owned()));
        }
        if let Some(c) = self.rest.chars().next() {
            self.rest = &self.rest[c.len_utf8()..];
            self.push(Token::Letter(c));
        }
    }

    fn sign(&mut self, c: char) {
        let token = match c {
            '$' | '€' | '£' | '¥' => return,
            '²' | '³' => {
                self.push(Token::Symbol('^'));
                let digit = if c == '²' { "2" } else { "3" };
                Token::Number(digit.to_owned(), false)
            }
            '*' if self.rest.starts_with('*') => {
                self.rest = &self.rest[1..];
                Token::Symbol('^')
            }
            c if minus::is_sign(c) => Token::Symbol('-'),
            '×' | '·' | '⋅' => Token::Symbol('*'),
            '÷' => Token::Symbol('/'),
            '≤' => Token::Command("<=".into()),
            '≥' => Token::Command(">=".into()),
            '≠' => Token::Command("ne".into()),
            '∞' => Token::Command("infty".into()),
            'π' => Token::Command("pi".into()),
            '√' => Token::Command("sqrt".into()),
            '∪' => Token::Command("cup".into()),
            '∅' => Token::Command("emptyset".into()),
            '±' => Token::Command("pm".into()),
            '°' => Token::Command("circ".into()),
            '<' | '>' if self.rest.starts_with('=') => {
                self.rest = &self.rest[1..];
                Token::Command(format!("{c}="))
            }
            '<' | '>' => Token::Command(c.to_string()),
            c => Token::Symbol(c),
        };
        self.push(token);
    }

    fn command(&mut self) -> Option<()> {
        self.rest = &self.rest[1..];
        let name = self.take(|c| c.is_ascii_alphabetic());
        if name.is_empty() {
            let Some(c) = self.rest.chars().next() else {
                return Some(());
            };
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                // `\!` joins its two sides: 11,\! 111.
                '!' => {
                    self.take(char::is_whitespace);
                    self.spaced = false;
                }
                ',' | ';' | ':' | ' ' | '$' | '(' | ')' | '[' | ']' => {}
                '{' | '}' => self.push(Token::Set(c)),
                '%' => self.push(Token::Symbol('%')),
                // A new row of a matrix.
                '\\' => self.push(Token::Command("\\".into())),
                c => self.push(Token::Symbol(c)),
            }
            return Some(());
        }
        if name == "mathbb" && self.rest.starts_with("{R}") {
            self.rest = &self.rest["{R}".len()..];
            self.push(Token::Command("reals".into()));
            return Some(());
        }
        if LOOKS.contains(&name) {
            return Some(());
        }
        if WORDS.contains(&name)
            && let Some(content) = self.group()
        {
            self.push(Token::Text(content.to_owned()));
            return Some(());
        }
        if name == "degree" {
            // Degrees are usually written 90^\circ.
            self.push(Token::Symbol('^'));
            self.push(Token::Command("circ".into()));
            return Some(());
        }
        if name == "begin" || name == "end" {
            let environment = self.group()?;
            if name == "begin" && environment == "array" {
                // The alignment of the columns.
                self.group();
            }
            let kind = if environment.ends_with("matrix") || environment == "array" {
                "matrix"
            } else {
                environment
            };
            self.push(Token::Command(format!("{name} {kind}")));
            return Some(());
        }
        let alias = ALIASES.iter().find(|(known, _)| *known == name);
        self.push(match alias.map_or(name, |(_, ours)| ours) {
            one @ ("*" | "/" | "|") => Token::Symbol(one.chars().next()?),
            one @ ("{" | "}") => Token::Set(one.chars().next()?),
            name => Token::Command(name.to_owned()),
        });
        Some(())
    }

    /// Returns the content of the next group in braces.
    fn group(&mut self) -> Option<&'a str> {
        let inside = self.rest.trim_start().strip_prefix('{')?;
        let mut depth = 1usize;
        let end = inside.find(|c| {
            depth = match c {
                '{' => depth + 1,
                '}' => depth - 1,
                _ => depth,
            };
            depth == 0
        })?;
        self.rest = &inside[end + 1..];
        Some(&inside[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_go_and_meaning_stays() {
        let same = |a: &str, b: &str| assert_eq!(tokens(a), tokens(b), "{a} and {b}");
        same("\\left(\\dfrac{1}{2}\\right)", "(\\frac{1}{2})");
        same("$2 \\cdot x$", "2*x");
        same("1{,}000", "1,000");
        same("x\\,\\le\\;y", "x<=y");
        same("90\\degree", "90^\\circ");
        same("5\\", "5");
        same("11,\\! 111", "11,111");
        same("12\\,345", "12345");
        same("x**2", "x^2");
        same("\\begin{array}{cc}1&2\\end{array}", "\\begin{pmatrix}1&2\\end{pmatrix}");
        assert_eq!(tokens("1 or 2").unwrap()[1], Token::Text("or".into()));
        assert_eq!(tokens("1or 2").unwrap()[1], Token::Letter('o'));
        assert_eq!(tokens("\\begin"), None);
        assert_eq!(
            tokens("2 1/3").unwrap()[1],
            Token::Number("1".into(), true),
            "white space before a number is kept: it makes a mixed number"
        );
        assert_eq!(tokens("\\text{two words}"), Some(vec![Token::Text("two words".into())]));
    }
}
