//! Reads the measure behind a number, to tell metres from kilometres where both sides name one.

use crate::grade::normal::words::COMMANDS;

/// Spellings of units, each list with the common spelling at its beginning.
const UNITS: [&[&str]; 24] = [
    &["in", "inch", "inches"],
    &["ft", "foot", "feet"],
    &["yd", "yard", "yards"],
    &["mi", "mile", "miles"],
    &["kg", "kgs"],
    &["lb", "lbs"],
    &["oz", "ounce", "ounces"],
    &["ton", "tons"],
    &["s", "sec", "secs"],
    &["min", "mins", "minute", "minutes"],
    &["h", "hr", "hrs", "hour", "hours"],
    &["day", "days", "d"],
    &["week", "weeks"],
    &["month", "months"],
    &["year", "years"],
    &["gallon", "gallons", "gal"],
    &["cup", "cups"],
    &["dollar", "dollars", "USD"],
    &["cent", "cents", "¢"],
    &["euro", "euros", "EUR", "€"],
    &["deg", "degree", "degrees", "°"],
    &["rad", "radian", "radians"],
    &[
        "°C",
        "° C",
        "celsius",
        "Celsius",
        "degrees Celsius",
        "° Celsius",
        "degrees C",
        "deg C",
    ],
    &[
        "°F",
        "° F",
        "fahrenheit",
        "Fahrenheit",
        "degrees Fahrenheit",
        "° Fahrenheit",
        "degrees F",
        "deg F",
    ],
];
/// Units that take a prefix: their symbols and their names in the singular.
const PREFIXED: [(&str, &[&str]); 18] = [
    ("m", &["meter", "metre"]),
    ("g", &["gram", "gramme"]),
    ("s", &["second"]),
    ("L", &["liter", "litre"]),
    ("N", &["newton"]),
    ("J", &["joule"]),
    ("W", &["watt"]),
    ("V", &["volt"]),
    ("A", &["ampere", "amp"]),
    ("K", &["kelvin"]),
    ("T", &["tesla"]),
    ("Hz", &["hertz"]),
    ("Pa", &["pascal"]),
    ("C", &["coulomb"]),
    ("F", &["farad"]),
    ("Ω", &["ohm"]),
    ("eV", &["electronvolt"]),
    ("mol", &["mole"]),
];
/// Prefixes of units.
const PREFIXES: [(&str, &str); 10] = [
    ("p", "pico"),
    ("n", "nano"),
    ("µ", "micro"),
    ("m", "milli"),
    ("c", "centi"),
    ("d", "deci"),
    ("k", "kilo"),
    ("M", "mega"),
    ("G", "giga"),
    ("T", "tera"),
];
/// Units that are quotients.
const QUOTIENTS: [(&str, &str); 3] = [("mph", "mi/h"), ("kph", "km/h"), ("kmh", "km/h")];
/// Spellings that leave something out, each with a unit that it may mean, and units of one size.
const SHORT: [(&str, &str); 12] = [
    ("deg", "°C"),
    ("deg", "°F"),
    ("deg", "C"),
    ("deg", "F"),
    ("C", "°C"),
    ("F", "°F"),
    ("C", "coulomb"),
    ("F", "farad"),
    ("cm^3", "mL"),
    ("dm^3", "L"),
    ("N/m^2", "Pa"),
    ("J/s", "W"),
];
/// Units by kind, each with its size in the smallest unit of its kind.
const SIZES: [&[(&str, f64)]; 7] = [
    &[
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
        ("day", 86_400.0),
        ("week", 604_800.0),
    ],
    &[("month", 1.0), ("year", 12.0)],
    &[("cent", 1.0), ("dollar", 100.0)],
    &[("in", 1.0), ("ft", 12.0), ("yd", 36.0), ("mi", 63_360.0)],
    &[("mm", 1.0), ("cm", 10.0), ("dm", 100.0), ("m", 1000.0), ("km", 1e6)],
    &[("mg", 1.0), ("g", 1000.0), ("kg", 1e6)],
    &[("mL", 1.0), ("cL", 10.0), ("dL", 100.0), ("L", 1000.0)],
];
/// Longest text that may be a number with its unit, in bytes.
const LONGEST: usize = 96;

/// Returns true if both texts are numbers with known units, and the units are not the same.
pub(crate) fn differ(a: &str, b: &str) -> bool {
    are_same(a, b) == Some(false)
}

/// Returns true if both texts name the same parts: `2 hours 15 minutes` and `2 h 15 min`.
pub(super) fn have_same_parts(a: &str, b: &str) -> bool {
    let numbers = |text| several(text).filter(|parts| parts.len() > 1);
    numbers(a).is_some_and(|a| Some(a) == numbers(b))
}

/// Returns the kind of the unit of an amount, and its size in the smallest unit of that kind.
pub(crate) fn amount(text: &str) -> Option<(usize, f64)> {
    let (number, unit) = parts(text)?;
    size(&number, &unit)
}

/// Returns true if two amounts have units of the same kind, and differ in size.
pub(crate) fn are_apart(a: &str, b: &str) -> bool {
    let amounts = amount(a).zip(amount(b));
    amounts.is_some_and(|((kind, a), (other, b))| kind == other && (a - b).abs() > 1e-9 * b.abs())
}

/// Returns the parts of an amount, each as a number and its unit.
fn several(text: &str) -> Option<Vec<(f64, String)>> {
    let plain = Some(plain(text))
        .filter(|_| text.len() <= LONGEST)?
        .replace(" and ", " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let read = |pair: &[&str]| match pair {
        [number, unit] => Some((number.replace(',', "").parse().ok()?, named(unit)?)),
        _ => None,
    };
    words.chunks(2).map(read).collect()
}

fn size(number: &str, unit: &str) -> Option<(usize, f64)> {
    let number: f64 = number.trim_matches([' ', '*']).replace(',', "").parse().ok()?;
    SIZES.iter().enumerate().find_map(|(kind, units)| {
        let (_, size) = units.iter().find(|(known, _)| *known == unit)?;
        Some((kind, number * size))
    })
}

/// Returns true if two numbers have the same unit, and `None` if a unit is not known.
pub(super) fn are_same(a: &str, b: &str) -> Option<bool> {
    let (a, b) = (of(a)?, of(b)?);
    Some(a == b || is_short_for(&a, &b) || is_short_for(&b, &a))
}

/// Returns true for a unit that leaves something out: `20°` may be `20°C`, and `5 F` farads.
fn is_short_for(one: &str, other: &str) -> bool {
    let behind = |text: &'_ str, unit: &str| text.strip_prefix(unit).map(str::to_owned);
    SHORT
        .iter()
        .any(|(short, long)| behind(one, short).is_some_and(|rest| Some(rest) == behind(other, long)))
}

/// Returns the unit of a number in its common spelling: `cm^2`, `km/h`. Returns `None` for anything
/// else.
pub(super) fn of(text: &str) -> Option<String> {
    parts(text).map(|(_, unit)| unit)
}

/// Returns the number of a temperature, `20` of `20 deg C`, and `None` for any other text.
pub(super) fn degrees(text: &str) -> Option<String> {
    let temperature = |unit: &String| ["C", "F", "°C", "°F"].contains(&unit.as_str()) && !text.contains(['=', '≈']);
    parts(text)
        .filter(|(_, unit)| temperature(unit))
        .map(|(number, _)| number)
}

/// Returns a number and its unit.
fn parts(text: &str) -> Option<(String, String)> {
    if text.len() > LONGEST || !text.contains(|c: char| c.is_alphabetic() || c == '$' || "°¢℃℉".contains(c)) {
        return None;
    }
    let plain = plain(text);
    let amount = |rest: &str| rest.contains(|c: char| c.is_ascii_digit()) && rest.chars().all(is_of_number);
    if let Some(rest) = plain.strip_prefix('$') {
        return amount(rest).then(|| (rest.to_owned(), "dollar".to_owned()));
    }
    let start = plain.find(|c: char| (c.is_alphabetic() && c != 'π') || c == '°' || c == '¢')?;
    let (number, unit) = plain.split_at(start);
    let unit = named(unit).filter(|_| amount(number))?;
    Some((number.to_owned(), unit))
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || " .,+-*^()/−π√".contains(c)
}

/// Removes the typesetting of a number and its unit, and the sides before the last one.
fn plain(text: &str) -> String {
    let text = text.replace("\\approx", "≈");
    let last = text.rsplit(['=', '≈']).next().unwrap_or_default();
    // A dollar sign that has no other is money, else it delimits formulas.
    let signs = text.matches('$').count();
    let mut plain = if last.contains("\\$") {
        last.replace("\\$", "¤").replace('$', "").replace('¤', "$")
    } else if signs == 1 {
        last.to_owned()
    } else {
        last.replace('$', "")
    };
    for command in COMMANDS {
        plain = plain.replace(command, "");
    }
    for (look, with) in [
        ("\\times", "*"),
        ("\\cdot", "*"),
        ("^\\circ", "°"),
        ("^{\\circ}", "°"),
        ("\\degree", "°"),
        ("\\mu", "µ"),
        ("μ", "µ"),
        ("µ ", "µ"),
        ("\\Omega", "Ω"),
        ("\\pi", "π"),
        ("\\sqrt", "√"),
        ("℃", "°C"),
        ("℉", "°F"),
        ("\\(", ""),
        ("\\)", ""),
        ("\\,", " "),
        ("\\;", " "),
        ("\\ ", " "),
        ("{,}", ","),
        ("{", ""),
        ("}", ""),
        ("~", " "),
        ("²", "^2"),
        ("³", "^3"),
        ("×", "*"),
        ("  ", " "),
    ] {
        plain = plain.replace(look, with);
    }
    plain.trim().trim_end_matches('.').to_owned()
}

/// Returns the common spelling of a unit.
fn named(unit: &str) -> Option<String> {
    let unit = unit.replace(" per ", "/").replace("sq.", "sq").replace("cu.", "cu");
    let parts: Option<Vec<String>> = unit.split('/').map(|part| power(part.trim())).collect();
    parts.map(|parts| parts.join("/"))
}

/// Returns the common spelling of a unit with its exponent: `square meters` is `m^2`.
fn power(unit: &str) -> Option<String> {
    let (words, raised) = match unit.split_once('^') {
        Some((words, raised)) => (words.trim(), Some(raised.trim())),
        None => (unit, None),
    };
    let (word, words_raise) = match words.split_once(' ') {
        Some(("square" | "sq", word)) => (word, Some("2")),
        Some(("cubic" | "cu", word)) => (word, Some("3")),
        _ => (words, None),
    };
    let known = UNITS.iter().find(|known| known.contains(&word));
    let found = known.map(|known| known[0].to_owned());
    let quotient = QUOTIENTS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, spelling)| (*spelling).to_owned());
    let name = found.or(quotient).or_else(|| prefixed(word))?;
    match (raised.or(words_raise), raised.is_some() && words_raise.is_some()) {
        (_, true) => None,
        (None, _) => Some(name),
        (Some(exponent @ ("2" | "3")), _) => Some(format!("{name}^{exponent}")),
        _ => None,
    }
}

/// Returns the common spelling of a unit with its prefix: `µF` for `microfarads`. `C` and `F` alone
/// may be degrees, so their names stay.
fn prefixed(word: &str) -> Option<String> {
    let symbol = |rest: &str| {
        PREFIXED
            .iter()
            .find(|(known, _)| *known == rest || (*known == "L" && rest == "l"))
    };
    let name = |rest: &str| {
        let single = rest.strip_suffix('s').unwrap_or(rest);
        PREFIXED.iter().find(|(_, names)| names.contains(&single))
    };
    if let Some((symbol, names)) = name(word) {
        return Some(if ["C", "F"].contains(symbol) { names[0] } else { *symbol }.to_owned());
    }
    if let Some((symbol, _)) = symbol(word) {
        return Some((*symbol).to_owned());
    }
    let with = |(short, long): &(&str, &str)| {
        let rest = word.strip_prefix(short).filter(|_| word != "pm");
        let rest = rest.or_else(|| word.strip_prefix('u').filter(|_| *short == "µ"));
        let found = rest.and_then(symbol).or_else(|| name(word.strip_prefix(long)?));
        found.map(|(symbol, _)| format!("{short}{symbol}"))
    };
    PREFIXES.iter().find_map(with)
}

#[cfg(test)]
mod tests {
    use super::{are_apart, differ, have_same_parts, of};

    #[test]
    fn a_unit_has_one_spelling() {
        for (text, unit) in [
            ("5\\text{ m}", Some("m")),
            ("5 meters", Some("m")),
            ("120\\text{ square meters}", Some("m^2")),
            ("12\\,\\mathrm{cm^2}", Some("cm^2")),
            ("12\\text{ cm}^2", Some("cm^2")),
            ("12 sq. ft", Some("ft^2")),
            ("30\\text{ km/h}", Some("km/h")),
            ("30 \\text{ miles per hour}", Some("mi/h")),
            ("30 mph", Some("mi/h")),
            ("x = 5\\text{ cm}", Some("cm")),
            ("\\$32.50", Some("dollar")),
            ("$32.50", Some("dollar")),
            ("8 cents", Some("cent")),
            ("3.2\\times10^{4}\\ \\mathrm{N}", Some("N")),
            ("$9.11 \\times 10^{-31}$ kg", Some("kg")),
            ("45^\\circ", Some("deg")),
            ("45°", Some("deg")),
            ("45^\\circ\\text{C}", Some("°C")),
            ("$T=45^{\\circ}C$", Some("°C")),
            ("45^{\\circ} \\mathrm{F}", Some("°F")),
            ("45 degrees Celsius", Some("°C")),
            ("45 C", Some("C")),
            ("45 µF", Some("µF")),
            ("45\\,\\mu\\text{F}", Some("µF")),
            ("45 microfarads", Some("µF")),
            ("45 milliseconds", Some("ms")),
            ("45 ml", Some("mL")),
            ("3 pm", None),
            ("7 apples", None),
            ("5x", None),
            ("$5$", None),
            ("5", None),
            ("\\frac{1}{2}\\text{ m}", None),
            ("m", None),
            ("", None),
        ] {
            assert_eq!(of(text).as_deref(), unit, "{text}");
        }
        for (one, other) in [
            ("2 \\text{ hours } 15 \\text{ minutes}", "2\\text{ h }15\\text{ min}"),
            ("2 \\text{ ft } 6 \\text{ in}", "2 feet and 6 inches"),
        ] {
            assert!(have_same_parts(one, other), "{one} and {other}");
        }
        assert!(!have_same_parts("2 h 15 min", "2 h 51 min") && !have_same_parts("2 h", "2 h"));
        assert!(
            are_apart("14 days", "3 weeks") && !are_apart("14 days", "2 weeks") && !are_apart("365 days", "1 year")
        );
        assert!(differ("12\\pi\\text{ cm}^2", "12\\pi\\text{ cm}") && differ("\\sqrt{2} m", "\\sqrt{2} km"));
        assert!(differ("5 km", "5\\text{ m}") && differ("8\\text{ dollars}", "8\\text{ cents}"));
        assert!(differ("5 ℃", "5 ℉") && !differ("5°", "5°C") && differ("5°/s", "5°C/h") && differ("5 rad", "5°C"));
        assert!(differ("5 farads", "5 coulombs") && !differ("5 farads", "5 F") && !differ("5 °F", "5 F"));
        assert!(!differ("5 meters", "5\\text{ m}") && !differ("5", "5\\text{ m}") && !differ("5 apples", "5 m"));
    }
}
