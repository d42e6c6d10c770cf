//! Fractions that are a single character.

use crate::grade::answer::wide::narrow;

const FRACTIONS: [(char, &str); 15] = [
    ('½', "\\frac{1}{2}"),
    ('⅓', "\\frac{1}{3}"),
    ('⅔', "\\frac{2}{3}"),
    ('¼', "\\frac{1}{4}"),
    ('¾', "\\frac{3}{4}"),
    ('⅕', "\\frac{1}{5}"),
    ('⅖', "\\frac{2}{5}"),
    ('⅗', "\\frac{3}{5}"),
    ('⅘', "\\frac{4}{5}"),
    ('⅙', "\\frac{1}{6}"),
    ('⅚', "\\frac{5}{6}"),
    ('⅛', "\\frac{1}{8}"),
    ('⅜', "\\frac{3}{8}"),
    ('⅝', "\\frac{5}{8}"),
    ('⅞', "\\frac{7}{8}"),
];

/// Returns true if the character is a fraction.
pub(super) fn is_fraction(c: char) -> bool {
    spelling(c).is_some()
}

fn spelling(c: char) -> Option<&'static str> {
    let found = FRACTIONS.iter().find(|(sign, _)| *sign == c);
    found.map(|(_, spelling)| *spelling)
}

/// Spells such fractions in LaTeX, and replaces wide signs with ASCII.
pub(super) fn spelled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match spelling(c) {
            Some(spelling) => out.push_str(spelling),
            None => out.push(narrow(c)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::grade::math::equal;

    #[test]
    fn one_character_fractions_have_their_values() {
        for (one, other, same) in [
            ("½", "0.5", true),
            ("2½", "5/2", true),
            ("2 ½", "2.5", true),
            ("-1¾", "-1.75", true),
            ("x=⅔", "\\frac{2}{3}", true),
            ("½x", "x/2", true),
            ("½", "2", false),
            ("2½", "1", false),
            ("５", "5", true),
            ("（1，2）", "(1,2)", true),
        ] {
            assert_eq!(equal(one, other), same, "{one} and {other}");
            assert_eq!(equal(other, one), same, "{other} and {one}");
        }
    }
}
