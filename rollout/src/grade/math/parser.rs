//! Parses tokens into a formula, by recursive descent with precedence. [`super::numerals`] reads
//! numbers.

use super::accents;
use super::expr::Expr;
use super::number::{MOST_DEGREE, Number};
use super::op::is_between;
use crate::grade::normal::token::Token;

/// Deepest nesting of brackets and commands together.
const DEEPEST: usize = 64;
/// Longest formula that is read, in tokens. A chain of signs makes a tree as deep as the chain is
/// long, and recursion follows the tree.
pub(super) const MOST_TOKENS: usize = 256;

/// Functions of one argument.
const FUNCTIONS: [&str; 16] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln", "exp", "log",
    "lg",
];

impl Expr {
    /// Reads all tokens as one formula. Returns `None` if they are not a formula, too many, or
    /// nested too deep.
    pub(super) fn parse(tokens: &[Token]) -> Option<Self> {
        if tokens.len() > MOST_TOKENS {
            return None;
        }
        let mut parser = Parser {
            rest: tokens,
            depth: 0,
            bars: 0,
        };
        let expr = parser.sum()?;
        parser.rest.is_empty().then_some(expr)
    }
}

pub(super) struct Parser<'a> {
    pub(super) rest: &'a [Token],
    depth: usize,
    /// The number of open absolute values.
    bars: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.rest.first()
    }

    fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn eat(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn eat_command(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Command(name)) if name == wanted);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        let read = (self.depth <= DEEPEST).then(|| read(self)).flatten();
        self.depth -= 1;
        read
    }

    fn sum(&mut self) -> Option<Expr> {
        self.deeper(|parser| {
            let mut expr = parser.product()?;
            loop {
                expr = if parser.eat('+') {
                    Expr::Sum(boxed(expr), boxed(parser.product()?))
                } else if parser.eat('-') {
                    Expr::Sum(boxed(expr), boxed(Expr::Negative(boxed(parser.product()?))))
                } else if parser.eat_command("over") {
                    Expr::Quotient(boxed(expr), boxed(parser.sum()?))
                } else if parser.eat_command("choose") {
                    Expr::Binomial(boxed(expr), boxed(parser.sum()?))
                } else {
                    return Some(expr);
                };
            }
        })
    }

    fn product(&mut self) -> Option<Expr> {
        if self.eat('-') {
            return self.deeper(|parser| parser.product().map(|expr| Expr::Negative(boxed(expr))));
        }
        if self.eat('+') {
            return self.deeper(Self::product);
        }
        let mut expr = self.power()?;
        loop {
            expr = if self.eat('*') {
                Expr::Product(boxed(expr), boxed(self.signed()?))
            } else if self.eat('/') {
                Expr::Quotient(boxed(expr), boxed(self.signed()?))
            } else if self.eat_command("times") {
                accents::vector_product(expr, self.signed()?)?
            } else if self.starts_factor() {
                Expr::Product(boxed(expr), boxed(self.power()?))
            } else {
                return Some(expr);
            };
        }
    }

    fn signed(&mut self) -> Option<Expr> {
        if self.eat('-') {
            return self.power().map(|expr| Expr::Negative(boxed(expr)));
        }
        self.power()
    }

    /// Returns true if the next token begins a factor without a multiplication sign.
    fn starts_factor(&self) -> bool {
        match self.peek() {
            Some(Token::Letter(_)) => true,
            Some(Token::Command(name)) => {
                !is_between(name) && !name.contains(' ') && !["rfloor", "rceil", "circ", "times"].contains(&&**name)
            }
            Some(Token::Symbol('|')) => self.bars == 0,
            Some(Token::Symbol(c)) => ['(', '{'].contains(c),
            // Reads 2^x 3^x as a product.
            Some(Token::Number(..)) => matches!(self.rest.get(1), Some(Token::Symbol('^' | '!'))),
            _ => false,
        }
    }

    fn power(&mut self) -> Option<Expr> {
        let mut base = self.atom()?;
        loop {
            if self.eat('!') {
                base = Expr::Factorial(boxed(base));
            } else if !matches!(base, Expr::Variable(_)) && self.eat_command("circ") {
                base = Expr::Degrees(boxed(base));
            } else if self.eat('^') {
                if self.eat_circle() {
                    base = Expr::Degrees(boxed(base));
                    continue;
                }
                let exponent = self.deeper(Self::exponent)?;
                base = Expr::Power(boxed(base), boxed(exponent));
            } else {
                return Some(base);
            }
        }
    }

    /// Skips `\circ` or `{\circ}`, and returns true if it was there.
    fn eat_circle(&mut self) -> bool {
        let circle = |token: &Token| matches!(token, Token::Command(name) if name == "circ");
        match self.rest {
            [first, ..] if circle(first) => self.rest = &self.rest[1..],
            [Token::Symbol('{'), middle, Token::Symbol('}'), ..] if circle(middle) => self.rest = &self.rest[3..],
            _ => return false,
        }
        true
    }

    fn exponent(&mut self) -> Option<Expr> {
        if self.eat('-') {
            return self.exponent().map(|expr| Expr::Negative(boxed(expr)));
        }
        let base = self.argument(true)?;
        if self.eat('^') {
            let exponent = self.deeper(Self::exponent)?;
            return Some(Expr::Power(boxed(base), boxed(exponent)));
        }
        Some(base)
    }

    fn until(&mut self, close: char) -> Option<Expr> {
        let expr = self.sum()?;
        self.eat(close).then_some(expr)
    }

    /// Reads an argument of a command: a group in braces, or a number. Without `whole`, a number of
    /// several digits is rejected.
    fn argument(&mut self, whole: bool) -> Option<Expr> {
        if let Some(Token::Number(digits, _)) = self.peek()
            && digits.len() > 1
            && !whole
            && !digits.contains('.')
        {
            // In \frac12 each digit is an argument of its own; [`Self::two_arguments`] reads it.
            return None;
        }
        self.atom()
    }

    fn atom(&mut self) -> Option<Expr> {
        match self.next()? {
            Token::Number(digits, _) => self.number(digits),
            Token::Letter(c) => Some(self.variable(c.to_string())),
            Token::Symbol('(') => self.until(')'),
            Token::Symbol('[') => self.until(']'),
            Token::Symbol('{') => self.until('}'),
            Token::Symbol('|') => {
                self.bars += 1;
                let inside = self.sum();
                self.bars -= 1;
                let inside = inside?;
                self.eat('|').then(|| Expr::Absolute(boxed(inside)))
            }
            Token::Command(name) => self.deeper(|parser| parser.command(name)),
            _ => None,
        }
    }

    pub(super) fn command(&mut self, name: &str) -> Option<Expr> {
        match name {
            "infty" => Some(Expr::Infinity),
            "frac" => {
                let (numerator, denominator) = self.two_arguments()?;
                Some(Expr::Quotient(boxed(numerator), boxed(denominator)))
            }
            "binom" => {
                let (n, k) = self.two_arguments()?;
                Some(Expr::Binomial(boxed(n), boxed(k)))
            }
            "sqrt" => {
                let degree = if self.eat('[') { self.degree()? } else { 2 };
                let inside = match self.split_digits() {
                    Some(digit) => digit,
                    None => self.argument(true)?,
                };
                Some(Expr::Root(boxed(inside), degree))
            }
            "lfloor" | "lceil" => {
                let inside = self.sum()?;
                let (close, name) = if name == "lfloor" {
                    ("rfloor", "floor")
                } else {
                    ("rceil", "ceil")
                };
                let closed = self.eat_command(close);
                closed.then(|| Expr::Function(name.into(), boxed(inside)))
            }
            name if FUNCTIONS.contains(&name) => self.function(name),
            name if is_between(name) || name.contains(' ') => None,
            name if !name.starts_with(|c: char| c.is_ascii_alphabetic()) => None,
            "rfloor" | "rceil" | "circ" | "overline" | "times" => None,
            name if accents::is_accent(name) => Some(self.accented(name)),
            name => Some(self.variable(name.to_owned())),
        }
    }

    /// Reads the two arguments of `\frac` and similar commands, `\frac12` included.
    fn two_arguments(&mut self) -> Option<(Expr, Expr)> {
        if let Some(Token::Number(digits, _)) = self.peek()
            && let [a, b] = digits.as_bytes()
            && a.is_ascii_digit()
            && b.is_ascii_digit()
        {
            self.rest = &self.rest[1..];
            let digit = |c: &u8| Some(Expr::Number(Number::whole(c - b'0')?, 0));
            return Some((digit(a)?, digit(b)?));
        }
        Some((self.argument(false)?, self.argument(true)?))
    }

    /// Reads a single digit right after `\sqrt`: `\sqrt2`.
    fn split_digits(&mut self) -> Option<Expr> {
        match self.peek() {
            Some(Token::Number(digits, _)) if digits.len() == 1 => self.atom(),
            _ => None,
        }
    }

    fn degree(&mut self) -> Option<u32> {
        let Some(Token::Number(digits, _)) = self.next() else {
            return None;
        };
        let degree = digits.parse().ok().filter(|degree| (2..=MOST_DEGREE).contains(degree));
        self.eat(']').then_some(degree).flatten()
    }

    fn function(&mut self, name: &str) -> Option<Expr> {
        let base = if name == "log" && self.eat('_') {
            Some(self.base()?)
        } else {
            None
        };
        let power = if self.eat('^') {
            Some(self.deeper(Self::exponent)?)
        } else {
            None
        };
        let argument = match self.deeper(Self::function_argument)? {
            Expr::Degrees(degrees) => {
                let radians = Expr::Number(Number::rounded(std::f64::consts::PI / 180.0)?, 0);
                Expr::Product(degrees, boxed(radians))
            }
            other => other,
        };
        if let ("sin" | "cos" | "tan", Some(Expr::Negative(one))) = (name, &power)
            && matches!(&**one, Expr::Number(one, _) if one.as_whole() == Some(1))
        {
            // \tan^{-1} is the inverse function.
            return Some(Expr::Function(format!("arc{name}"), boxed(argument)));
        }
        let value = match (name, base) {
            ("lg", _) => Expr::Log(boxed(Expr::Number(Number::whole(10)?, 0)), boxed(argument)),
            ("log", Some(base)) => Expr::Log(boxed(base), boxed(argument)),
            // Mathematicians write log without a base for the natural logarithm.
            ("log", None) => Expr::Function("ln".into(), boxed(argument)),
            (name, _) => Expr::Function(name.into(), boxed(argument)),
        };
        Some(match power {
            Some(power) => Expr::Power(boxed(value), boxed(power)),
            None => value,
        })
    }

    /// Reads the base of a logarithm. A number on its own is no mixed number: `\log_2\frac{1}{8}`.
    fn base(&mut self) -> Option<Expr> {
        if let Some(Token::Number(digits, _)) = self.peek() {
            self.rest = &self.rest[1..];
            return super::numerals::decimal(digits);
        }
        self.argument(true)
    }

    /// Reads a bracket, or the factors up to the next sign or function: `\sin 2x\cos x`.
    fn function_argument(&mut self) -> Option<Expr> {
        if matches!(self.peek(), Some(Token::Symbol('(' | '{' | '|'))) {
            return self.atom();
        }
        if self.eat('-') {
            return self.function_argument().map(|expr| Expr::Negative(boxed(expr)));
        }
        let mut expr = self.power()?;
        let function =
            |token: Option<&Token>| matches!(token, Some(Token::Command(name)) if FUNCTIONS.contains(&&**name));
        while self.starts_factor() && !function(self.peek()) {
            expr = Expr::Product(boxed(expr), boxed(self.power()?));
        }
        Some(expr)
    }

    /// Reads the subscripts and primes of a variable.
    pub(super) fn variable(&mut self, mut name: String) -> Expr {
        loop {
            if self.eat('\'') {
                name.push('\'');
            } else if let Some(index) = self.subscript() {
                name = format!("{name}_{index}");
            } else {
                return Expr::Variable(name);
            }
        }
    }

    pub(super) fn subscript(&mut self) -> Option<String> {
        if self.peek() != Some(&Token::Symbol('_')) {
            return None;
        }
        let end = match self.rest.get(1)? {
            Token::Symbol('{') => 1 + self.rest.iter().skip(1).position(|t| *t == Token::Symbol('}'))?,
            _ => 1,
        };
        let text = accents::text(&self.rest[1..=end]);
        self.rest = &self.rest[end + 1..];
        Some(text)
    }
}

pub(super) fn boxed(expr: Expr) -> Box<Expr> {
    Box::new(expr)
}
