//! Scripted games: their outcomes, and when they end.

use super::*;
use crate::workflow::Part;
use crate::workflow::testing::{any_events, check_total, config, event, problems, task};
use proptest::prelude::*;

fn game(params: &str) -> GuessNumber {
    GuessNumber::new(&config("guess-number", &["asker", "answerer"], params)).unwrap()
}

fn said(role: &str, turn: u16, text: &str) -> Event {
    Event {
        turn,
        ..event(role, 0, text)
    }
}

/// Plays with an asker that halves the range by the answers it gets, and with this answerer.
fn play(game: &GuessNumber, task: &Task, answer: impl Fn(u64, u64) -> &'static str) -> Outcome {
    let (secret, high) = secret(task).unwrap();
    let (mut low, mut top, mut guess, mut events) = (0, high, 0, Vec::new());
    loop {
        let asks = match game.step(task, 0, &events) {
            Step::Done(outcome) => return outcome,
            Step::Ask(asks) => asks,
            Step::Fail(reason) => panic!("{reason}"),
        };
        let (ask, message) = (&asks[0], asks[0].messages[0].content.as_str());
        let text = if ask.role.as_str() == "answerer" {
            answer(secret, guess).to_owned()
        } else {
            match message {
                "less" => top = guess.saturating_sub(1),
                "more" => low = guess + 1,
                _ => {}
            }
            guess = low.midpoint(top.max(low)).min(high);
            guess.to_string()
        };
        events.push(said(ask.role.as_str(), ask.turn, &text));
    }
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    outcome.metrics.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn halving_with_true_answers_finds_every_secret() {
    let game = game("prompts = \"short\"");
    for secret in 0..8 {
        let outcome = play(&game, &secret_task(secret, 7), |secret, guess| {
            if secret < guess { "less" } else { "more" }
        });
        assert_eq!(metric(&outcome, "success"), 1.0, "{secret}");
    }
}

#[test]
fn a_liar_misleads_and_earns_nothing() {
    let game = game("prompts = \"short\"");
    let outcome = play(
        &game,
        &secret_task(6, 7),
        |secret, guess| if secret < guess { "more" } else { "less" },
    );
    assert_eq!((metric(&outcome, "success"), metric(&outcome, "truthful")), (0.0, 0.0));
}

#[test]
fn the_answerer_alone_knows_the_secret_and_each_hears_the_other() {
    let game = game("prompts = \"short\"");
    let task = secret_task(5, 7);
    let content = |events: &[Event]| match game.step(&task, 0, events) {
        Step::Ask(asks) => (
            asks[0].role.to_string(),
            asks[0].turn,
            asks[0].messages[0].content.clone(),
        ),
        other => panic!("{other:?}"),
    };
    let mut events = Vec::new();
    let expected = [
        ("asker", 0, "go", "3"),
        ("answerer", 0, "5 3", "more"),
        ("asker", 1, "more", "6"),
        ("answerer", 1, "6", "hm"),
        ("asker", 2, "", "4"),
        ("answerer", 2, "4", "more"),
    ];
    for (role, turn, message, says) in expected {
        assert_eq!(content(&events), (role.to_owned(), turn, message.to_owned()));
        events.push(said(role, turn, says));
    }
    events.push(said("asker", 3, "it is 5"));
    let Step::Done(outcome) = game.step(&task, 0, &events) else {
        panic!()
    };
    assert_eq!(metric(&outcome, "success"), 1.0);
    assert!((metric(&outcome, "truthful") - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(
        outcome.rewards[0].parts[1],
        Part {
            name: "turns",
            value: 4.0
        }
    );
}

#[test]
fn an_invalid_guess_ends_it_and_a_silent_answerer_earns_nothing() {
    let game = game("");
    for guess in ["less", "", "8", "99999999999999999999999"] {
        let Step::Done(outcome) = game.step(&secret_task(5, 7), 0, &[said("asker", 0, guess)]) else {
            panic!("{guess:?}")
        };
        assert_eq!((outcome.rewards.len(), metric(&outcome, "guess_unparsed")), (1, 1.0));
    }
    assert!(game.check_task(&secret_task(8, 7)).is_err());
    assert!(game.check_task(&task("0 to 7", 3.into())).is_err());
}

#[test]
fn a_turn_that_its_limit_cut_ends_it() {
    let cut = |role: &str, text: &str| Event {
        finish: Finish::Length,
        ..said(role, 0, text)
    };
    let task = secret_task(5, 7);
    let earners =
        |outcome: &Outcome| -> Vec<String> { outcome.rewards.iter().map(|seat| seat.role.to_string()).collect() };
    let guessed = [cut("asker", "is it 5, or rather")];
    let Step::Done(outcome) = game("").step(&task, 0, &guessed) else {
        panic!()
    };
    assert_eq!((metric(&outcome, "success"), metric(&outcome, "truncated")), (0.0, 1.0));
    assert_eq!(earners(&outcome), ["asker"]);
    let answered = [said("asker", 0, "3"), cut("answerer", "more, for")];
    let Step::Done(outcome) = game("").step(&task, 0, &answered) else {
        panic!()
    };
    assert_eq!(
        (metric(&outcome, "truthful"), metric(&outcome, "truncated")),
        (0.0, 1.0)
    );
    assert_eq!(earners(&outcome), ["answerer"], "the asker cannot help it");
    for counted in ["prompts = \"short\"", "cut = \"heard\""] {
        let Step::Ask(asks) = game(counted).step(&task, 0, &answered) else {
            panic!("{counted}")
        };
        assert_eq!((asks[0].role.as_str(), asks[0].turn), ("asker", 1));
    }
}

#[test]
fn a_turn_without_room_is_not_asked_for() {
    let game = game("max_tokens = 1000\nmax_new_tokens = 60");
    let task = secret_task(5, 7);
    let counted = |role: &str, turn: u16, text: &str, prompt: u32, tokens: u32| Event {
        prompt,
        tokens,
        ..said(role, turn, text)
    };
    let limit = |events: &[Event]| match game.step(&task, 0, events) {
        Step::Ask(asks) => asks[0].max_new_tokens,
        other => panic!("{other:?}"),
    };
    let mut events = vec![counted("asker", 0, "3", 930, 10)];
    assert_eq!((limit(&[]), limit(&events)), (Some(60), Some(60)));
    // A partner's turn, here of 500 tokens with its reasoning, counts by the line that is passed
    // on: "My number is more than that."
    events.push(counted("answerer", 0, "more", 420, 500));
    assert_eq!(limit(&events), Some(1000 - (930 + 10 + 28 + 16)));
    events.push(counted("asker", 1, "4", 964, 16));
    // "Guess: 4"
    assert_eq!(limit(&events), Some(1000 - (420 + 500 + 8 + 16)));
    events.push(counted("answerer", 1, "more", 944, 5));
    // The asker's next prompt would have 1024 tokens.
    let Step::Done(outcome) = game.step(&task, 0, &events) else {
        panic!()
    };
    assert_eq!(
        (metric(&outcome, "truncated"), metric(&outcome, "truthful")),
        (1.0, 1.0)
    );
}

#[test]
fn a_first_turn_has_a_limit_by_the_bytes_of_its_message() {
    let task = secret_task(5, 7);
    let (wide, tight) = (game("max_tokens = 300"), game("max_tokens = 100"));
    let Step::Ask(asks) = wide.step(&task, 0, &[]) else {
        panic!()
    };
    let bytes = asks[0].messages[0].content.len() as u32;
    assert_eq!(asks[0].max_new_tokens, Some(300 - bytes - 16));
    assert!(wide.check_task(&task).is_ok());
    assert!(tight.check_task(&task).unwrap_err().contains("max_tokens = 100"));
    let Step::Done(outcome) = tight.step(&task, 0, &[]) else {
        panic!()
    };
    assert_eq!((outcome.rewards.len(), metric(&outcome, "truncated")), (0, 1.0));
}

#[test]
fn what_is_wrong_is_named() {
    let found = problems(GuessNumber::new(&config("guess-number", &["asker"], "turns = 0\nspeed = 1")).map(|_| ()));
    assert_eq!(
        found,
        [
            "workflow.params.speed",
            "workflow.params.turns",
            "workflow.roles.answerer"
        ]
    );
}

proptest! {
    #[test]
    fn any_list_of_events_is_answered(events in any_events(), secret in 0..8u64) {
        check_total(&game(""), &secret_task(secret, 7), &events)?;
        check_total(&game("max_tokens = 300"), &secret_task(secret, 7), &events)?;
    }
}
