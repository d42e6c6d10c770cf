//! Signs between the sides of equations and inequalities.

use crate::grade::normal::token::Token;

/// A relation. Greater is written as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    /// The right side may be rounded.
    Approx,
    Unequal,
    Less,
    AtMost,
}

/// Returns the relation of a token, and true if its sides change places.
pub(super) fn op(token: &Token) -> Option<(Op, bool)> {
    match token {
        Token::Symbol('=') => Some((Op::Equal, false)),
        Token::Command(name) => match name.as_str() {
            "approx" => Some((Op::Approx, false)),
            "ne" => Some((Op::Unequal, false)),
            "<" => Some((Op::Less, false)),
            "<=" => Some((Op::AtMost, false)),
            ">" => Some((Op::Less, true)),
            ">=" => Some((Op::AtMost, true)),
            _ => None,
        },
        _ => None,
    }
}

/// Commands that stand between formulas, never inside one. The parser would multiply what stands
/// on both sides of an unknown command, and products may change places.
const BETWEEN: &str = "<= >= < > ne in cup cap pm mp emptyset \\ over choose approx implies mid setminus reals notin ni subset \
    supset subseteq supseteq subsetneq supsetneq prec succ preceq succeq ll gg mapsto gets nmid models vdash \
    dashv Vdash vDash Vvdash nvdash nvDash nsubset nsupset nsubseteq nsupseteq sqsubset sqsupset sqsubseteq \
    sqsupseteq subseteqq supseteqq subsetneqq supsetneqq lesssim gtrsim lessgtr precsim succsim nprec nsucc \
    npreceq nsucceq nless ngtr nleq ngeq lll ggg owns lhd rhd unlhd unrhd triangleleft triangleright \
    trianglelefteq trianglerighteq ltimes rtimes longmapsto leadsto impliedby xmapsto multimap vartriangleleft \
    vartriangleright lessapprox gtrapprox eqslantless eqslantgtr lnsim gnsim wr preccurlyeq succcurlyeq Subset \
    Supset lneq gneq lesseqgtr land lor neg forall exists nexists not equiv pmod bmod mod pod perp parallel nparallel \
    propto sim nsim simeq cong ncong otimes oplus ominus odot";

/// Returns true for a command that stands between formulas.
pub(super) fn is_between(name: &str) -> bool {
    let arrow = name.contains("arrow") || name.contains("harpoon");
    let both_ways = name.to_ascii_lowercase().contains("leftright");
    // `\overleftarrow{AB}` is a vector.
    let accent = name.starts_with("over") || name.starts_with("under");
    (arrow && !both_ways && !accent) || BETWEEN.split(' ').any(|known| known == name)
}
