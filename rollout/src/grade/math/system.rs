//! Reads systems of equations that stand in rows: `\begin{cases} x = 2 \\ y = 3 \end{cases}`.

/// Environments with rows.
const ROWS: [&str; 8] = [
    "cases", "dcases", "array", "aligned", "align", "align*", "gathered", "split",
];
/// Most rows.
const MOST: usize = 16;

/// Returns the rows as a list, if each gives the value of another variable: `x = 2, y = 3`. Rows
/// such as `2x = 10 \\ x = 5` are steps.
pub(super) fn listed(text: &str) -> Option<String> {
    if !text.contains("\\\\") {
        return None;
    }
    let text = text.trim().trim_end_matches('.');
    let text = text
        .strip_prefix("\\left\\{")
        .map_or(text, |inside| inside.trim_end().trim_end_matches("\\right"));
    let rows = inside(text.trim()).unwrap_or(text);
    let mut names = Vec::new();
    let mut list = Vec::new();
    for row in rows.split("\\\\").map(str::trim).filter(|row| !row.is_empty()) {
        let row = row.replace('&', "");
        let row = row.trim_end_matches([',', ';', '.', ' ']).trim_end_matches("\\quad");
        let (name, value) = row.split_once('=')?;
        if !is_variable(name.trim()) || value.trim().is_empty() || value.contains(['=', ',']) {
            return None;
        }
        names.push(name.trim().to_owned());
        list.push(format!("{} = {}", name.trim(), value.trim()));
    }
    names.sort_unstable();
    let several = (2..=MOST).contains(&names.len()) && names.windows(2).all(|pair| pair[0] != pair[1]);
    several.then(|| list.join(", "))
}

/// Returns what an environment with rows holds.
fn inside(text: &str) -> Option<&str> {
    let (name, rest) = text.strip_prefix("\\begin{")?.split_once('}')?;
    let rows = rest.strip_suffix(&format!("\\end{{{name}}}"))?;
    let columns = rows.strip_prefix('{').and_then(|rows| rows.split_once('}'));
    let rows = columns.filter(|_| name == "array").map_or(rows, |(_, rows)| rows);
    ROWS.contains(&name).then_some(rows)
}

/// Returns true for a letter that may have an index.
fn is_variable(name: &str) -> bool {
    let mut chars = name.chars();
    let letter = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    let index = chars.as_str();
    let inner = index.strip_prefix('_').map(|index| index.trim_matches(['{', '}']));
    letter && (index.is_empty() || inner.is_some_and(|index| index.chars().all(|c| c.is_ascii_alphanumeric())))
}

/// Returns the text with single backslashes, if its commands were escaped twice: `\\frac{1}{2}`.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut twice = text.match_indices("\\\\");
    let command = |at: usize| {
        text[at + 2..]
            .bytes()
            .take_while(u8::is_ascii_alphabetic)
            .nth(1)
            .is_some()
    };
    let escaped = text.contains("\\\\") && !text.contains("\\begin") && twice.all(|(at, _)| command(at));
    escaped.then(|| text.replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::{listed, unescaped};

    #[test]
    fn rows_of_different_variables_are_a_list() {
        for (rows, list) in [
            ("\\begin{cases} x = 2 \\\\ y = 3 \\end{cases}", Some("x = 2, y = 3")),
            (
                "\\begin{aligned} x &= 2, \\\\ y &= 3. \\end{aligned}",
                Some("x = 2, y = 3"),
            ),
            (
                "\\left\\{\\begin{array}{l} x_1=2 \\\\ x_2=3 \\\\ \\end{array}\\right.",
                Some("x_1 = 2, x_2 = 3"),
            ),
            ("x = 2 \\\\ y = 3", Some("x = 2, y = 3")),
            ("\\begin{aligned} x &= 3+4 \\\\ &= 7 \\end{aligned}", None),
            ("\\begin{aligned} 2x &= 10 \\\\ x &= 5 \\end{aligned}", None),
            ("\\begin{aligned} x &= 3 + 2 \\\\ x &= 5 \\end{aligned}", None),
            ("\\begin{cases} x & x>0 \\\\ -x & x \\le 0 \\end{cases}", None),
            ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", None),
            ("x = 2", None),
        ] {
            assert_eq!(listed(rows).as_deref(), list, "{rows}");
        }
    }

    #[test]
    fn commands_that_were_escaped_twice_are_commands() {
        for (text, plain) in [
            ("\\\\frac{1}{2}", Some("\\frac{1}{2}")),
            ("\\\\sqrt{2} + \\\\pi", Some("\\sqrt{2} + \\pi")),
            ("x \\\\ y", None),
            ("\\frac{1}{2}", None),
        ] {
            assert_eq!(unescaped(text).as_deref(), plain, "{text}");
        }
    }
}
