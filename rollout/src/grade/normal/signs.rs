//! Spells the signs of Unicode in LaTeX.

use std::iter::Peekable;
use std::str::Chars;

use super::vulgar;
use super::wide::narrow;
use super::{greek, minus};

const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸ";
const RAISED: &str = "0123456789+-=()nixy";
const SUBSCRIPTS: &str = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙᵢₓ";
const LOWERED: &str = "0123456789+-=()nix";

/// The bar and the dot over the digits of a repeating decimal.
const OVER: [char; 3] = ['\u{305}', '\u{304}', '\u{307}'];

/// Returns true for a character that takes no place.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}')
}

/// Returns true for a space that does not break a line, or a thin one.
pub(super) fn is_tie(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}')
}

/// Returns the LaTeX of a sign.
fn spelling(c: char) -> Option<&'static str> {
    let found = match c {
        '×' | '✕' | '✖' => "\\times ",
        '·' | '⋅' | '∙' | '•' | '∗' => "\\cdot ",
        '÷' => "\\div ",
        '⁄' | '∕' => "/",
        '∶' => ":",
        '≤' | '⩽' | '≦' => "\\le ",
        '≥' | '⩾' | '≧' => "\\ge ",
        '≠' => "\\ne ",
        '≈' | '≃' | '≅' | '∼' | '≐' => "\\approx ",
        '≡' => "\\equiv ",
        '∞' => "\\infty ",
        '√' => "\\sqrt ",
        '∛' => "\\sqrt[3]",
        '∜' => "\\sqrt[4]",
        '∪' | '⋃' => "\\cup ",
        '∩' => "\\cap ",
        '∈' => "\\in ",
        '∖' => "\\setminus ",
        '∅' => "\\emptyset ",
        '±' => "\\pm ",
        '∓' => "\\mp ",
        '°' | 'º' | '˚' => "^\\circ ",
        '→' | '⟶' => "\\to ",
        '⇒' | '⟹' => "\\Rightarrow ",
        '⇔' | '⟺' => "\\Leftrightarrow ",
        '∴' => "\\therefore ",
        '∣' => "\\mid ",
        '∠' => "\\angle ",
        '△' => "\\triangle ",
        'ℝ' => "\\mathbb{R}",
        'ℤ' => "\\mathbb{Z}",
        'ℕ' => "\\mathbb{N}",
        'ℚ' => "\\mathbb{Q}",
        'ℂ' => "\\mathbb{C}",
        '′' => "'",
        '″' => "''",
        '⌊' => "\\lfloor ",
        '⌋' => "\\rfloor ",
        '⌈' => "\\lceil ",
        '⌉' => "\\rceil ",
        '⟨' | '〈' => "\\langle ",
        '⟩' | '〉' => "\\rangle ",
        '…' | '⋯' => "\\ldots ",
        '℃' => "^\\circ\\text{C}",
        '℉' => "^\\circ\\text{F}",
        '％' => "%",
        c => return logic(c).or_else(|| vulgar::spelling(c)),
    };
    Some(found)
}

/// Returns the LaTeX of a sign of geometry or analysis. Signs whose sides may not change places
/// stay: the reader multiplies what stands around a command that it does not know.
fn logic(c: char) -> Option<&'static str> {
    let found = match c {
        '∥' => "\\parallel ",
        '⊥' | '⟂' => "\\perp ",
        '⊕' => "\\oplus ",
        '⊗' => "\\otimes ",
        '∧' => "\\land ",
        '∨' => "\\lor ",
        '¬' => "\\neg ",
        '∀' => "\\forall ",
        '∃' => "\\exists ",
        '∘' => "\\circ ",
        '∂' => "\\partial ",
        '∇' => "\\nabla ",
        '∆' => "\\Delta ",
        'ℓ' => "\\ell ",
        'ħ' | 'ℏ' => "\\hbar ",
        '≔' => "=",
        '⊂' => "\\subset ",
        '⊃' => "\\supset ",
        '⊆' => "\\subseteq ",
        '⊇' => "\\supseteq ",
        '≺' => "\\prec ",
        '≻' => "\\succ ",
        '≪' => "\\ll ",
        '≫' => "\\gg ",
        '↦' => "\\mapsto ",
        _ => return None,
    };
    Some(found)
}

/// Returns the plain character of a raised or lowered one.
fn shifted(c: char, signs: &str, plain: &str) -> Option<char> {
    let at = signs.chars().position(|sign| sign == c)?;
    plain.chars().nth(at)
}

/// Spells a text in ASCII where LaTeX has a spelling.
pub(super) fn spelled(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let over = chars.peek().is_some_and(|next| OVER.contains(next));
        if over && c.is_ascii_digit() {
            out.push_str("\\overline{");
            out.push(c);
            chars.next();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                out.push(digit);
                chars.next_if(|next| OVER.contains(next));
            }
            out.push('}');
            continue;
        }
        let free = !out.ends_with(|c: char| c.is_alphanumeric() || ")}]".contains(c));
        if let Some(raised) = run(c, &mut chars, SUPERSCRIPTS, RAISED) {
            let digits = raised.bytes().all(|byte| byte.is_ascii_digit());
            if digits && free && chars.next_if_eq(&'√').is_some() {
                out.push_str(&format!("\\sqrt[{raised}]"));
            } else if digits
                && (free || out.ends_with(|c: char| c.is_ascii_digit()))
                && chars.next_if_eq(&'⁄').is_some()
            {
                let below = chars.next().and_then(|c| run(c, &mut chars, SUBSCRIPTS, LOWERED));
                out.push_str(&format!("\\frac{{{raised}}}{{{}}}", below.unwrap_or_default()));
            } else {
                out.push_str(&format!("^{{{raised}}}"));
            }
            continue;
        }
        if let Some(lowered) = run(c, &mut chars, SUBSCRIPTS, LOWERED) {
            out.push_str(&format!("_{{{lowered}}}"));
            continue;
        }
        one(c, &mut out);
    }
    out
}

/// Returns the plain characters of a run of raised or lowered ones that begins with `first`.
fn run(first: char, chars: &mut Peekable<Chars<'_>>, signs: &str, plain: &str) -> Option<String> {
    let mut found = shifted(first, signs, plain)?.to_string();
    while let Some(next) = chars.peek().and_then(|next| shifted(*next, signs, plain)) {
        found.push(next);
        chars.next();
    }
    Some(found)
}

/// Spells a character on its own.
fn one(c: char, out: &mut String) {
    if is_invisible(c) {
    } else if is_tie(c) {
        out.push('~');
    } else if let Some(spelling) = spelling(c) {
        out.push_str(spelling);
    } else if minus::is_sign(c) {
        out.push('-');
    } else if let Some(name) = greek::name(narrow(c)) {
        out.push('\\');
        out.push_str(name);
        out.push(' ');
    } else {
        out.push(narrow(c));
    }
}

#[cfg(test)]
mod tests {
    use super::spelled;

    #[test]
    fn signs_of_unicode_have_their_latex() {
        for (text, latex) in [
            ("x⁴", "x^{4}"),
            ("10⁻²³", "10^{-23}"),
            ("1011₂", "1011_{2}"),
            ("0.3\u{305}", "0.\\overline{3}"),
            ("0.1\u{305}2\u{305}", "0.\\overline{12}"),
            ("½", "\\frac{1}{2}"),
            ("1\u{202f}000", "1~000"),
            ("α+β", "\\alpha +\\beta "),
            ("５", "5"),
            ("90°", "90^\\circ "),
            ("³√8", "\\sqrt[3]8"),
            ("x³√8", "x^{3}\\sqrt 8"),
            ("²⁄₃", "\\frac{2}{3}"),
            ("1²⁄₃", "1\\frac{2}{3}"),
            ("𝑥 + 𝜋", "x + \\pi "),
            ("ascii", "ascii"),
        ] {
            assert_eq!(spelled(text), latex, "{text}");
        }
    }
}
