//! Fractions that are a single character.

const FRACTIONS: [(char, &str); 19] = [
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
    ('⅐', "\\frac{1}{7}"),
    ('⅑', "\\frac{1}{9}"),
    ('⅒', "\\frac{1}{10}"),
    ('↉', "\\frac{0}{3}"),
];

/// Returns true if the character is a fraction.
pub(crate) fn is_fraction(c: char) -> bool {
    !c.is_ascii() && spelling(c).is_some()
}

/// Returns the LaTeX of such a fraction.
pub(super) fn spelling(c: char) -> Option<&'static str> {
    let found = FRACTIONS.iter().find(|(sign, _)| *sign == c);
    found.map(|(_, spelling)| *spelling)
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
