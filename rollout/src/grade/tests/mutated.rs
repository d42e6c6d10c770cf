//! Texts of all cases with damage at random places. Cuts inside a character must not end a run.

use serde_json::{Value, json};

use crate::grade::Grader;

const CASES: [&str; 2] = [
    include_str!("../cases/kinds.jsonl"),
    include_str!("../cases/field_cases.jsonl"),
];
/// Insertions, many of several bytes, some with another length in lower case.
const PIECES: [&str; 20] = [
    "é", "元", "’", "…", "−", "𝟙", "\u{a0}", "½", "İ", "ß", "、", "\u{200b}", "$", "\\", "{", "}", " ", "\n\n", ".",
    "cent",
];
const TEXTS: usize = 20_000;

/// Returns the next number of a fixed sequence below `limit` (splitmix64).
fn draw(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as usize % limit.max(1)
}

/// Inserts a piece or the end of another text, or removes a character.
fn damage(text: &mut Vec<char>, other: &str, state: &mut u64) {
    let at = draw(state, text.len() + 1);
    let inserted: Vec<char> = match draw(state, 5) {
        0 if at < text.len() => {
            text.remove(at);
            return;
        }
        1 => {
            let count = other.chars().count();
            other.chars().skip(count.saturating_sub(draw(state, 60))).collect()
        }
        _ => PIECES[draw(state, PIECES.len())].chars().collect(),
    };
    text.splice(at..at, inserted);
}

#[test]
fn damaged_texts_are_graded() {
    let cases: Vec<Value> = CASES
        .iter()
        .flat_map(|lines| lines.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut state = 1;
    for _ in 0..TEXTS {
        let case = &cases[draw(&mut state, cases.len())];
        let other = &cases[draw(&mut state, cases.len())]["text"];
        let mut text: Vec<char> = case["text"].as_str().unwrap_or_default().chars().collect();
        for _ in 0..=draw(&mut state, 4) {
            damage(&mut text, other.as_str().unwrap_or_default(), &mut state);
        }
        let text: String = text.into_iter().collect();
        let kind = case["kind"].as_str().unwrap();
        let grade = || Grader::new(kind).unwrap().grade(&text, &case["label"]);
        let reward = std::panic::catch_unwind(std::panic::AssertUnwindSafe(grade));
        let reward =
            reward.unwrap_or_else(|_| panic!("{}", json!({"kind": kind, "text": text, "label": case["label"]})));
        assert!((0.0..=1.0).contains(&reward), "{kind}: {text}");
    }
}
