//! Drops units of measure, because they are not compared.

use super::lexer::Token;
use crate::grade::answer::minus;
use crate::grade::answer::wide::is_han;

/// Units written as bare letters after a number. Single letters are left out, because they may be
/// variables.
const UNITS: [&str; 47] = [
    "cm", "mm", "km", "dm", "kg", "mg", "ml", "cl", "km/h", "mph", "inches", "inch", "feet", "foot", "ft", "yards",
    "miles", "mile", "meters", "meter", "metres", "dollars", "dollar", "cents", "cent", "euros", "degrees", "degree",
    "hours", "hour", "minutes", "minute", "seconds", "days", "day", "weeks", "years", "year", "units", "unit",
    "points", "percent", "people", "ways", "square", "cubic", "m/s",
];

/// Chinese units after a number. Words of scale (`万`, `亿`, `倍`) are left out, because they change
/// the number.
const HAN: [&str; 57] = [
    "米",
    "厘米",
    "分米",
    "毫米",
    "千米",
    "公里",
    "克",
    "毫克",
    "千克",
    "公斤",
    "斤",
    "吨",
    "升",
    "毫升",
    "元",
    "块",
    "角",
    "分",
    "美元",
    "秒",
    "秒钟",
    "分钟",
    "小时",
    "时",
    "天",
    "日",
    "周",
    "星期",
    "月",
    "个月",
    "年",
    "岁",
    "度",
    "个",
    "人",
    "名",
    "位",
    "次",
    "种",
    "本",
    "只",
    "条",
    "件",
    "张",
    "棵",
    "台",
    "辆",
    "头",
    "朵",
    "平方米",
    "平方厘米",
    "平方千米",
    "立方米",
    "立方厘米",
    "米/秒",
    "千米/时",
    "千米/小时",
];

/// Drops words next to mathematics, with their exponents, and bare units after the first number.
pub(super) fn stripped(tokens: &[Token]) -> Vec<Token> {
    let words_alone = matches!(tokens, [Token::Text(_)]);
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let used = match &tokens[at] {
            Token::Text(words) if !words_alone => {
                // A constant set upright: 2\mathrm{i}.
                if let Some(c) = constant(words) {
                    out.push(Token::Letter(c));
                    at += 1;
                    continue;
                }
                let short = words.trim().trim_matches(['(', ')']).chars().count() == 1;
                // A single letter is a choice, or a variable set upright.
                if short
                    && let Some(c) = words.trim().trim_matches(['(', ')']).chars().next()
                    && out.is_empty()
                {
                    out.push(Token::Letter(c));
                    at += 1;
                    continue;
                }
                1
            }
            Token::Letter(_) if matches!(out.last(), Some(Token::Number(..))) => bare(&tokens[at..]),
            Token::Symbol(c) if is_han(*c) && matches!(out.last(), Some(Token::Number(..))) => bare(&tokens[at..]),
            _ => 0,
        };
        if used == 0 {
            out.push(tokens[at].clone());
            at += 1;
        } else {
            at += used + exponent(&tokens[at + used..]);
        }
    }
    out
}

/// Returns the constant `i` or `e`.
fn constant(words: &str) -> Option<char> {
    match words.trim() {
        "i" => Some('i'),
        "e" => Some('e'),
        _ => None,
    }
}

/// Returns the number of tokens of a unit in bare letters, if at most an exponent follows it; else
/// 0.
fn bare(tokens: &[Token]) -> usize {
    let mut text = String::new();
    for token in tokens {
        match token {
            Token::Letter(c) => text.push(*c),
            Token::Symbol(c) if *c == '/' || is_han(*c) => text.push(*c),
            _ => break,
        }
    }
    let used = text.chars().count();
    let rest = &tokens[used..];
    if exponent(rest) != rest.len() {
        return 0;
    }
    let known = |word: &str| UNITS.contains(&word) || HAN.contains(&word);
    if known(&text)
        || ["square", "cubic"]
            .iter()
            .any(|w| text.strip_prefix(w).is_some_and(known))
    {
        used
    } else {
        0
    }
}

/// Returns the number of tokens of a unit's exponent; 0 without one.
fn exponent(tokens: &[Token]) -> usize {
    match tokens {
        [Token::Symbol('^'), Token::Number(..), ..] => 2,
        [
            Token::Symbol('^'),
            Token::Symbol('{'),
            Token::Number(..),
            Token::Symbol('}'),
            ..,
        ] => 4,
        _ => 0,
    }
}

/// Returns the number in a text that holds only a number and words: `5 cm`.
pub(super) fn without(words: &str) -> Option<&str> {
    let words = words.trim();
    // A minus between digits makes a formula, a score or a date, so only a leading one is read.
    let sign = words
        .chars()
        .next()
        .filter(|c| minus::is_sign(*c))
        .map_or(0, char::len_utf8);
    let end = words[sign..].find(|c: char| !(c.is_ascii_digit() || ['.', ','].contains(&c)));
    let end = end.map_or(words.len(), |end| sign + end);
    let (number, unit) = words.split_at(end);
    let is_number = number.bytes().any(|b| b.is_ascii_digit());
    (is_number && unit.trim().chars().all(|c| c.is_alphabetic() || c == ' ')).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::without;
    use crate::grade::math::equal;

    #[test]
    fn a_unit_is_dropped_and_an_upright_constant_is_kept() {
        for (one, other, same) in [
            ("1+2\\mathrm{i}", "1+2i", true),
            ("1+2\\mathrm{i}", "3", false),
            ("2\\mathrm{e}^2", "2e^2", true),
            ("2\\mathrm{e}", "2", false),
            ("5\\mathrm{ m}", "5", true),
            ("\\text{3-2}", "1", false),
            ("\\text{-3 cm}", "-3", true),
            ("\\text{−3 cm}", "-3", true),
            ("5米", "5", true),
            ("x=5平方米。", "5", true),
            ("1,000元", "1000", true),
            ("60千米/小时", "60", true),
            ("5米^2", "5", true),
            ("5米", "6", false),
            ("5万", "5", false),
            ("5万米", "5", false),
            ("2分之1", "2", false),
            ("5米3", "5", false),
            ("\\text{5 cm}", "5", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
        assert_eq!(without("-1,234.5 cm"), Some("-1,234.5"));
        assert_eq!(without("1-1"), None);
        assert_eq!(without("-"), None);
    }
}
