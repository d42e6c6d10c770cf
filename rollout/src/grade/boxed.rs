//! `\boxed{...}`: where mathematicians' answers stand.

/// The content of the last complete `\boxed{...}` or `\fbox{...}`, braces matched.
pub(super) fn last(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(at) = rest.rfind("\\boxed").max(rest.rfind("\\fbox")) {
        if let Some(content) = content(text, at) {
            return Some(content);
        }
        rest = &rest[..at];
    }
    None
}

/// The braces' content right behind the command at `at` of `text`.
fn content(text: &str, at: usize) -> Option<&str> {
    let open = at + text[at..].find('{')?;
    let name = text[at..open].trim_end();
    if name != "\\boxed" && name != "\\fbox" {
        return None;
    }
    let mut depth = 0usize;
    for (offset, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(&text[open + 1..open + offset]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}
