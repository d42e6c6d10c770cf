//! Turns LaTeX, or plain text with the same meaning, into tokens. Commands that only change the
//! look of a formula are dropped here.

mod letters;
mod period;
mod set_words;

use super::setting::with_spaces;
use super::token::Token;
use super::{commands, currency, minus, numeral, scale, signs};

/// Returns the tokens of a text, or `None` if a command is incomplete (`\begin` without a name). A
/// backslash at the end is dropped.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    let text = signs::spelled(text);
    // A dollar sign that has no other is a currency, else it delimits formulas.
    let dollars = text.matches('$').count() - text.matches("\\$").count();
    let mut lexer = Lexer {
        rest: &text,
        delimited: dollars != 1,
        spaced: false,
        currency: false,
        money: false,
        out: Vec::new(),
    };
    while !lexer.rest.is_empty() {
        lexer.step()?;
    }
    Some(lexer.out)
}

struct Lexer<'a> {
    rest: &'a str,
    delimited: bool,
    spaced: bool,
    /// True right behind a sign of a currency.
    currency: bool,
    /// True right behind an amount with its currency before it.
    money: bool,
    out: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        self.skip(end)
    }

    /// Takes a number of bytes.
    fn skip(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn push(&mut self, token: Token) {
        self.out.push(token);
        self.spaced = false;
        self.currency = false;
        self.money = false;
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
                self.number()?;
            }
            c if c.is_ascii_alphabetic() => self.word(),
            // An empty group stands for nothing: `65{}^\circ`.
            '{' if self.rest.starts_with("{}") => {
                self.skip(2);
            }
            '{' if ["{,}", "{:}"].iter().any(|sign| self.rest.starts_with(sign)) => {
                let sign = if self.rest[1..].starts_with(':') { ':' } else { ',' };
                self.skip(3);
                self.push(Token::Symbol(sign));
            }
            c if c.is_alphabetic() && self.foreign_word() => {}
            c => {
                self.skip(c.len_utf8());
                self.sign(c);
            }
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let found = numeral::read(self.rest)?;
        self.skip(found.length);
        let (spaced, money) = (self.spaced, self.currency);
        if let Some(period) = self.period(&found.digits) {
            let head = found.digits[..found.digits.len() - period.1].to_owned();
            self.push(Token::Number(head, spaced));
            self.repeat(period.0);
            return Some(());
        }
        self.push(Token::Number(found.digits, spaced));
        self.money = money;
        Some(())
    }

    fn sign(&mut self, c: char) {
        let token = match c {
            '$' => {
                self.currency = !self.delimited;
                return;
            }
            '*' if self.rest.starts_with('*') => {
                self.skip(1);
                // Bold type: a power follows its base, and has an exponent.
                let sign = |token: &Token| matches!(token, Token::Symbol('=' | '+' | '-' | '/' | ':' | ','));
                if self.out.last().is_none_or(sign) || self.rest.is_empty() {
                    return;
                }
                Token::Symbol('^')
            }
            '=' => {
                self.rest = self.rest.trim_start_matches('=');
                match self.rest.strip_prefix('>') {
                    Some(rest) => {
                        self.rest = rest;
                        Token::Command("implies".into())
                    }
                    None => Token::Symbol('='),
                }
            }
            ':' if self.rest.starts_with('=') => return,
            // `2-million`
            '-' if self.joins_scale() => return,
            '-' if self.rest.starts_with('>') => {
                self.skip(1);
                Token::Command("implies".into())
            }
            '!' if self.rest.starts_with('=') => {
                self.skip(1);
                Token::Command("ne".into())
            }
            // Behind words it ends a sentence: `18. Well done!`.
            '!' if self.behind_words() => return,
            '<' | '>' if self.rest.starts_with('=') => {
                self.skip(1);
                Token::Command(format!("{c}="))
            }
            '<' | '>' => Token::Command(c.to_string()),
            c if currency::is_sign(c) => {
                self.push(Token::Text(c.to_string()));
                self.currency = true;
                return;
            }
            c => Token::Symbol(c),
        };
        self.push(token);
    }

    fn command(&mut self) -> Option<()> {
        self.skip(1);
        let name = self.take(|c| c.is_ascii_alphabetic());
        if name.is_empty() {
            self.escaped();
            return Some(());
        }
        if name == "mathbb" || name == "Bbb" || name == "mathbf" {
            let rest = self.rest.trim_start();
            if let Some(rest) = ["{R}", "R"].iter().find_map(|reals| rest.strip_prefix(reals)) {
                self.rest = rest;
                self.push(Token::Command("reals".into()));
                return Some(());
            }
        }
        if self.marked_period(name) {
            return Some(());
        }
        if commands::is_word(name)
            && let Some(content) = self.group()
        {
            match minus::is_sign(content.trim().chars().next().unwrap_or(' ')) && content.trim().chars().count() == 1 {
                true => self.push(Token::Symbol('-')),
                false => self.words(&with_spaces(content)),
            }
            return Some(());
        }
        if commands::has_group_for_looks(name) {
            self.group();
            return Some(());
        }
        if commands::is_look(name) || commands::is_word(name) {
            return Some(());
        }
        if currency::is_command(name) {
            self.push(Token::Text(name.to_owned()));
            self.currency = true;
            return Some(());
        }
        if commands::is_degree(name) {
            // Degrees are usually written 90^\circ.
            self.push(Token::Symbol('^'));
            self.push(Token::Command("circ".into()));
            return Some(());
        }
        if commands::is_quantity(name) {
            let number = self.group()?;
            self.out.extend(tokens(number)?);
            let unit = self.group().unwrap_or_default();
            self.push(Token::Text(unit.replace('\\', " ")));
            return Some(());
        }
        if name == "not" && self.rest.trim_start().starts_with('=') {
            self.rest = self.rest.trim_start().trim_start_matches('=');
            self.push(Token::Command("ne".into()));
            return Some(());
        }
        if name == "times" && self.is_before_vector() {
            self.push(Token::Command(name.to_owned()));
            return Some(());
        }
        if name == "begin" || name == "end" {
            return self.environment(name);
        }
        self.push(commands::token(name)?);
        Some(())
    }

    /// Returns true if a hyphen here joins a number to a word of scale.
    fn joins_scale(&self) -> bool {
        let letters = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let number = self.out.last().is_some_and(Token::is_number);
        number && !self.spaced && scale::is_factor(&self.rest[..letters])
    }

    /// Returns true before a vector, unless a number stands before the sign: the order of the
    /// factors matters.
    fn is_before_vector(&self) -> bool {
        let next = self.rest.trim_start_matches([' ', '{', '(']);
        let vector = ["\\vec", "\\overrightarrow", "\\hat", "\\mathbf", "\\boldsymbol", "\\bm"];
        let on = vector.iter().find_map(|command| next.strip_prefix(command));
        let digit = |on: &str| {
            on.trim_start_matches([' ', '{'])
                .starts_with(|c: char| c.is_ascii_digit())
        };
        on.is_some_and(|on| !digit(on)) && !self.out.last().is_some_and(Token::is_number)
    }

    /// Reads a sign behind a backslash.
    fn escaped(&mut self) {
        let Some(c) = self.rest.chars().next() else { return };
        self.skip(c.len_utf8());
        match c {
            // `\!` joins its two sides: 11,\! 111.
            '!' => {
                self.take(char::is_whitespace);
                self.spaced = false;
            }
            ',' | ';' | ':' | ' ' => self.spaced = true,
            '$' => self.currency = true,
            '(' | ')' | '[' | ']' => {}
            '{' | '}' => self.push(Token::Set(c)),
            // A new row of a matrix.
            '\\' => {
                self.push(Token::Command("\\".into()));
                self.row_distance();
            }
            '|' => self.push(Token::Symbol('|')),
            c => self.push(Token::Symbol(c)),
        }
    }

    /// Drops the distance to the next row: `\\[2pt]`.
    fn row_distance(&mut self) {
        if let Some((distance, rest)) = self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            && distance.len() <= 8
            && ["pt", "em", "ex", "mm", "cm"]
                .iter()
                .any(|unit| distance.ends_with(unit))
        {
            self.rest = rest;
        }
    }

    fn environment(&mut self, name: &str) -> Option<()> {
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
        // The bars of `vmatrix` make a determinant.
        let bars = ["vmatrix", "Vmatrix"].contains(&environment);
        if bars && name == "begin" {
            self.push(Token::Symbol('|'));
        }
        self.push(Token::Command(format!("{name} {kind}")));
        if bars && name == "end" {
            self.push(Token::Symbol('|'));
        }
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
        same("1{,}000", "1000");
        same("x\\,\\le\\;y", "x<=y");
        same("90\\degree", "90^\\circ");
        same("5\\", "5");
        same("11,\\! 111", "11111");
        same("12\\,345", "12345");
        same("\\text{-}7", "-7");
        same("x**2", "x^2");
        same("6 + 12 = **18**", "6 + 12 = 18");
        same("**18", "18");
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
