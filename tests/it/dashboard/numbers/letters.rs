//! Numbers of the dead letters.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rounding::figure;
use crate::dashboard::chromium::Browser;

/// Reads each letter: the size of its message, its failures, and the time of the first one.
const ROWS: &str = "[...document.querySelectorAll('table[aria-label=\"Dead letters\"] tbody tr')].map((row) =>
  [row.querySelector('details summary'), ...[...row.children].slice(-2)].map((part) => part.textContent))";

/// Reads the number of letters of each class. A class with a forged name is drawn with escapes.
const CLASSES: &str = "[...document.querySelectorAll('main .tools .chip')].map((chip) => chip.textContent)
  .filter((text) => /^\\w+ \\d+$/.test(text))";

/// Compares all letters of an open page with those that `dyad tasks dead --json` prints.
pub(crate) fn letters(browser: &mut Browser, printed: &[Value]) {
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    let expected = printed.iter().map(|one| {
        let text = |key: &str| one[key].as_str().unwrap_or_else(|| panic!("{key}: {one}"));
        *classes.entry(text("class")).or_default() += 1;
        let failures = one["attempts"].as_f64().unwrap();
        let first = text("first")[..19].replace('T', " ");
        let size = format!("the message, {}", bytes(one["bytes"].as_f64().unwrap()));
        [size, figure(failures), first]
    });
    let expected: Vec<[String; 3]> = expected.collect();
    assert_eq!(browser.value(ROWS), serde_json::json!(expected));
    let classes = classes
        .iter()
        .filter(|(name, _)| name.chars().all(char::is_alphanumeric));
    let classes: Vec<String> = classes.map(|(name, count)| format!("{name} {count}")).collect();
    assert_eq!(browser.value(CLASSES), serde_json::json!(classes));
}

/// Formats a size. A value in the middle of two is rounded up.
fn bytes(size: f64) -> String {
    if size < 1024.0 {
        return format!("{size} B");
    }
    format!("{:.1} KiB", (size / 1024.0 * 10.0 + 0.5).floor() / 10.0)
}
