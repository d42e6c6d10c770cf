//! Reads a judge's value from words if no object has it: the value after `name:` or `name=`.
//!
//! Words are a guess, so they count only if nothing contradicts them. All mentions must have the
//! same value, and at least one must be of the name itself: `Style score: 7` is not about `score`.
//! Everything else is left unread, and the caller asks again.

/// Signs that may stand around a name and its value.
const MARKS: [char; 6] = ['"', '\'', '*', '`', ' ', '\t'];
/// Words before a name that do not change what it names.
const HARMLESS: [&str; 5] = ["the", "my", "so", "final", "overall"];
/// Bytes before a name that are searched for words that change it.
const LOOKED_BACK: usize = 256;
/// Bytes before a name that are searched for the object around it, if that object was not read
/// whole.
const BRACES_BACK: usize = 4096;

/// Returns the value on which all mentions of `name` in `text` agree, in any case. Names among
/// `others` that end with `name` are not mentions of it. `read` receives the text after the sign,
/// in lower case and without marks. If it returns `None`, there is no agreement.
pub(crate) fn agreed<T: PartialEq>(
    text: &str,
    name: &str,
    others: &[&str],
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let (text, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let longer: Vec<String> = others.iter().map(|other| other.to_ascii_lowercase()).collect();
    let (mut said, mut is_own) = (None, false);
    for (at, _) in text.match_indices(&name) {
        let (before, named) = (&text[..at], &text[..at + name.len()]);
        let Some(value) = behind_sign(&text[named.len()..]) else {
            continue;
        };
        let of_other = longer
            .iter()
            .any(|other| other.len() > name.len() && named.ends_with(other.as_str()));
        if of_other || before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_') {
            continue;
        }
        let value = read(value)?;
        if said.as_ref().is_some_and(|earlier| *earlier != value) {
            return None;
        }
        said = Some(value);
        is_own = is_own || stands_alone(before);
    }
    said.filter(|_| is_own)
}

/// Returns the text after the colon or equals sign at the beginning of a text.
fn behind_sign(text: &str) -> Option<&str> {
    let value = text.trim_start_matches(MARKS).strip_prefix([':', '='])?;
    Some(value.trim_start_matches(MARKS))
}

/// Returns true if the name after this text stands alone: it begins a line or a sentence, or
/// follows another value.
fn stands_alone(before: &str) -> bool {
    let line = end_of(before, LOOKED_BACK)
        .rsplit(['\n', '\r'])
        .next()
        .unwrap_or_default();
    // A name in quotes is the key of an object that was not read whole.
    let is_key = line.ends_with(['"', '\'']);
    if is_inside_of_another(before, is_key) {
        return false;
    }
    let line = line.trim_end_matches(MARKS);
    if let Some(values) = line.strip_suffix(',') {
        return is_key
            || values
                .trim_end_matches(MARKS)
                .ends_with(|last: char| last.is_ascii_digit());
    }
    if is_key && line.ends_with('{') {
        return true;
    }
    if line.ends_with(['.', '!', '?', ';']) {
        return true;
    }
    let ends = [". ", "! ", "? ", "; "].into_iter();
    let begin = ends.filter_map(|end| line.rfind(end).map(|at| at + end.len())).max();
    let words = line[begin.unwrap_or(0)..].split(|letter: char| !letter.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .all(|word| HARMLESS.contains(&word) || word.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Returns true if the object around a name is a value of another object or of a list, because then
/// the name is about that value alone. If the object begins too far back, a key counts as such.
/// Brackets do not count: `[0, 1)` is an interval.
fn is_inside_of_another(before: &str, is_key: bool) -> bool {
    let near = end_of(before, BRACES_BACK);
    let (mut closed, mut open, mut begin) = (0usize, 0usize, None);
    for (at, mark) in near.rmatch_indices(['{', '}']) {
        if mark == "}" {
            closed += 1;
        } else if closed > 0 {
            closed -= 1;
        } else {
            open += 1;
            begin = begin.or(Some(at));
        }
    }
    let is_value = begin.is_some_and(|at| is_place_of_a_value(near[..at].trim_end()));
    let is_cut = is_key && open == 0 && near.len() < before.len();
    open > 1 || is_value || is_cut
}

/// Returns true if an object after this text is the value of a key or an element of a list.
fn is_place_of_a_value(before: &str) -> bool {
    let behind = |sign, last| {
        before
            .strip_suffix(sign)
            .is_some_and(|text| text.trim_end().ends_with(last))
    };
    behind(':', '"') || before.ends_with('[') || behind(',', '}')
}

/// Returns the end of a text, at most this many bytes.
fn end_of(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Returns the number at the beginning of a text. It must stand alone: more words after it, or a
/// longer expression, give `None`.
pub(super) fn number(value: &str) -> Option<f64> {
    let digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let sign = value.strip_prefix(['-', '+']).map_or(0, |_| 1);
    let length = sign
        + value[sign..]
            .find(|letter| !digit(letter))
            .unwrap_or(value.len() - sign);
    // The full stop of a sentence.
    let number = value[..length].trim_end_matches('.');
    let behind = value[length..].trim_start_matches(|letter| MARKS.contains(&letter) || letter == '.');
    // A comma before a digit is part of the number.
    let goes_on = behind
        .strip_prefix(',')
        .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()));
    let alone = behind.is_empty() || behind.starts_with(['\n', '\r', ',', ';', '}', ']', ')']) && !goes_on;
    number.parse().ok().filter(|number: &f64| alone && number.is_finite())
}

/// Returns the `true` or `false` at the beginning of a text.
pub(crate) fn boolean(value: &str) -> Option<bool> {
    let value = value.trim_start_matches(['\n', '\r']).trim_start_matches(MARKS);
    let word = value.split(|letter: char| !letter.is_ascii_alphanumeric()).next()?;
    match word {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(said: &str) -> Option<f64> {
        agreed(said, "score", &["score"], number)
    }

    #[test]
    fn a_score_that_is_asked_for_is_read() {
        for said in [
            "score: 7",
            "Score = 7.0.",
            "**Score:** 7",
            "`score`: 7",
            "- Score: **7**",
            "Score: \"7\". \nThat is all.",
            "## Score: 7",
            "1. Score: 7",
            "2) score: 7",
            "{score: 7}",
            "(score: 7)",
            "My score: 7",
            "So the final score: 7",
            "Overall score: 7",
            "It is short. Score: 7",
            "Is it short? It is! My score: 7",
            "Style: 3, score: 7",
            "score: 7\nyes, score: 7.",
            "Score: 7\nStyle score: 7",
            "the score is the sum of all\nscore: 7",
            "{\"why\": \"cut, \"score\": 7, \"more\": \"",
            "see: {\"score\": 7, \"why\": \"",
            "Well, {\"score\": 7, \"why\": \"",
            "{\n  \"why\": \"short\",\n  \"score\": 7,\n  \"more\": \"",
            "{\n  \"style\": {\"mark\": 3},\n  \"score\": 7,\n  \"more\": \"",
            "{\"why\": \"\\frac{1}{2} of [0, 1]\",\n  \"score\": 7,\n  \"more\": \"",
            "\"score\": 7,\n\"more\": \"",
            "x lies in [0, 1) or in [2, 3).\nScore: 7",
            "f maps [0,1) to [0,2), so it fails.\n**Score:** 7",
            "{\"why\": \"on [0, 1) it holds\",\n \"score\": 7, \"more\": \"",
        ] {
            assert_eq!(score(said), Some(7.0), "{said}");
        }
        assert_eq!(score("score: -3"), Some(-3.0));
    }

    #[test]
    fn another_score_and_scores_that_differ_are_unread() {
        for said in [
            "Style score: 7",
            "style-score: 7",
            "**Style** score: 7",
            "Style: score: 7",
            "Style (score: 7)",
            "For style, score: 7",
            "Its style's score: 7",
            "It is good. The style score: 7",
            "{\"style\": {\"score\": 7, \"why\": \"",
            "{\"style\": {\"why\": \"terse\", \"score\": 7, \"more\": \"",
            "{\n  \"style\": {\n    \"score\": 7,\n    \"reason\": \"short and to",
            "\"style\": {\n  \"score\": 7,\n  \"reason\": \"short and to",
            "{\n  style: {\n    score: 7,\n    reason: short and to",
            "[{\"score\": 7, \"why\": \"",
            "[{\"score\": 3}, {\"score\": 7, \"why\": \"",
            "\"style\" : {\"score\": 7, \"why\": \"",
            "{\"parts\": [{\"score\": 3}, {\"score\": 7, \"why\": \"",
            "Style score: 7\nScore: 8",
            "Score: 8\nStyle score: 7",
            "Style score: good\nScore: 7",
            "score: 3\nno, score: 7",
            "score: 7, score: 8",
            "Score: 7\nScore: 7/10",
            "score: 0-10\nscore: 7",
            "score: none\nscore: 7",
            "score: 7,5",
            "underscore: 7",
            "under_score: 7",
            "scores: 7",
            "score 7",
            "a score of 7",
            "score:",
            "",
        ] {
            assert_eq!(score(said), None, "{said}");
        }
    }

    #[test]
    fn a_name_that_ends_with_another_is_its_own() {
        let names = ["score", "Style score"];
        let said = "Style score: 7\nScore: 3";
        assert_eq!(agreed(said, names[0], &names, number), Some(3.0));
        assert_eq!(agreed(said, names[1], &names, number), Some(7.0));
        assert_eq!(agreed("style score: 7, score: 3", names[0], &names, number), Some(3.0));
        assert_eq!(agreed("Style score: 7", names[0], &names, number), None);
    }

    #[test]
    fn truths_are_read_the_same_way() {
        let met = |said: &str| agreed(said, "met", &["met"], boolean);
        for (said, is_met) in [
            ("met: true", Some(true)),
            ("Met = **False**, since", Some(false)),
            ("'met':\n  True", Some(true)),
            ("met: true\nmet: true", Some(true)),
            ("met: true\nmet: false", None),
            ("almost met: true", None),
            ("met: truthfully", None),
            ("met: yes", None),
        ] {
            assert_eq!(met(said), is_met, "{said}");
        }
    }

    #[test]
    fn an_object_that_begins_too_far_away_says_nothing() {
        let cut = |more: usize| format!("{{\"why\": \"{}\",\n\"score\": 7,\n\"more\": \"", "é".repeat(more));
        assert_eq!(score(&cut(100)), Some(7.0));
        assert_eq!(score(&cut(1900)), Some(7.0));
        assert_eq!(score(&cut(2100)), None);
    }

    /// The search for words before a name is short, so this takes one pass.
    #[test]
    fn long_lines_cost_one_pass() {
        let said = format!("x {}", "a score: 7,".repeat(6000));
        assert_eq!(score(&said), None);
        assert_eq!(score(&format!("{said}\nscore: 7")), Some(7.0));
    }
}
