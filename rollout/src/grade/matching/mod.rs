//! The grader `match`: the same words and numbers, apart from case, punctuation and articles.

mod normal;

use serde_json::Value;

use self::normal::form;
use super::{answer, label};

/// Returns true if the answer has the normal form of one of the label's texts.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    let marked = answer::marked(text);
    let found = form(&marked);
    let is = |label: &String| form(label) == found || form(&answer::marked(label)) == found;
    let is_number = || {
        [&*marked, found.as_str()]
            .iter()
            .any(|text| label::spells_number(text, label))
    };
    !found.is_empty() && (label::listed(label).iter().any(is) || is_number())
}

/// Returns true if the answers in both texts have the same normal form, and it is not empty.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    is_right(a, &answer::marked(b).into_owned().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grade::label::has_text;

    #[test]
    fn any_of_several_labels_matches() {
        assert!(is_right(
            "<answer>The Blue Whale!</answer>",
            &json!(["shark", "blue whale"])
        ));
        assert!(!is_right("whale", &json!("blue whale")));
        assert!(!is_right("", &json!("")));
    }

    /// SQuAD's normal form is empty for these labels, but the same text still matches them.
    #[test]
    fn labels_without_words_match_themselves() {
        for (label, right, wrong) in [
            (json!("A"), ["A", "a.", "\\boxed{A}"], ["B", "the A", ""]),
            (
                json!(["the"]),
                ["The", "the!", "<answer>the</answer>"],
                ["a", "then", "!!!"],
            ),
            (json!("!!!"), ["!!!", " !!! ", "\\boxed{!!!}"], ["!!", "", "A"]),
            (json!(["", "+"]), ["+", "\n+", "<answer>+</answer>"], ["-", "", "plus"]),
        ] {
            assert!(has_text(&label), "{label}");
            for text in right {
                assert!(is_right(text, &label), "{text} is {label}");
            }
            for text in wrong {
                assert!(!is_right(text, &label), "{text} is not {label}");
            }
        }
        for label in [json!(""), json!(" \n"), json!(["", " "]), json!([]), json!(null)] {
            assert!(!has_text(&label), "{label}");
        }
    }
}
