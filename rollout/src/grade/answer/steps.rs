//! Reads the numbers of steps and sections, which are no values: `Step 3:`, `2. Money`, `(4)`.

/// Names of steps, which are counted in a text.
const STEPS: [&str; 5] = ["step", "part", "case", "phase", "schritt"];
/// Names of sections, of which one text may hold a single one.
const SECTIONS: [&str; 6] = ["page", "problem", "question", "example", "exercise", "chapter"];
/// Signs around a number.
const SIGNS: &str = "#*_>([ ";

/// Returns true if one section of this name tells that its number is no value.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.contains(&name)
}

/// Returns the name and the number of a line that has no other number: `Step 3: Money`, `3.`. A
/// line without a name has an empty one.
pub(super) fn begun(line: &str) -> Option<(&'static str, u32)> {
    let (name, number, rest) = numbered(line)?;
    (!rest.contains(|c: char| c.is_ascii_digit())).then_some((name, number))
}

/// Returns true if a line of a text has this name and number.
pub(super) fn stands(text: &str, name: &str, number: u32) -> bool {
    let mut lines = text.lines().rev().filter_map(numbered);
    lines.any(|(other, found, _)| other == name && found == number)
}

/// Returns the name and the number at the beginning of a line, and what follows.
pub(super) fn numbered(line: &str) -> Option<(&'static str, u32, &str)> {
    let line = line.trim_start_matches(|c| SIGNS.contains(c));
    let letters = line.len() - line.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
    let word = line[..letters].to_ascii_lowercase();
    let name = STEPS
        .into_iter()
        .chain(SECTIONS)
        .chain([""])
        .find(|name| *name == word)?;
    let number = line[letters..].trim_start_matches([' ', '#', '*']);
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &number[..number.len() - rest.len()];
    let ends = rest.starts_with(['.', ')', ':', ']', '*']) || (rest.trim().is_empty() && !name.is_empty());
    let decimal = rest
        .get(1..)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let value = digits.parse().ok().filter(|_| digits.len() <= 2 && ends && !decimal)?;
    Some((name, value, rest))
}

/// Returns true if a solution begins here instead of an answer: `1. Lisa has 5 apples`, and `2.`
/// below. If `1.` stands below too, the list begins there, and the answer is 1.
pub(super) fn is_list_of_steps(text: &str) -> bool {
    let next = |first: &str, second: &str| text.starts_with(first) && text.contains(second);
    let again = ["\n1. ", "\n1) "].iter().any(|first| text.contains(first));
    !again && (next("1. ", "\n2. ") || next("1) ", "\n2) "))
}

/// Returns true if a list has one item, which is a number: `1. 18`.
pub(super) fn is_single_item(text: &str) -> bool {
    let item = text.lines().next().unwrap_or_default();
    item[3..].contains(|c: char| c.is_ascii_digit()) && !text.contains("\n1. ") && !text.contains("\n2. ")
}

#[cfg(test)]
mod tests {
    use super::{begun, numbered};

    #[test]
    fn the_number_of_a_step_is_read() {
        for (line, read) in [
            ("Step 3: Money", Some(("step", 3))),
            ("**Step 3:**", Some(("step", 3))),
            ("## Step 3", Some(("step", 3))),
            ("3.", Some(("", 3))),
            ("3) Therefore", Some(("", 3))),
            ("(3) So", Some(("", 3))),
            ("Page 2", Some(("page", 2))),
            ("Step 3: 9 * 2 = 18", None),
            ("3. 18", None),
            ("3.5", None),
            ("3", None),
            ("2024.", None),
            ("Steps 3", None),
            ("", None),
        ] {
            assert_eq!(begun(line), read, "{line}");
        }
        assert_eq!(numbered("2. 9 * 2 = 18"), Some(("", 2, ". 9 * 2 = 18")));
    }
}
