//! Reads numbers in other bases. They are names, not values: `1011_2` is not 11, because the
//! question asks for the digits.

/// Names of bases.
const NAMES: [(&str, &str); 15] = [
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
    ("eleven", "11"),
    ("twelve", "12"),
    ("sixteen", "16"),
    ("bin", "2"),
    ("oct", "8"),
    ("hex", "16"),
];
/// The most digits of such a number.
const MOST: usize = 128;

/// Returns the number of a base that may be a word.
pub(super) fn named(base: &str) -> String {
    let base = base.trim_matches(['(', ')', ' ']);
    let known = NAMES.iter().find(|(name, _)| *name == base);
    known.map_or(base, |(_, number)| number).to_owned()
}

/// Returns the digits and the base of a text that is a number in a base: `(1011)_2`, `1F_{16}`,
/// `1011 (base 2)`.
pub(super) fn based(text: &str) -> Option<String> {
    if text.len() > MOST || !(text.contains('_') || text.contains("base") || text.contains('₂')) {
        return None;
    }
    let mut plain = text.to_owned();
    for look in [
        "\\displaystyle",
        "\\left",
        "\\right",
        "\\text",
        "\\mathrm",
        "\\ ",
        "\\,",
        "$",
        "{",
        "}",
        "~",
        "\\_",
    ] {
        plain = plain.replace(look, if look == "\\_" { "_" } else { "" });
    }
    let plain: String = plain.chars().filter(|c| !c.is_whitespace()).collect();
    let plain = plain.trim_end_matches('.');
    let (digits, base) = match plain.split_once('_') {
        Some(parts) => parts,
        None => {
            let (digits, base) = plain.split_once("base")?;
            (
                digits.trim_end_matches("in").trim_end_matches(['(', ',']),
                base.trim_end_matches(')'),
            )
        }
    };
    let inner = digits.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let digits = inner.unwrap_or(digits);
    let base = named(base.trim_start_matches("base"));
    let radix: u32 = base
        .parse()
        .ok()
        .filter(|radix| (2..=36).contains(radix) && *radix != 10)?;
    let valid = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    // `a_2` is a variable.
    let number = digits.len() > 1 || digits.starts_with(|c: char| c.is_ascii_digit());
    let number = number && digits.contains(|c: char| c.is_ascii_digit());
    (valid && number).then(|| format!("{}_{base}", digits.to_uppercase()))
}
