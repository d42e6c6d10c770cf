//! `guess-number`: an asker looks for a number that only the answerer knows, by guesses that the answerer calls too high or too
//! low.
//!
//! A dialogue in which both learn: the asker to halve what is left, the answerer to compare and to say the truth. The asker
//! earns `success` and pays for its `turns`; the answerer earns `truthful`, the part of its answers that are true, and its
//! share of the `success`. An answer that is neither `less` nor `more` is not true and is heard as silence. A guess that is no
//! number of the range ends the conversation.

use broker::RoleName;
use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::Message;
use configs::{Problem, WorkflowConfig};
use minijinja::{Value, context};

use super::params::{Params, check_roles};
use super::prompts::{Prompts, templates};
use super::transcript::{Transcript, ask, role};
use super::{Ask, Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};

const FULL: [(&str, &str); 4] = templates!("guess-number/full", "asker", "asker_next", "answerer", "answerer_next");
const SHORT: [(&str, &str); 4] = templates!("guess-number/short", "asker", "asker_next", "answerer", "answerer_next");

/// The key of a task's metadata that has the largest number.
const HIGH: &str = "high";

/// The task of one secret: a number from 0 to `high`.
#[must_use]
pub fn secret_task(secret: u64, high: u64) -> Task {
    let mut metadata = serde_json::Map::new();
    metadata.insert(HIGH.into(), high.into());
    Task {
        id: None,
        workflow: Some("guess-number".into()),
        prompt: Prompt::Text(format!("0 to {high}")),
        label: secret.into(),
        metadata,
    }
}

pub(super) struct GuessNumber {
    asker: RoleName,
    answerer: RoleName,
    turns: u16,
    cost: f64,
    share: f64,
    tokens: u32,
    prompts: Prompts,
}

/// What has been said, as far as it went.
#[derive(Default)]
struct Said {
    guesses: u16,
    answers: u16,
    true_answers: u16,
    found: bool,
    /// A guess that was none ended it.
    lost: bool,
}

impl GuessNumber {
    pub(super) fn new(config: &WorkflowConfig) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { low => 0, high => 7, turns => 3, secret => 5, guess => 3, answer => "more" };
        let templates = if short { &SHORT } else { &FULL };
        let named = |name| role(name).map_err(|problem| vec![problem]);
        let workflow = Self {
            asker: named("asker")?,
            answerer: named("answerer")?,
            turns: params.integer("turns", 4, 1..=256) as u16,
            cost: params.number("cost", 0.05, 0.0..=1.0),
            share: params.number("lambda", 0.2, 0.0..=100.0),
            tokens: params.integer("max_new_tokens", if short { 1 } else { 4096 }, 1..=1 << 20) as u32,
            prompts: Prompts::new(templates, &mut params, &sample),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    fn ask(&self, role: &RoleName, turn: u16, template: &str, context: Value) -> Step {
        let messages = vec![Message::user(self.prompts.text(template, context))];
        Step::Ask(vec![Ask {
            turn,
            max_new_tokens: Some(self.tokens),
            ..ask(role, 0, messages)
        }])
    }

    fn ask_for_guess(&self, turn: u16, high: u64, before: Option<&Event>) -> Step {
        match before {
            None => {
                let turns = self.turns;
                self.ask(&self.asker, turn, "asker", context! { low => 0, high, turns })
            }
            Some(answer) => {
                let answer = heard(&answer.text).unwrap_or_default();
                self.ask(&self.asker, turn, "asker_next", context! { answer })
            }
        }
    }

    fn ask_for_answer(&self, turn: u16, secret: u64, guess: u64) -> Step {
        let template = if turn == 0 { "answerer" } else { "answerer_next" };
        self.ask(&self.answerer, turn, template, context! { secret, guess })
    }

    fn outcome(&self, said: &Said) -> Outcome {
        let part = |name, value: f64| Part {
            name,
            value: value as f32,
        };
        let seat = |role: &RoleName, parts| SeatReward {
            role: role.clone(),
            seat: 0,
            subkey: String::new(),
            target: None,
            parts,
        };
        let success = f64::from(u8::from(said.found));
        let truthful = f64::from(said.true_answers) / f64::from(said.answers.max(1));
        let turns = f64::from(said.guesses);
        let mut rewards = vec![seat(&self.asker, vec![part("success", success), part("turns", turns)])];
        let mut metrics = vec![
            ("success", success),
            ("guesses", turns),
            ("guess_unparsed", f64::from(u8::from(said.lost))),
        ];
        if said.answers > 0 {
            rewards.push(seat(
                &self.answerer,
                vec![part("truthful", truthful), part("success", success)],
            ));
            metrics.push(("truthful", truthful));
        }
        Outcome { rewards, metrics }
    }
}

/// `less` or `more`, if an answer is one of them and not both.
fn heard(answer: &str) -> Option<&'static str> {
    let answer = answer.to_ascii_lowercase();
    let has = |wanted: &str| answer.split(|c: char| !c.is_alphanumeric()).any(|word| word == wanted);
    match (has("less"), has("more")) {
        (true, false) => Some("less"),
        (false, true) => Some("more"),
        _ => None,
    }
}

/// The last number of a guess, if it is in the range.
fn number(guess: &str, high: u64) -> Option<u64> {
    let digits = guess
        .split(|c: char| !c.is_ascii_digit())
        .rfind(|digits| !digits.is_empty())?;
    digits.parse().ok().filter(|number| *number <= high)
}

/// The secret and the largest number it may be.
fn secret(task: &Task) -> Option<(u64, u64)> {
    let high = task.metadata.get(HIGH)?.as_u64()?;
    let secret = task.label.as_u64()?;
    (secret <= high).then_some((secret, high))
}

impl Workflow for GuessNumber {
    fn kind(&self) -> &'static str {
        "guess-number"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts| RoleSpec {
            name: name.clone(),
            parts,
        };
        vec![
            spec(&self.asker, vec![("success", 1.0), ("turns", -self.cost)]),
            spec(&self.answerer, vec![("truthful", 1.0), ("success", self.share)]),
        ]
    }

    fn most_turns(&self) -> Option<usize> {
        Some(2 * usize::from(self.turns) - 1)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        if task.prompt.has_images() {
            return Err("the prompt has an image, and this workflow shows none".into());
        }
        match secret(task) {
            Some(_) => Ok(()),
            None => Err(format!(
                "the label is {}; it is the secret, a whole number from 0 to the one under metadata.{HIGH}",
                task.label
            )),
        }
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        // A task without a secret was refused; whatever comes of it is no success.
        let (secret, high) = secret(task).unwrap_or((u64::MAX, 0));
        let (mut said, mut before) = (Said::default(), None);
        for turn in 0..self.turns {
            let Some(guess) = events.turn(&self.asker, 0, turn) else {
                return self.ask_for_guess(turn, high, before);
            };
            said.guesses += 1;
            let Some(guess) = number(&guess.text, high) else {
                said.lost = true;
                break;
            };
            said.found = guess == secret;
            // Nobody hears an answer to the last guess.
            if said.found || turn + 1 == self.turns {
                break;
            }
            let Some(answer) = events.turn(&self.answerer, 0, turn) else {
                return self.ask_for_answer(turn, secret, guess);
            };
            said.answers += 1;
            let truth = if secret < guess { "less" } else { "more" };
            said.true_answers += u16::from(heard(&answer.text) == Some(truth));
            before = Some(answer);
        }
        Step::Done(self.outcome(&said))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{any_events, check_total, config, event, problems, task};
    use super::*;
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

    /// Plays with an asker that halves what is left by what it hears, and this answerer.
    fn play(game: &GuessNumber, task: &Task, answer: impl Fn(u64, u64) -> &'static str) -> Outcome {
        let (secret, high) = secret(task).unwrap();
        let (mut low, mut top, mut guess, mut events) = (0, high, 0, Vec::new());
        loop {
            let asks = match game.step(task, 0, &events) {
                Step::Done(outcome) => return outcome,
                Step::Ask(asks) => asks,
                Step::Fail(reason) => panic!("{reason}"),
            };
            let (ask, heard) = (&asks[0], asks[0].messages[0].content.as_str());
            let text = if ask.role.as_str() == "answerer" {
                answer(secret, guess).to_owned()
            } else {
                match heard {
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
        for (role, turn, heard, says) in expected {
            assert_eq!(content(&events), (role.to_owned(), turn, heard.to_owned()));
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
    fn a_guess_that_is_none_ends_it_and_an_answerer_that_never_spoke_earns_nothing() {
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
        }
    }
}
