//! Compares the math grader with math_verify, DeepScaleR's grader and DAPO's two. `cases/make.py`
//! ran them to make the cases.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::grade::math;

#[derive(Deserialize)]
struct Case {
    group: String,
    label: String,
    answer: String,
    math_verify: bool,
    deepscaler_mathd: bool,
    deepscaler_sympy: bool,
    dapo_minerva: bool,
    dapo_strict_box: bool,
}

impl Case {
    fn ours(&self) -> bool {
        math::equal(&self.answer, &self.label)
    }

    /// Returns true if either of its two graders accepts, because either pays in training.
    fn deepscaler(&self) -> bool {
        self.deepscaler_mathd || self.deepscaler_sympy
    }
}

/// A reason why we differ from a reference, with pairs of label and answer, in any order.
#[derive(Deserialize)]
struct Listed {
    why: String,
    pairs: Vec<(String, String)>,
}

/// A group of cases in which we accept other forms of the same value than DeepScaleR or DAPO.
#[derive(Deserialize)]
struct OtherForms {
    group: String,
    example: (String, String),
    why: String,
}

#[derive(Deserialize)]
struct Differences {
    /// Every difference.
    math_verify: Vec<Listed>,
    /// Pairs that DeepScaleR accepts and we reject.
    deepscaler: Vec<Listed>,
    dapo_minerva: Vec<Listed>,
    /// Every difference from math_verify on whole texts.
    texts: Vec<Listed>,
    /// Groups that we accept and DeepScaleR or DAPO reject.
    other_forms: Vec<OtherForms>,
}

fn read(lines: &str) -> impl Iterator<Item = Case> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn cases() -> Vec<Case> {
    read(include_str!("../cases/cases.jsonl")).collect()
}

fn differences() -> Differences {
    serde_json::from_str(include_str!("../cases/differences.json")).unwrap()
}

/// Returns a pair in a fixed order.
fn key(label: &str, answer: &str) -> (String, String) {
    let (a, b) = (label.min(answer), label.max(answer));
    (a.to_owned(), b.to_owned())
}

/// Checks that every case of `found` is listed and every listed pair is found.
fn check_listed(reference: &str, listed: &[Listed], found: &[&Case]) {
    let mut seen: BTreeMap<(String, String), bool> = BTreeMap::new();
    for one in listed {
        assert!(one.why.len() > 20, "a reason is missing");
        for (label, answer) in &one.pairs {
            let before = seen.insert(key(label, answer), false);
            assert!(before.is_none(), "{reference}: {label} <- {answer} is listed twice");
        }
    }
    let mut unexplained = Vec::new();
    for case in found {
        match seen.get_mut(&key(&case.label, &case.answer)) {
            Some(seen) => *seen = true,
            None => unexplained.push(format!("{}: {} <- {}", case.group, case.label, case.answer)),
        }
    }
    assert!(
        unexplained.is_empty(),
        "{reference} differs, not explained:\n{}",
        unexplained.join("\n")
    );
    let idle: Vec<_> = seen.iter().filter(|(_, seen)| !**seen).map(|(pair, _)| pair).collect();
    assert!(idle.is_empty(), "{reference}: listed and no difference: {idle:?}");
}

/// Returns the verdict of a reference on a case.
type Reference = fn(&Case) -> bool;

/// The references by their names in the guide.
const REFERENCES: [(&str, Reference); 4] = [
    ("math_verify", |case| case.math_verify),
    ("DeepScaleR", Case::deepscaler),
    ("DAPO", |case| case.dapo_minerva),
    ("DAPO, strict box", |case| case.dapo_strict_box),
];

/// Returns the rows of the guide's table. For each reference: how often it agrees with us, accepts
/// alone, and rejects alone.
fn rates(cases: &[(Case, bool)]) -> Vec<String> {
    let row = |(name, said): (&str, Reference)| {
        let count = |wanted: &dyn Fn(bool, bool) -> bool| {
            let those = cases.iter().filter(|(case, ours)| wanted(*ours, said(case)));
            those.count()
        };
        let same = count(&|ours, theirs| ours == theirs);
        let (theirs, ours) = (
            count(&|ours, theirs| theirs && !ours),
            count(&|ours, theirs| ours && !theirs),
        );
        let share = 100.0 * same as f64 / cases.len() as f64;
        format!("| {name} | {same} ({share:.1} %) | {theirs} | {ours} |")
    };
    REFERENCES.map(row).to_vec()
}

/// Checks that `cases/agreement.txt` has these rows. The message shows the rows it should have.
fn check_table(rows: &[String]) {
    println!("{}", rows.join("\n"));
    let table = include_str!("../cases/agreement.txt");
    let missing = rows.iter().any(|row| !table.contains(row.as_str()));
    assert!(
        !missing,
        "cases/agreement.txt has other counts; its rows should be:\n{}",
        rows.join("\n")
    );
}

#[test]
fn every_difference_from_a_reference_is_explained() {
    let differences = differences();
    let judged = |case: Case| {
        let ours = case.ours();
        (case, ours)
    };
    let cases: Vec<(Case, bool)> = cases().into_iter().map(judged).collect();
    let those = |wanted: &dyn Fn(&Case, bool) -> bool| {
        let those = cases.iter().filter(|(case, ours)| wanted(case, *ours));
        those.map(|(case, _)| case).collect::<Vec<_>>()
    };
    let apart = those(&|case: &Case, ours| ours != case.math_verify);
    check_listed("math_verify", &differences.math_verify, &apart);
    let more = those(&|case: &Case, ours| case.deepscaler() && !ours);
    check_listed("DeepScaleR", &differences.deepscaler, &more);
    let more = those(&|case: &Case, ours| case.dapo_minerva && !ours);
    check_listed("DAPO", &differences.dapo_minerva, &more);
    assert!(cases.len() > 1400 && apart.len() * 100 <= cases.len() * 18);
    check_table(&rates(&cases));
}

/// Compares how graders find the answer in a text: boxes, announcements, the last formula or
/// number.
#[test]
fn answers_in_texts_are_found_like_the_references() {
    let judged = |case: Case| {
        let ours = math::is_right(&case.answer, &case.label.as_str().into());
        (case, ours)
    };
    let texts: Vec<(Case, bool)> = read(include_str!("../cases/texts.jsonl")).map(judged).collect();
    let apart: Vec<&Case> = texts
        .iter()
        .filter_map(|(case, ours)| (*ours != case.math_verify).then_some(case))
        .collect();
    check_listed("math_verify, in texts", &differences().texts, &apart);
    assert!(texts.len() > 50);
    check_table(&rates(&texts));
}

/// DAPO's strict box compares texts, so every grader must accept what it accepts.
#[test]
fn a_text_equal_to_the_label_is_right() {
    let cases = cases();
    let strict: Vec<&Case> = cases.iter().filter(|case| case.dapo_strict_box).collect();
    assert!(strict.len() > 5);
    for case in strict {
        assert!(case.ours(), "{} <- {}", case.label, case.answer);
    }
}

/// Checks the table of forms that we accept and DeepScaleR or DAPO reject, by groups of
/// cases.
#[test]
fn forms_that_only_we_take_are_counted_in_the_guide() {
    let cases = cases();
    let mut rows = Vec::new();
    for OtherForms { group, example, why } in &differences().other_forms {
        let ours: Vec<&Case> = cases
            .iter()
            .filter(|case| case.group == *group && case.ours())
            .collect();
        let shown = ours
            .iter()
            .find(|case| (&case.label, &case.answer) == (&example.0, &example.1));
        assert!(
            shown.is_some_and(|case| !(case.deepscaler() && case.dapo_minerva)),
            "{group}: the example shows no difference"
        );
        let deepscaler = ours.iter().filter(|case| !case.deepscaler()).count();
        let dapo = ours.iter().filter(|case| !case.dapo_minerva).count();
        rows.push(format!(
            "| {group} | {deepscaler} | {dapo} | `{}`, `{}` | {why} |",
            example.0, example.1
        ));
    }
    let forms = differences().other_forms;
    for case in cases
        .iter()
        .filter(|case| case.ours() && !(case.deepscaler() && case.dapo_minerva))
    {
        assert!(
            forms.iter().any(|one| one.group == case.group),
            "{} has no reason",
            case.group
        );
    }
    check_table(&rows);
}

#[test]
fn the_order_of_answer_and_label_does_not_matter() {
    for case in cases() {
        assert_eq!(
            math::equal(&case.answer, &case.label),
            math::equal(&case.label, &case.answer),
            "{} and {}",
            case.label,
            case.answer
        );
    }
}
