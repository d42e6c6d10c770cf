//! Finds decisions that read the text of a failure. The text is for people: a changed word must not
//! change what a program does.
//!
//! Code under `#[cfg(test)]` does not count. Macros such as `matches!` are not read.

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ExprMatch, ExprMethodCall, Item, Lit, Member, Pat};

use crate::imports;

/// Names of values that hold the text of a failure.
const FAILURES: [&str; 9] = [
    "reason", "why", "fault", "failure", "error", "cause", "refusal", "trouble", "err",
];
/// Methods that decide by a text.
const DECIDING: [&str; 9] = [
    "starts_with",
    "ends_with",
    "contains",
    "strip_prefix",
    "strip_suffix",
    "split_once",
    "find",
    "eq",
    "eq_ignore_ascii_case",
];
/// Methods that return the same text.
const SAME_TEXT: [&str; 8] = [
    "to_string",
    "as_str",
    "as_ref",
    "as_deref",
    "clone",
    "trim",
    "to_lowercase",
    "to_ascii_lowercase",
];
/// Returns the decisions in a file's code that read the text of a failure.
///
/// # Panics
/// Panics if the code is not valid Rust.
#[must_use]
pub fn by_text(code: &str) -> Vec<String> {
    let mut found = Decisions::default();
    found.visit_file(&syn::parse_file(code).unwrap());
    found.0
}

#[derive(Default)]
struct Decisions(Vec<String>);

impl Visit<'_> for Decisions {
    fn visit_item(&mut self, item: &Item) {
        if !imports::is_test(imports::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let method = call.method.to_string();
        if let Some(name) = failure_text(&call.receiver).filter(|_| DECIDING.contains(&&*method)) {
            self.0.push(format!("{name}.{method}(..)"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) {
            for (one, other) in [(&binary.left, &binary.right), (&binary.right, &binary.left)] {
                self.0.extend(
                    failure_text(one)
                        .filter(|_| is_fixed_text(other))
                        .map(|name| format!("{name} == ..")),
                );
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, found: &ExprMatch) {
        let by_text = |pattern: &Pat| matches!(pattern, Pat::Lit(lit) if matches!(lit.lit, Lit::Str(_)));
        if let Some(name) = failure_text(&found.expr).filter(|_| found.arms.iter().any(|arm| by_text(&arm.pat))) {
            self.0.push(format!("match {name}"));
        }
        visit::visit_expr_match(self, found);
    }
}

/// Returns the name of the failure with a text that the expression stands for, if it does.
fn failure_text(expr: &Expr) -> Option<String> {
    let name = match expr {
        Expr::MethodCall(call) if SAME_TEXT.contains(&&*call.method.to_string()) => {
            return failure_text(&call.receiver);
        }
        Expr::Reference(inner) => return failure_text(&inner.expr),
        Expr::Unary(inner) => return failure_text(&inner.expr),
        Expr::Paren(inner) => return failure_text(&inner.expr),
        Expr::Index(inner) => return failure_text(&inner.expr),
        Expr::Path(path) => path.path.get_ident()?.to_string(),
        Expr::Field(field) => match &field.member {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(_) => return None,
        },
        _ => return None,
    };
    FAILURES.contains(&&*name).then_some(name)
}

/// Returns true for a literal text or a constant, also inside `Some`.
fn is_fixed_text(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => matches!(lit.lit, Lit::Str(_)),
        Expr::Reference(inner) => is_fixed_text(&inner.expr),
        // `Some(TEXT)`
        Expr::Call(call) => call.args.len() == 1 && is_fixed_text(&call.args[0]),
        Expr::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name.chars()
                .all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_by_a_text_are_found() {
        let count = |code: &str| by_text(&format!("fn f() -> bool {{ {code} }}")).len();
        for code in [
            r#"failure.reason.starts_with("engine:")"#,
            r#"error.to_string().to_lowercase().contains("refused")"#,
            "self.reason.as_deref() == Some(X)",
            "ABANDONED == reason",
            r#"*why != "dead""#,
            r#"match reason.as_str() { "x" => true, _ => false }"#,
            r#"list.iter().any(|reason| (&reason[..]).strip_prefix(DEAD).is_some())"#,
        ] {
            assert_eq!(count(code), 1, "{code}");
        }
        for code in [
            "failure.code == FailureCode::Context",
            "error.code() == Some(CODE)",
            "matches!(error, StoreError::Tls { .. })",
            r#"known.contains(&reason) || reason.is_empty()"#,
            r#"{ let text = format!("dead: {reason}"); text.len() > 3 }"#,
            "reason != said",
        ] {
            assert_eq!(count(code), 0, "{code}");
        }
        assert!(by_text(r#"#[cfg(test)] mod tests { fn f() { reason == "x" } }"#).is_empty());
    }
}
