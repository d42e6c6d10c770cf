//! Reads the words after a number: some may be dropped, some change the number.

use super::aside::without_aside;
use super::phrase::before_phrase;
use super::text::is_prose;
use crate::grade::normal::names::PLAIN;
use crate::grade::normal::number_words::spelled_out;
use crate::grade::normal::scale::{changes as changes_number, is_scale};
use crate::grade::normal::wide::is_han;

/// Words that begin a reason, which is not part of the answer.
const REASONS: [&str; 3] = ["because", "since", "as"];

/// Returns a formula without the words after it: the `7` of `7 apples`, and of `7, because 3+4=7`.
/// Returns `None` if no words follow a number, or if they change it: `3 times 5`, `2 hours and 30
/// minutes`.
pub(crate) fn without_prose(line: &str) -> Option<&str> {
    if let Some(cut) = without_aside(line).or_else(|| before_phrase(line)) {
        return Some(without_words(cut).unwrap_or(cut));
    }
    without_words(line)
}

/// Signs of Chinese that change a number, or join it to another.
const CHANGING_SIGNS: &str = "不非未没或至到约莫几多少余倍分半第除减加乘和与及大小低高以之负根超零近";
/// Names of persons in problems. Each begins with such a sign.
const NAMES: [&str; 8] = ["小明", "小红", "小华", "小李", "小王", "小刚", "小丽", "小芳"];

/// Returns the number of a Chinese sentence that has one, with its unit: the `18元` of
/// `她每天赚18元` and of `18（元）`.
pub(crate) fn of_chinese(line: &str) -> Option<String> {
    let line = line.trim_end_matches(['。', '.', ' ', '！', '!']);
    let start = line.find(|c: char| c.is_ascii_digit())?;
    let length = line[start..]
        .find(|c: char| !(c.is_ascii_digit() || ".,".contains(c)))
        .unwrap_or(line.len() - start);
    let (before, number, unit) = (&line[..start], &line[start..start + length], &line[start + length..]);
    let before = before.strip_prefix(['约', '共']).unwrap_or(before);
    let before = before.trim_end_matches("大约").trim_end_matches('约');
    let before = NAMES
        .iter()
        .fold(before.to_owned(), |text, name| text.replace(name, ""));
    let signs = |text: &str| text.chars().all(|c| is_han(c) || " ，：,:（）()".contains(c));
    let plain = |text: &str| signs(text) && !text.contains(|c| CHANGING_SIGNS.contains(c));
    let unit: String = unit.chars().filter(|c| !" （）()".contains(*c)).collect();
    let chinese = line[..start].contains(is_han) || unit.contains(is_han);
    (chinese && plain(&before) && plain(&unit) && !unit.contains('的')).then(|| format!("{number}{unit}"))
}

/// Returns an amount without the time or the thing that it is for: the `$18` of `$18/day`, and of
/// `**18** per day`.
pub(crate) fn without_rate(line: &str) -> Option<&str> {
    let line = line.trim_end_matches(['.', ' ', '*']);
    let word = |unit: &&str| unit.len() > 2 && unit.bytes().all(|byte| byte.is_ascii_lowercase());
    let rates = [" per ", " a ", " each ", "/"].iter();
    let amount = rates
        .filter_map(|sign| line.split_once(sign).filter(|(_, unit)| word(&unit.trim_start())))
        .next()?
        .0;
    let number = amount.trim_matches(['*', '$', '\\', ' ']);
    let plain = |byte: u8| byte.is_ascii_digit() || [b',', b'.'].contains(&byte);
    (!number.is_empty() && number.bytes().all(plain)).then(|| amount.trim_matches('*'))
}

/// Returns a formula without the words that directly follow it.
fn without_words(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    let (mut at, mut depth, mut number) = (0, 0usize, false);
    while let Some(byte) = bytes.get(at) {
        let letters = bytes[at..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
        if letters > 0 {
            let begins = at == 0 || [b' ', b'('].contains(&bytes[at - 1]);
            if depth == 0 && begins && is_prose(&line[at..at + letters]) {
                let formula = without_last_words(&line[..at]);
                let cut = number && !changes(&line[formula.len()..]);
                return cut.then(|| formula.trim_end_matches(['.', ' ', '*']));
            }
            at += letters;
            continue;
        }
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b'0'..=b'9' => number = true,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns true if the words after a number may change it. Numbers and changing words count, up to
/// the beginning of a reason.
fn changes(behind: &str) -> bool {
    let behind = behind.to_ascii_lowercase().replace("as well as", "and");
    let mut behind = behind.replace("left over", "left");
    // `12 fewer apples` answers by how much, `12 fewer than twenty` computes.
    if !behind.split(' ').any(|word| spelled_out(word).is_some()) {
        behind = behind.replace(" fewer ", " ");
    }
    let words = behind
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words
        .take_while(|word| !REASONS.contains(word))
        .any(|word| word.contains(|c: char| c.is_ascii_digit()) || changes_number(word))
}

/// Removes short words at the end: `7 of the` becomes `7`.
fn without_last_words(mut line: &str) -> &str {
    loop {
        line = line.trim_end_matches([' ', ',', ';', ':', '(']);
        let start = line.rfind(' ').map_or(0, |at| at + 1);
        let word = line[start..].trim_start_matches('(');
        let is_word = word.len() >= 2 && word.bytes().all(|b| b.is_ascii_alphabetic());
        if start == 0 || !is_word || PLAIN.contains(&word) || is_scale(word) {
            return line;
        }
        line = &line[..start];
    }
}

#[cfg(test)]
mod tests {
    use super::{of_chinese, without_prose, without_rate};

    #[test]
    fn a_chinese_sentence_has_one_number() {
        for (line, number) in [
            ("她每天赚18元", Some("18元")),
            ("小明一共需要18元", Some("18元")),
            ("小于18", None),
            ("约18元", Some("18元")),
            ("共18种", Some("18种")),
            ("18（元）", Some("18元")),
            ("18 (元)", Some("18元")),
            ("一共有18个苹果。", Some("18个苹果")),
            ("18万元", Some("18万元")),
            ("18个或20个", None),
            ("不是18", None),
            ("至少18个", None),
            ("18 dollars", None),
            ("18的倍数", None),
            ("十八", None),
        ] {
            assert_eq!(of_chinese(line).as_deref(), number, "{line}");
        }
    }

    #[test]
    fn an_amount_may_be_for_each_of_some_things() {
        for (line, amount) in [
            ("$18/day", Some("$18")),
            ("**$18** per day", Some("$18")),
            ("18** a week", Some("18")),
            ("18/x", None),
            ("x per day", None),
            ("18 per 9 eggs", None),
        ] {
            assert_eq!(without_rate(line), amount, "{line}");
        }
    }

    #[test]
    fn an_announced_answer_is_read_without_prose() {
        for (line, cut) in [
            ("7 apples", Some("7")),
            ("7, because 3+4=7", Some("7")),
            ("7 apples since 3 and 4 make 7", Some("7")),
            ("7** apples", Some("7")),
            ("7 of the apples", Some("7")),
            ("7 (the smallest one)", Some("7")),
            ("$\\frac{1}{2}$ of them", Some("$\\frac{1}{2}$")),
            ("3 and 4 respectively", Some("3 and 4")),
            ("x+1 where x is odd", Some("x+1")),
            ("2 million people", Some("2 million")),
            ("2 pi metres", Some("2 pi")),
            ("18 cookies left over", Some("18")),
            ("12 fewer apples than Tom", Some("12")),
            ("2 sqrt(3)", None),
            ("2 million", None),
            ("2 and a half", None),
            ("5 cm", None),
            ("\\text{7 apples}", None),
            ("5\\text{ apples}", None),
            ("Monday the 7th", None),
            ("B because of 4 reasons", None),
            ("2 \\alpha", None),
        ] {
            assert_eq!(without_prose(line), cut, "{line}");
        }
    }

    #[test]
    fn words_that_change_a_number_are_not_cut_off() {
        for line in [
            "3 times 5",
            "1 over 2",
            "5 factorial",
            "10 choose 3",
            "5 squared",
            "3 fifths",
            "2 hours and 30 minutes",
            "3 (when x>0) or 5 (when x<0)",
            "7 is wrong",
            "7 apples or pears",
            "5 as well as 6",
            "7 unless it rains",
            "4 divided by three",
            "10 percent of them",
            "5 groups of dozens",
            "5 fewer than twenty",
        ] {
            assert_eq!(without_prose(line), None, "{line}");
        }
    }
}
