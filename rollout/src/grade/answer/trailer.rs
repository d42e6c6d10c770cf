//! Removes what stands behind an answer and is none: citations, footnotes, sources, remarks about
//! the text itself.

/// Names of lines and brackets that speak of the text and not of the answer.
const ABOUT: [&str; 12] = [
    "source",
    "sources",
    "reference",
    "references",
    "citation",
    "citations",
    "confidence",
    "confidence score",
    "see also",
    "note",
    "assumption",
    "sanity check",
];
/// Words of a line that gives an answer, even under the name of a remark.
const ANSWERS: [&str; 5] = ["answer", "boxed", "####", "答案", "should be"];
/// Words with which brackets refer to another place.
const REFERRING: [&str; 12] = [
    "source",
    "sources",
    "see",
    "cf",
    "ref",
    "step",
    "confidence",
    "by",
    "from",
    "using",
    "page",
    "note",
];
/// Words behind those that name a place.
const PLACES: [&str; 14] = [
    "step", "steps", "part", "equation", "eq", "page", "table", "figure", "section", "line", "problem", "chapter",
    "case", "theorem",
];
/// Most trailers that are removed.
const MOST: usize = 16;
/// Most bytes of a check at the end.
const CHECK: usize = 600;
/// Most bytes of a line or of brackets.
const NEAR: usize = 160;

/// Returns a text without citations, sources and remarks at its end.
pub(in crate::grade) fn without_trailer(text: &str) -> &str {
    let mut kept = text;
    for _ in 0..MOST {
        let end = kept.trim_end();
        let Some(shorter) = without_line(end)
            .or_else(|| without_citation(end))
            .or_else(|| without_reference(end))
            .or_else(|| without_check(end))
            .or_else(|| without_offer(end))
            .or_else(|| without_confidence(end))
        else {
            return kept;
        };
        kept = shorter;
    }
    kept
}

/// Beginnings of a last paragraph that offers help.
const OFFERS: [&str; 7] = [
    "would you like",
    "let me know",
    "feel free",
    "do you want me",
    "if you have any",
    "if you need",
    "do you need",
];
/// Words at the end of what a text says of its own certainty.
const CERTAIN: [&str; 5] = ["confidence", "confident", "sure", "certain", "certainty"];
/// Beginnings of such words.
const SURE: [&str; 6] = [" with ", ", i'm ", ", i am ", ". i'm ", ". i am ", " (i'm "];

/// Returns a text without a last paragraph that only offers help.
fn without_offer(text: &str) -> Option<&str> {
    let (before, line) = text.rsplit_once("\n\n")?;
    let lower = line.to_lowercase();
    let offers = OFFERS
        .iter()
        .any(|words| lower.trim_start_matches(['*', '_']).starts_with(words));
    let other = ANSWERS.iter().any(|word| lower.contains(word)) || lower.contains(['=', '\\']);
    (offers && !other && line.len() <= NEAR && before.contains(|c: char| c.is_alphanumeric())).then_some(before)
}

/// Returns a text without words at its end that say how certain it is: `with 90% confidence`.
fn without_confidence(text: &str) -> Option<&str> {
    let near = text.floor_char_boundary(text.len().saturating_sub(NEAR));
    let lower = text[near..].trim_end_matches(['.', '!', ')', '*']).to_ascii_lowercase();
    let certain = CERTAIN.iter().any(|word| lower.ends_with(word));
    let at = SURE.iter().filter_map(|words| lower.rfind(words)).max()?;
    let said = lower[at..].contains('%') && lower[at..].len() <= 32 && certain;
    said.then(|| &text[..near + at + usize::from(lower[at..].starts_with('.'))])
}

/// Beginnings of a last paragraph that checks the answer above it.
const CHECKS: [&str; 12] = [
    "verification",
    "verifying",
    "check:",
    "check -",
    "checking",
    "double-check",
    "let me verify",
    "let's verify",
    "let us verify",
    "let me check",
    "let's check",
    "we can verify",
];
/// Words with which a check takes the answer back or goes on to a new one.
const RETRACTING: [&str; 13] = [
    "wait",
    "wrong",
    "not",
    "n't",
    "mistake",
    "oops",
    "incorrect",
    "actually",
    "thus",
    "hence",
    "therefore",
    "✗",
    "❌",
];

/// Returns a text without the paragraphs at its end that only check the answer above them.
fn without_check(text: &str) -> Option<&str> {
    let near = text.floor_char_boundary(text.len().saturating_sub(CHECK));
    let mut starts = text[near..].rmatch_indices("\n\n").map(|(at, _)| near + at);
    let at = starts.find(|at| {
        let begun = text[*at..].trim_start_matches(|c: char| c.is_whitespace() || "*#_✅>".contains(c));
        let begun = begun[..begun.floor_char_boundary(16)].to_lowercase().replace('’', "'");
        CHECKS.iter().any(|words| begun.starts_with(words))
    })?;
    let (before, check) = (&text[..at], text[at..].to_lowercase().replace('’', "'"));
    let answered = before
        .trim_end()
        .rsplit("\n\n")
        .next()?
        .contains(|c: char| c.is_ascii_digit());
    let computes = check.contains(['=', '≈', '✓', '✔']);
    let other = ANSWERS.iter().chain(&RETRACTING).any(|word| check.contains(word));
    (answered && computes && !other).then_some(before)
}

/// Returns a text without the citation at its end: `18 [1]`, `18.【1】`, `18 [^1]`. Brackets around
/// a number may be an answer too: then no number stands before them on their line.
pub(in crate::grade) fn without_citation(text: &str) -> Option<&str> {
    let forms = [("\\[", "\\]"), ("[^", "]"), ("[", "]"), ("【", "】")];
    let (before, digits) = forms
        .iter()
        .find_map(|(open, close)| text.strip_suffix(*close)?.rsplit_once(*open))?;
    let number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let kept = before.trim_end();
    let line = kept.rsplit('\n').next().unwrap_or(kept);
    let letter = line.chars().filter(|c| c.is_alphanumeric()).count() == 1;
    let said = letter || line.contains(|c: char| c.is_ascii_digit());
    let below = before.ends_with('\n') && kept.ends_with(['.', '!', '*', ']']);
    let apart = before.ends_with([' ', '.', ',', '*', '$', ')', ']']) || before.ends_with(|c: char| c.is_ascii_digit());
    // `It returns [8]` names a list.
    let named = kept.trim_end_matches('*').ends_with(char::is_alphabetic) && !letter;
    let joined = named || line.ends_with(['=', '+', '-', '*', '/', ':', ',', '(']) && !line.ends_with("**");
    (number && !joined && (below || (said && apart))).then_some(kept)
}

/// Returns a text without brackets at its end that refer to another place: `(see step 2)`.
fn without_reference(text: &str) -> Option<&str> {
    let inside = text.trim_end_matches(['.', '*']).strip_suffix(')')?;
    let (before, content) = inside.rsplit_once('(')?;
    let content = content.to_ascii_lowercase();
    let mut words = content
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty());
    let (first, second) = (words.next()?, words.next().unwrap_or_default());
    let named = content
        .strip_prefix(first)
        .is_some_and(|rest| rest.starts_with([':', '.', ' ']));
    let own = ["source", "sources", "see", "cf", "ref", "confidence"].contains(&first) || content.starts_with("note:");
    let refers = REFERRING.contains(&first) && named && (own || PLACES.contains(&first) || PLACES.contains(&second));
    let apart = before.is_empty() || before.ends_with([' ', '\n', '*', '.']);
    (refers && apart && content.len() <= NEAR && !content.contains('=')).then(|| before.trim_end())
}

/// Returns a text without a last line that is a footnote or a remark: `[1] Smith 2004`,
/// `Confidence: 95%`.
fn without_line(text: &str) -> Option<&str> {
    let (before, line) = text.rsplit_once('\n')?;
    let line = line.trim_matches([' ', '*', '_', '#', '>', '-']);
    let footnote = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .is_some_and(|(number, note)| {
            let number = number.trim_start_matches('^');
            let digits = (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
            let cited = || {
                before.contains(&format!("[{number}]"))
                    || before.trim_end().ends_with(':')
                    || number.len() < line.find(']').unwrap_or(0) - 1
            };
            digits && note.trim_start_matches(':').starts_with(' ') && note.contains(char::is_alphabetic) && cited()
        });
    let name = line.split([':', '：']).next().unwrap_or(line);
    let remark = ABOUT.contains(&name.trim_matches(['*', '_', ' ']).to_lowercase().as_str());
    let remark = remark && !ANSWERS.iter().any(|word| line.to_lowercase().contains(word));
    let above = before.contains(|c: char| c.is_ascii_alphanumeric());
    (line.len() <= NEAR && above && (footnote || (remark && line.len() > name.len()) || is_heading(line, name)))
        .then_some(before)
}

/// Returns true for a heading above footnotes: `References:`.
fn is_heading(line: &str, name: &str) -> bool {
    let name = name.trim_matches(['*', '_', ' ']).to_lowercase();
    ["references", "sources", "citations"].contains(&name.as_str())
        && line.trim_matches(['*', ':', ' ']).len() <= name.len()
}

#[cfg(test)]
mod tests {
    use super::without_trailer;

    #[test]
    fn citations_and_remarks_are_no_part_of_an_answer() {
        for text in [
            "He has 18 apples.[1]",
            "He has 18 apples. [1][2]",
            "He has 18 apples.\n\n[1]",
            "He has 18 apples. (source: 2)",
            "He has 18 apples.\n\nSource: 2",
            "He has 18 apples. [^1]\n\n[^1]: See page 4.",
            "He has 18 apples.\n\nReferences:\n[1] Smith 2004",
            "He has 18 apples. (see step 2)",
            "He has 18 apples. (by equation 3)",
            "He has 18 apples.\n\n**Confidence:** 95%",
            "He has 18 apples.\n\n(Note: I assumed 4 weeks per month.)",
            "He has 18 apples.\n\n*Note: I assumed 4 weeks per month.*",
            "He has 18 apples.\n\nVerification: 18 apples × 2 = 36 halves.",
            "He has 18 apples.\n\n**Verification:**\n\n18 apples × 2 = 36 halves ✓",
            "He has 18 apples.\n\nLet me verify: 18 × 2 = 36, which matches.",
            "He has 18 apples.\n\nCheck: 18 × 2 = 36, so it works.",
            "He has 18 apples.\n\nWould you like me to explain step 2 further?",
            "He has 18 apples.\n\nLet me know if you need help with the other 2 questions!",
            "He has 18 apples. I'm 100% sure.",
            "He has 18 apples. with 90% confidence",
        ] {
            assert_eq!(without_trailer(text).trim_end(), "He has 18 apples.", "{text}");
        }
        for text in [
            "[1]",
            "The answer is [5]",
            "The solution is:\n\n[1]",
            "It is 2 + [3]",
            "Time: 5 hours",
            "So it takes\nTime: 5",
            "The sum is 18 (from 1 to 5)",
            "The answer is 18 (by far)",
            "f(x) = 3\n[1, 2]",
            "He has 17 apples.\n\nCheck: 17 × 2 = 34. Wait, it must be 36, so 18.",
            "He has apples.\n\nCheck: 9 × 2 = 18",
            "He has apples.\nNote: the answer is 18",
            "He has apples.\nNote: it should be 18",
            "x (\u{118c3}see 2)",
        ] {
            assert_eq!(without_trailer(text), text, "{text}");
        }
    }
}
