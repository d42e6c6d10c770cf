//! Pairs of label and answer, chosen to separate graders, with their verdicts: lines of
//! `cases/pairs.txt`. `rollout/agreement` compares dyad with other graders.

use crate::grade::math;

/// Returns the verdict, the label and the answer of each line.
fn pairs() -> Vec<(bool, &'static str, &'static str)> {
    let parts = |line: &'static str| {
        let mut parts = line.splitn(3, " | ");
        let verdict = parts.next().unwrap();
        assert!(["yes", "no"].contains(&verdict), "{line}");
        (verdict == "yes", parts.next().unwrap(), parts.next().unwrap())
    };
    let lines = include_str!("../cases/pairs.txt").lines();
    lines.filter(|line| line.contains(" | ")).map(parts).collect()
}

#[test]
fn pairs_have_their_verdicts_in_either_order() {
    let pairs = pairs();
    assert!(pairs.len() > 700);
    let wrong: Vec<String> = pairs
        .iter()
        .flat_map(|&(verdict, a, b)| [(verdict, a, b), (verdict, b, a)])
        .filter(|&(verdict, label, answer)| math::equal(answer, label) != verdict)
        .map(|(verdict, label, answer)| format!("{answer} for {label}: wanted {verdict}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
