//! Figures of made-up conversations.

use super::*;

fn one(task: &str, sample: Option<usize>, success: f64, answer: &str) -> Conversation {
    Conversation {
        task: task.into(),
        sample,
        failed: None,
        figures: [
            (SUCCESS.to_owned(), success),
            ("reward/a".to_owned(), success * 0.5),
            (TOKENS.to_owned(), 3.0),
        ]
        .into(),
        answer: Some(answer.into()),
        grader: Grader::new("integer").ok(),
    }
}

fn row_of<'a>(score: &'a Score, figure: &str) -> &'a ScoreRow {
    score.rows.iter().find(|row| row.figure == figure).unwrap()
}

#[test]
fn repeated_samples_are_counted_by_task() {
    let list = [
        one("t", None, 1.0, "5"),
        one("u", None, 0.0, "1"),
        // In t 3 of 4 are right; the wrong answers of u agree by value.
        one("t", Some(0), 1.0, "5"),
        one("t", Some(1), 1.0, "so 5"),
        one("t", Some(2), 0.0, "6"),
        one("t", Some(3), 1.0, "5"),
        one("u", Some(0), 0.0, "it is 7"),
        one("u", Some(1), 1.0, "8"),
        one("u", Some(2), 0.0, "7"),
        one("u", Some(3), 0.0, "9"),
    ];
    let found = score(&list, 4);
    assert_eq!((found.tasks, found.samples, found.failed), (2, 4, 0));
    let success = row_of(&found, SUCCESS);
    assert_eq!(success.greedy.unwrap().mean, 0.5);
    assert_eq!(success.avg.unwrap().mean, 0.5);
    assert_eq!(success.maj.unwrap().mean, 0.5);
    assert_eq!(success.pass.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    // t: 1 - C(1,2)/C(4,2) = 1; u: 1 - C(3,2)/C(4,2) = 1/2.
    assert_eq!(success.pass[&2].mean, 0.75);
    assert_eq!((success.pass[&1].mean, success.pass[&4].mean), (0.5, 1.0));
    let reward = row_of(&found, "reward/a");
    assert!(reward.pass.is_empty() && reward.maj.is_none(), "it is not a share");
    assert_eq!(found.rows.last().unwrap().figure, TOKENS);
}

#[test]
fn intervals_of_success_stay_within_0_to_1() {
    let of = |task: &str, sample, success| {
        let mut found = one(task, Some(sample), success, "5");
        found.figures.insert("truncated".into(), success);
        found.figures.insert("reward/a".into(), success);
        found
    };
    let list = [[of("t", 0, 1.0), of("t", 1, 1.0)], [of("u", 0, 1.0), of("u", 1, 0.0)]].concat();
    let found = score(&list, 2);
    let (success, reward) = (row_of(&found, SUCCESS), row_of(&found, "reward/a"));
    let interval = success.avg.unwrap();
    assert_eq!((interval.mean, interval.low, interval.high), (0.75, 0.0, 1.0));
    assert!(reward.avg.unwrap().high > 1.0, "a reward has no such bounds");
    assert!(!success.pass.is_empty());
    assert!(row_of(&found, "truncated").pass.is_empty(), "no answer is right by it");
}

#[test]
fn a_task_has_its_own_figures() {
    let of_task = |task: &str| {
        [
            one(task, None, 1.0, "5"),
            one(task, Some(0), 0.0, "6"),
            one(task, Some(1), 1.0, "5"),
            one(task, Some(2), 1.0, "it is 5"),
            one(task, Some(3), 0.0, "7"),
        ]
    };
    let list = [of_task("t"), of_task("u")].concat();
    let found = by_task(&list, 4);
    let of = |figure: &str| found[figure]["t"];
    assert_eq!((of(SUCCESS), of("avg@4/success"), of("maj@4/success")), (1.0, 0.5, 1.0));
    // 1 - C(2,2)/C(4,2).
    assert_eq!((of("pass@1/success"), of("pass@4/success")), (0.5, 1.0));
    assert!((of("pass@2/success") - 5.0 / 6.0).abs() < 1e-12);
    assert_eq!(
        (of("tokens"), of("avg@4/tokens"), of("avg@4/reward/a")),
        (3.0, 3.0, 0.25)
    );
    assert!(!found.contains_key("pass@4/tokens") && !found.contains_key("pass@2/reward/a"));
    // The mean over tasks is the figure that `dyad eval` prints.
    let printed = score(&list, 4);
    assert_eq!(row_of(&printed, SUCCESS).pass[&2].mean, of("pass@2/success"));
    assert!(by_task(&list[..1], 0).keys().all(|figure| !figure.contains('@')));
}

#[test]
fn failed_conversations_and_unreadable_answers_do_not_count() {
    let mut list = vec![one("t", Some(0), 1.0, "5"), one("t", Some(1), 0.0, "6")];
    list[1].failed = Some("engine".into());
    list[1].figures.clear();
    let found = score(&list, 2);
    assert_eq!(found.failed, 1);
    let success = row_of(&found, SUCCESS);
    assert_eq!(success.avg.unwrap().mean, 1.0);
    assert!(
        success.pass.is_empty(),
        "every k uses the same tasks: those with all samples"
    );
    assert!(success.maj.is_some());
    list[0].grader = Some(Grader::F1);
    assert_eq!(row_of(&score(&list, 2), SUCCESS).maj, None);
}
