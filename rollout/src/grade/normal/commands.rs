//! Commands of LaTeX that change only the look of a formula, hold words, or have another name for
//! the same.

use super::token::Token;

/// Commands that change only the look of a formula.
const LOOKS: [&str; 55] = [
    "left",
    "right",
    "big",
    "Big",
    "bigl",
    "bigr",
    "Bigl",
    "Bigr",
    "bigg",
    "Bigg",
    "biggl",
    "biggr",
    "displaystyle",
    "textstyle",
    "scriptstyle",
    "limits",
    "quad",
    "qquad",
    "enspace",
    "mathbf",
    "mathbb",
    "mathit",
    "mathsf",
    "mathtt",
    "mathcal",
    "mathscr",
    "mathfrak",
    "boldsymbol",
    "bm",
    "boxed",
    "fbox",
    "framebox",
    "hline",
    "thinspace",
    "medspace",
    "thickspace",
    "negthinspace",
    "middle",
    "therefore",
    "underline",
    "hfill",
    "newline",
    "bf",
    "it",
    "sf",
    "tt",
    "large",
    "Large",
    "strut",
    "num",
    "checkmark",
    "square",
    "blacksquare",
    "Box",
    "qed",
];
const WORDS: [&str; 18] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "textsf",
    "texttt",
    "textnormal",
    "textup",
    "textsc",
    "emph",
    "mbox",
    "hbox",
    "mathrm",
    "operatorname",
    "rm",
    "unit",
    "si",
    "mathnormal",
];
/// Commands with a group that changes only the look of what follows.
const GROUPS: [&str; 6] = ["color", "textcolor", "hspace", "vspace", "phantom", "hphantom"];
const DEGREES: [&str; 4] = ["degree", "textdegree", "degrees", "deg"];
const QUANTITIES: [&str; 3] = ["SI", "qty", "SIrange"];

/// Names with the same meaning, each with the name that replaces it.
const ALIASES: [(&str, &str); 69] = [
    ("dfrac", "frac"),
    ("tfrac", "frac"),
    ("cfrac", "frac"),
    ("nicefrac", "frac"),
    ("sfrac", "frac"),
    ("overrightarrow", "vec"),
    ("dots", "ldots"),
    ("cdots", "ldots"),
    ("dotsc", "ldots"),
    ("dotso", "ldots"),
    ("dbinom", "binom"),
    ("tbinom", "binom"),
    ("cdot", "*"),
    ("times", "*"),
    ("ast", "*"),
    ("bullet", "*"),
    ("div", "/"),
    ("le", "<="),
    ("leq", "<="),
    ("leqslant", "<="),
    ("leqq", "<="),
    ("ge", ">="),
    ("geq", ">="),
    ("geqslant", ">="),
    ("geqq", ">="),
    ("lt", "<"),
    ("gt", ">"),
    ("neq", "ne"),
    ("infinity", "infty"),
    ("varnothing", "emptyset"),
    ("lbrace", "{"),
    ("rbrace", "}"),
    ("lvert", "|"),
    ("rvert", "|"),
    ("vert", "|"),
    ("simeq", "approx"),
    ("cong", "approx"),
    ("doteq", "approx"),
    ("sim", "approx"),
    ("approxeq", "approx"),
    ("thickapprox", "approx"),
    ("thicksim", "approx"),
    ("implies", "implies"),
    ("Rightarrow", "implies"),
    ("Longrightarrow", "implies"),
    ("rightarrow", "implies"),
    ("longrightarrow", "implies"),
    ("to", "implies"),
    ("iff", "implies"),
    ("Leftrightarrow", "implies"),
    ("coloneqq", "="),
    ("triangleq", "="),
    ("colon", ":"),
    ("backslash", "setminus"),
    ("smallsetminus", "setminus"),
    ("percent", "%"),
    ("R", "reals"),
    ("lbrack", "["),
    ("rbrack", "]"),
    ("lparen", "("),
    ("rparen", ")"),
    ("varepsilon", "epsilon"),
    ("varphi", "phi"),
    ("vartheta", "theta"),
    ("ohm", "Omega"),
    ("bigcup", "cup"),
    ("vee", "lor"),
    ("wedge", "land"),
    ("lnot", "neg"),
];

pub(super) fn is_look(name: &str) -> bool {
    LOOKS.contains(&name)
}

pub(super) fn is_word(name: &str) -> bool {
    WORDS.contains(&name)
}

pub(super) fn has_group_for_looks(name: &str) -> bool {
    GROUPS.contains(&name)
}

pub(super) fn is_degree(name: &str) -> bool {
    DEGREES.contains(&name)
}

/// Returns true for a command with a number and a unit: `\SI{5}{m}`.
pub(super) fn is_quantity(name: &str) -> bool {
    QUANTITIES.contains(&name)
}

/// Returns the token of a command.
pub(super) fn token(name: &str) -> Option<Token> {
    let alias = ALIASES.iter().find(|(known, _)| *known == name);
    Some(match alias.map_or(name, |(_, ours)| ours) {
        one @ ("*" | "/" | "|" | "=" | ":" | "%" | "(" | ")" | "[" | "]") => Token::Symbol(one.chars().next()?),
        one @ ("{" | "}") => Token::Set(one.chars().next()?),
        name => Token::Command(name.to_owned()),
    })
}
