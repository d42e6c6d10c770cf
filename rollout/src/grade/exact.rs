//! The grader `exact`: the same text, apart from white space around it.

use serde_json::Value;

use super::label;

pub(super) fn is_right(text: &str, label: &Value) -> bool {
    let said = label::text(label).is_some_and(|label| is_same(text, &label));
    said || (label.is_number() && label::spells_number(text, label))
}

pub(super) fn is_same(a: &str, b: &str) -> bool {
    a.trim() == b.trim()
}

pub(super) fn is_label(label: &Value) -> bool {
    label::text(label).is_some()
}
