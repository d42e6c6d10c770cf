//! Reads remainders: `17 \pmod{20}`, `1204 \equiv 204 \pmod{1000}`.

/// Longest text that is read as a remainder, in bytes.
const LONGEST: usize = 160;

/// A remainder and its modulus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Congruence {
    pub(super) remainder: u64,
    pub(super) modulus: u64,
    /// True if a variable is said to have this remainder.
    pub(super) of_variable: bool,
}

/// Returns the remainder that a text ends with. It is smaller than the modulus.
pub(super) fn congruence(text: &str) -> Option<Congruence> {
    if text.len() > LONGEST || !text.contains("mod") {
        return None;
    }
    let mut plain = text.replace("≡", "\\equiv");
    for look in [
        "\\text",
        "\\mathrm",
        "\\operatorname",
        "\\ ",
        "\\,",
        "\\;",
        "\\:",
        "$",
        "{",
        "}",
        "~",
        "\\quad",
    ] {
        plain = plain.replace(look, "");
    }
    let plain: String = plain.chars().filter(|c| !c.is_whitespace()).collect();
    let plain = plain.trim_end_matches('.');
    let marks = [
        "(mod", "\\pmod", "(\\bmod", "(\\mod", "(modulo", "modulo", "\\bmod", "\\mod", "mod",
    ];
    let (before, behind) = marks.iter().find_map(|mark| plain.rsplit_once(mark))?;
    let modulus: u64 = behind.strip_suffix(')').unwrap_or(behind).parse().ok()?;
    let (first, last) = before.rsplit_once("\\equiv").unwrap_or(("", before));
    let of_variable = match first.replace("\\cdot", "").replace("\\times", "") {
        numbers if !numbers.contains(char::is_alphabetic) => false,
        variable if variable.chars().count() == 1 => true,
        // `2x`, `x \not`, or several congruences.
        _ => return None,
    };
    let remainder = if of_variable {
        // All numbers of one class are the same remainder.
        u64::try_from(last.parse::<i128>().ok()?.checked_rem_euclid(i128::from(modulus))?).ok()?
    } else {
        last.parse().ok()?
    };
    (remainder < modulus).then_some(Congruence {
        remainder,
        modulus,
        of_variable,
    })
}

/// Returns the remainders of several congruences of one variable, also with one modulus for all:
/// `x \equiv 1, 4 \pmod 5`. Congruences that `or` joins must have one modulus.
pub(super) fn congruences(text: &str) -> Option<Vec<Congruence>> {
    if text.len() > LONGEST || !text.contains("mod") {
        return None;
    }
    let mut plain = text.replace(';', ",").replace(" and ", ",").replace('≡', "\\equiv ");
    let either = plain.contains(" or ");
    plain = plain.replace(" or ", ",").replace("\\text{,}", ",");
    plain = with_own_modulus(&plain).unwrap_or(plain);
    let pieces = plain.split(',').map(str::trim).filter(|piece| !piece.is_empty());
    let variable = |piece: &str| piece.chars().find(char::is_ascii_alphabetic);
    let first = variable(&plain);
    let of_first = |piece| congruence(piece).filter(|found| found.of_variable && variable(piece) == first);
    let found: Vec<Congruence> = pieces.map(of_first).collect::<Option<_>>()?;
    let one = found.windows(2).all(|pair| pair[0].modulus == pair[1].modulus);
    (found.len() > 1 && (one || !either)).then_some(found)
}

/// Returns several congruences for several remainders of one modulus.
fn with_own_modulus(text: &str) -> Option<String> {
    let (name, rest) = text.split_once("\\equiv")?;
    let at = rest.find("mod")?;
    let at = rest[..at]
        .trim_end_matches(|c: char| c.is_alphabetic() || " ({\\".contains(c))
        .len();
    let (numbers, modulus) = rest.split_at(at);
    let signs = numbers.replace("\\pm", "±");
    let both = |number: &str| match number.trim().strip_prefix('±') {
        Some(number) => vec![number.to_owned(), format!("-{number}")],
        None => vec![number.to_owned()],
    };
    let all = signs
        .split(',')
        .flat_map(both)
        .map(|number| format!("{name}\\equiv {number}{modulus}"));
    (!name.contains(',') && !modulus.contains(',') && !rest.contains("equiv"))
        .then(|| all.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::{congruence, congruences};

    #[test]
    fn several_congruences_are_a_set() {
        for (text, count) in [
            ("x \\equiv 1 \\pmod{2}, x \\equiv 2 \\pmod 3", Some(2)),
            ("x \\equiv 1 \\pmod 5 \\text{ or } x \\equiv 4 \\pmod 5", Some(2)),
            ("x \\equiv 1 \\pmod 2 \\text{ or } x \\equiv 4 \\pmod 5", None),
            ("x \\equiv 1, 4 \\pmod 5", Some(2)),
            ("x \\equiv \\pm 1 \\pmod{5}", Some(2)),
            ("x ≡ 1 or 4 (mod 5)", Some(2)),
            ("x \\equiv 1 \\pmod 5, y \\equiv 4 \\pmod 5", None),
            ("x \\equiv 1 \\pmod 5", None),
            ("x \\not\\equiv 1 \\pmod 5, x \\equiv 2 \\pmod 5", None),
        ] {
            assert_eq!(congruences(text).map(|found| found.len()), count, "{text}");
        }
    }

    #[test]
    fn a_remainder_is_smaller_than_its_modulus() {
        for (text, found) in [
            ("17 \\pmod{20}", Some((17, 20))),
            ("17 \\text{ (mod } 20)", Some((17, 20))),
            ("17\\ (\\text{mod}\\ 20)", Some((17, 20))),
            ("17 (mod 20)", Some((17, 20))),
            ("1204 \\equiv 204 \\pmod{1000}", Some((204, 1000))),
            ("x ≡ 3 (mod 5)", Some((3, 5))),
            ("23 \\pmod{20}", None),
            ("n \\equiv 10 \\pmod 7", Some((3, 7))),
            ("n \\equiv -4 \\pmod{7}", Some((3, 7))),
            ("n \\equiv 3 \\pmod 0", None),
            ("17 \\bmod 5", None),
            ("x \\equiv y \\pmod{5}", None),
            ("17", None),
            ("model", None),
        ] {
            let found_here = congruence(text).map(|found| (found.remainder, found.modulus));
            assert_eq!(found_here, found, "{text}");
        }
    }
}
