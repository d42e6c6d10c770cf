//! Reads the value of the last sentence of a text without a mark, where it is not the last number:
//! `So John is 45 miles from home at the end of those 4 hours.`

use super::phrase::{before_phrase, is_of_multiples};
use super::sentence::goes_on;
use super::text::LONGEST_ANSWER;
use super::{last, prose, sentence};
use crate::grade::math::Quantity;
use crate::grade::normal::minus;
use crate::grade::normal::names::PLAIN;

/// Words that make the amount before them a total.
const TOTALS: [&str; 3] = [" in all", " in total", " altogether"];
/// Words before the sentence.
const LEADING: [&str; 20] = [
    "so, ",
    "so ",
    "thus, ",
    "therefore, ",
    "hence, ",
    "hence ",
    "therefore ",
    "thus ",
    "finally, ",
    "in total, ",
    "in conclusion, ",
    "in the end, ",
    "in summary, ",
    "overall, ",
    "altogether, ",
    "as a result, ",
    "consequently, ",
    "ultimately, ",
    "this means ",
    "that means ",
];

/// Returns the value of the last sentence with a number, if the sentence has several numbers and
/// one value. The value is `None` if it says which thing is counted, but not by which number.
pub(crate) fn value(text: &str) -> Option<Option<&str>> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let stop = text[end..].find(['\n', '!', '?']).unwrap_or(text.len() - end);
    let stop = text[end..].find(". ").map_or(stop, |at| at.min(stop));
    let start = ["\n", ". ", "! ", "? "]
        .iter()
        .filter_map(|sign| Some(text[..end].rfind(sign)? + sign.len()));
    let start = start.max().unwrap_or(0);
    let line = text[start..end + stop].trim_matches([' ', '*', '#', '>', '.', '_']);
    if line.len() > LONGEST_ANSWER {
        return None;
    }
    let line = without_leading(line);
    if let Some(remainder) = remainder(line) {
        return Some(Some(remainder));
    }
    if let Some(value) = computed(line)
        .or_else(|| in_two_parts(line))
        .or_else(|| counted(line))
        .or_else(|| entry(line))
        .or_else(|| total(line))
    {
        return Some(Some(value));
    }
    let value = sentence::value(line)?;
    if let Some(whole) = in_two_parts(value).or_else(|| choice(value)) {
        return Some(Some(whole));
    }
    let digit = |c: char| c.is_ascii_digit() || ".,/".contains(c);
    let first = value
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .trim_start_matches(digit);
    let last = first.rfind(|c: char| c.is_ascii_digit())?;
    // Words stand between the numbers: `2 and 3`, `(2, 3)` and `2^{10}` are one value.
    let mut words = first[..last].split(|c: char| !c.is_alphabetic());
    let several =
        words.any(|word| word.chars().count() > 1 && !["and", "or"].contains(&word) && !PLAIN.contains(&word));
    let cut = prose::without_prose(value).filter(|cut| !cut.contains(['=', '<']));
    let plain = !value.contains(['=', '\\']) && !value.contains("$ ");
    (several && (plain || cut.is_some())).then_some(cut)
}

/// Returns the remainder with which a sentence ends, with its modulus and what has it: `3 (mod 7)`,
/// `17 ≡ 3 \pmod 7`.
fn remainder(line: &str) -> Option<&str> {
    let line = line.trim_end_matches(['$', '.', ' ']);
    let (before, behind) = line.rsplit_once("mod")?;
    let modulus = behind
        .trim_start_matches("ulo")
        .trim_matches([' ', '{', '}', '(', ')', '$']);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let before = before
        .trim_end_matches(['p', 'b'])
        .trim_end_matches([' ', '(', '{', '\\', '$']);
    let before = before
        .strip_suffix("\\text")
        .unwrap_or(before)
        .trim_end_matches([' ', '(', '{']);
    let word = |text: &str| text.rfind([' ', '$', '(']).map_or(0, |at| at + 1);
    let start = word(before);
    let known = number(modulus) && number(before[start..].trim_start_matches(minus::is_sign));
    // Several remainders may have one modulus: `x \equiv 2, 3 \pmod 7`.
    let rest = &before[..start];
    let whole = rest.rsplit_once("\\equiv").or_else(|| rest.rsplit_once('≡'));
    let joins = |word: &str| word.is_empty() || number(word) || ["or", "and", "text", "pm"].contains(&word);
    let whole = whole.filter(|(_, between)| between.split(|c: char| !c.is_alphanumeric()).all(joins));
    let start = whole.map_or(start, |(rest, _)| word(rest.trim_end()));
    // A remainder behind other numbers checks them: `n = 23, since 23 ≡ 2 (mod 3)`.
    let ahead = &line[..start];
    let computed = ahead.trim_end().ends_with(['=', '≡', '*', '×', '·', '+']) && !ahead.contains([',', '.', ':']);
    let checks = ["Indeed", "indeed", "Check", "check", "since", "because"]
        .iter()
        .any(|word| ahead.contains(word));
    let first = !checks && !ahead.contains(|c: char| c.is_ascii_digit()) && !ahead.contains("mod");
    (known && (first || computed)).then(|| &line[start..])
}

/// Removes words before a sentence: `So, in the end, `.
fn without_leading(mut line: &str) -> &str {
    let begins = |line: &str, words: &str| {
        line.get(..words.len())
            .is_some_and(|begun| begun.eq_ignore_ascii_case(words))
    };
    while let Some(words) = LEADING.iter().find(|words| begins(line, words)) {
        line = &line[words.len()..];
    }
    line
}

/// Returns the number before an equals sign and a computation that gives it: the `18` of
/// `She makes $18 = 9 × $2 per day`.
fn computed(line: &str) -> Option<&str> {
    let (before, behind) = line.rsplit_once(" = ")?;
    let number = last::number(before).filter(|number| before.ends_with(number))?;
    let sign = |c: char| "+*/×·÷^".contains(c) || minus::is_sign(c);
    let end = behind.find(char::is_alphabetic).unwrap_or(behind.len());
    let computation = behind[..end].replace('$', "");
    let computes = computation.trim_start().contains(sign);
    let same = || Some(Quantity::read(number)?.is_same(&Quantity::read(computation.trim())?));
    (computes && same()?).then_some(number)
}

/// Returns the amount with which a sentence begins, if other numbers stand only in a phrase at its
/// end: `90 pens were sold during the 6 days`.
fn counted(line: &str) -> Option<&str> {
    let verb = |said: &str| said.split(' ').any(|word| ["were", "was", "are", "is"].contains(&word));
    let digit = |c: char| c.is_ascii_digit() || c == ',';
    let part = line.trim_start_matches(digit);
    let whole = [" of the ", " out of the ", " of these ", " of his ", " of her "]
        .iter()
        .find_map(|words| part.strip_prefix(words))
        .filter(|_| part.len() < line.len());
    // Only the whole may have a number: `3 of the 12 eggs are broken leaving 9` ends with the
    // answer.
    let others = whole.map(|whole| without_multiples(whole.trim_start_matches(digit)));
    if others.is_some_and(|said| verb(said) && !said.contains(|c: char| c.is_ascii_digit())) {
        return Some(&line[..line.len() - part.len()]);
    }
    let said = before_phrase(line).filter(|said| said.len() < line.len())?;
    let number = last::number(said).filter(|number| said.starts_with(number))?;
    let others = line[said.len()..].contains(|c: char| c.is_ascii_digit());
    (others && verb(said)).then_some(number)
}

/// Returns the amount of an entry of a list, without the phrase behind it: `Cost: $84 for 7
/// tickets`.
fn entry(line: &str) -> Option<&str> {
    let (name, amount) = line.split_once(": ")?;
    let number = amount.trim_start_matches(['*', ' ', '$', '\\']);
    let named = name.chars().all(|c| c.is_alphabetic() || c == ' ') && number.starts_with(|c: char| c.is_ascii_digit());
    before_phrase(amount).filter(|cut| named && cut.len() < amount.len())
}

/// Returns the total that a sentence names, if only its purpose stands behind it: `a total of $990
/// for the 5 days at $12 an hour`, `$84 in all for the 7 tickets at $12 each`.
fn total(line: &str) -> Option<&str> {
    let digit = |c: char| c.is_ascii_digit() || ",.".contains(c);
    let number = |text: &str| {
        let signs = text.len() - text.trim_start_matches(['$', '*', '€', '£']).len();
        let digits = text[signs..].find(|c| !digit(c)).unwrap_or(text.len() - signs);
        signs + digits
    };
    let named = line
        .rsplit_once(" total of ")
        .map(|(_, behind)| (behind, number(behind)));
    let first = line
        .starts_with(|c: char| c.is_ascii_digit() || c == '$')
        .then(|| (line, number(line)));
    let first = first.filter(|(line, end)| TOTALS.iter().any(|words| line[*end..].starts_with(words)));
    let (text, end) = named.or(first)?;
    let behind = TOTALS
        .iter()
        .find_map(|words| text[end..].strip_prefix(words))
        .unwrap_or(&text[end..]);
    let purpose = [" for the ", " for all ", " over the ", " for his ", " for her "]
        .iter()
        .any(|words| behind.starts_with(words));
    let plain = !behind.contains(['=', ',', ';', ':'])
        && !behind.contains("total")
        && !behind.contains(" and ")
        && !goes_on(behind);
    let value = text[..end].trim_end_matches(['.', ',']);
    (purpose && plain && value.ends_with(|c: char| c.is_ascii_digit())).then_some(value)
}

/// Returns an amount of money in two parts: `85 dollars and 50 cents`.
fn in_two_parts(value: &str) -> Option<&str> {
    let start = value.find(" cent")? + 1;
    let unit = value[start..].split(|c: char| !c.is_alphabetic()).next()?;
    let amount = ["cent", "cents"]
        .contains(&unit)
        .then(|| &value[..start + unit.len()])?;
    let parts = amount.contains(" dollar") || amount.contains(" euro") || amount.contains('$');
    Quantity::read(amount).filter(|_| parts).map(|_| amount)
}

/// Returns a binomial coefficient that a sentence leaves uncomputed: `6 choose 2`.
fn choice(value: &str) -> Option<&str> {
    let (n, rest) = value.split_once(" choose ")?;
    let k = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let alone = number(n) && k > 0 && !rest[k..].contains(|c: char| c.is_ascii_digit());
    alone.then(|| &value[..n.len() + " choose ".len() + k])
}

/// Returns a text without the numbers at its end that say what is counted: `divisible by 3 or 5`.
fn without_multiples(text: &str) -> &str {
    let at = ["divisible by ", "multiples of "]
        .iter()
        .find_map(|words| text.find(words));
    let at = at.filter(|at| is_of_multiples(&text[*at..]));
    at.map_or(text, |at| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn the_value_of_a_sentence_may_stand_before_other_numbers() {
        for (text, found) in [
            (
                "180 - 135 = 45.\nSo John is 45 miles away after the first 4 hours.",
                Some(Some("45")),
            ),
            ("Janet makes $18 from the 9 eggs.", Some(Some("$18"))),
            ("It takes him 7 days to read 84 pages.", Some(None)),
            ("She makes $18 = 9 × $2 per day.", Some(Some("18"))),
            ("She makes $19 = 9 × $2 per day.", None),
            ("So, in the end, Tom sold 90 pens over the 6 days.", Some(Some("90"))),
            ("Tom sold 3 pens; Ann sold 15.", None),
            ("In total, 90 pens were sold during the 6 days.", Some(Some("90"))),
            ("So there are 9 * 2 = 18 eggs.", None),
            ("She has 18 eggs.", None),
            ("Cost: $84 for 7 tickets.", Some(Some("$84"))),
            (
                "He paid 85 dollars and 50 cents.",
                Some(Some("85 dollars and 50 cents")),
            ),
            ("There are 6 choose 2 ways.", Some(Some("6 choose 2"))),
            ("There are 6 choose 2 = 15 ways.", None),
            (
                "Tina makes a total of $990 for the 5 days she worked 10 hours each.",
                Some(Some("$990")),
            ),
            ("So $84 in all for the 7 tickets at $12 each.", Some(Some("$84"))),
            ("4 out of the 20 cookies are left.", Some(Some("4"))),
            ("85 dollars and 0 cents", Some(Some("85 dollars and 0 cents"))),
            ("He paid $15 and 20 cents.", Some(Some("$15 and 20 cents"))),
            ("3 shirts cost $45.", None),
            ("The roots are 2 and 3.", None),
            ("The point is (2, 3).", None),
            ("It is 2^{10}.", None),
        ] {
            assert_eq!(value(text), found, "{text}");
        }
    }
}
