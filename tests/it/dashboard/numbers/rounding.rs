//! The rules by which pages round. The commands round in the same way.

use serde_json::Value;

/// Formats a mean or a reward: three decimals, or an exponent if it is tiny.
pub(super) fn real(value: f64) -> String {
    let size = value.abs();
    if size >= 10_000.0 {
        grouped(value)
    } else if size > 0.0 && size < 0.0005 {
        format!("{value:.1e}")
    } else {
        // Zero has no sign.
        format!("{:.3}", value + 0.0)
    }
}

/// Formats a count or a figure: whole numbers have no decimals.
pub(super) fn figure(value: f64) -> String {
    if value.fract() == 0.0 {
        grouped(value + 0.0)
    } else {
        real(value)
    }
}

/// Formats a gain or an advantage: its sign comes first.
pub(super) fn signed(value: f64) -> String {
    let sign = if value > 0.0 {
        "+"
    } else if value < 0.0 {
        "\u{2212}"
    } else {
        ""
    };
    format!("{sign}{}", real(value.abs()))
}

/// Formats a count of things, with their name.
pub(super) fn count(value: f64, name: &str) -> String {
    let end = if value == 1.0 { "" } else { "s" };
    format!("{} {name}{end}", figure(value))
}

/// Formats without decimals. Whole numbers of six digits or more have commas.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    if value < 100_000.0 || value.fract() != 0.0 {
        return digits;
    }
    let parts = digits.as_bytes().rchunks(3).rev();
    let parts: Vec<&str> = parts.map(|part| std::str::from_utf8(part).unwrap()).collect();
    parts.join(",")
}

/// Asserts that a drawn element has the value in this form, and its title the exact value.
pub(super) fn same(place: &str, drawn: &Value, value: &Value, form: impl Fn(f64) -> String) {
    let expected = value.as_f64().map_or_else(|| "\u{2013}".to_owned(), form);
    assert_eq!(drawn["text"], expected, "{place}: the command prints {value}");
    // Other titles explain the element.
    if let Ok(exact) = drawn["title"].as_str().unwrap().parse::<f64>() {
        assert_eq!(
            Some(exact),
            value.as_f64(),
            "{place}: the title differs from the command's value"
        );
    }
}

#[test]
fn rules_have_these_texts() {
    for (value, of_real, of_figure) in [
        (0.0625, "0.062", "0.062"),
        (-0.0, "0.000", "0"),
        (3.0, "3.000", "3"),
        (-0.000_12, "-1.2e-4", "-1.2e-4"),
        (99_999.0, "99999", "99999"),
        (1_234_567.0, "1,234,567", "1,234,567"),
        (12_345.75, "12346", "12346"),
    ] {
        assert_eq!((real(value).as_str(), figure(value).as_str()), (of_real, of_figure));
    }
    assert_eq!([0.25, -0.25, 0.0].map(signed), ["+0.250", "\u{2212}0.250", "0.000"]);
}
