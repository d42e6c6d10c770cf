//! `guess-number`: an asker looks for a number that only the answerer knows. The answerer calls
//! each guess too high or too low.
//!
//! Both sides of the dialogue learn: the asker to halve the range, the answerer to compare and to
//! tell the truth. The asker earns `success` and pays for its `turns`. The answerer earns
//! `truthful`, the share of its answers that are true, and its part of the `success`. An answer
//! that is neither `less` nor `more` is not true and counts as silence.
//!
//! A guess that is no number of the range ends the conversation. So does a turn that was cut at its
//! limit (it is no guess, and no true answer) or that does not fit; this is `truncated`. An asker
//! that a cut answer kept from its next guess earns nothing, good or bad.

pub(crate) mod secrets;

use broker::RoleName;
use broker::codec::excerpt;
use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::{Finish, Message};
use configs::{Problem, WorkflowConfig};
use minijinja::context;

use crate::workflow::params::{Params, check_roles, cut_ends};
use crate::workflow::prompts::{Prompts, templates};
use crate::workflow::room::{Room, prompt_of, tokens_of};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Ask, Event, Need, NeedKind, Outcome, RoleSpec, Step, Workflow, last_number};

const FULL: [(&str, &str); 4] = templates!("guess-number/full", "asker", "asker_next", "answerer", "answerer_next");
const SHORT: [(&str, &str); 4] = templates!("guess-number/short", "asker", "asker_next", "answerer", "answerer_next");

/// The key of a task's metadata that has the largest number.
const HIGH: &str = "high";

/// Returns the task of one secret: a number from 0 to `high`.
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
        tools: None,
    }
}

pub(super) struct GuessNumber {
    asker: RoleName,
    answerer: RoleName,
    turns: u16,
    cost: f64,
    share: f64,
    tokens: u32,
    /// The bound of each side's context.
    room: Room,
    /// True if a turn that was cut at its limit ends the conversation.
    cut_ends: bool,
    prompts: Prompts,
}

/// The game as far as it went.
#[derive(Default)]
struct Said {
    guesses: u16,
    answers: u16,
    true_answers: u16,
    found: bool,
    /// True if an invalid guess ended it.
    lost: bool,
    /// True if a turn that was cut, or had no room, ended it.
    truncated: bool,
    /// True if it was the answerer's turn that was cut, so that the asker could not continue.
    silenced: bool,
}

impl GuessNumber {
    pub(super) fn new(config: &WorkflowConfig) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { low => 0, high => 7, turns => 3, secret => 5, guess => 3, answer => "more" };
        let templates = if short { &SHORT } else { &FULL };
        let workflow = Self {
            asker: role("asker")?,
            answerer: role("answerer")?,
            turns: params.integer("turns", 4, 1..=256) as u16,
            cost: params.number("cost", 0.05, 0.0..=1.0),
            share: params.number("lambda", 0.2, 0.0..=100.0),
            tokens: params.integer("max_new_tokens", if short { 1 } else { 4096 }, 1..=1 << 20) as u32,
            room: Room {
                most: params.integer("max_tokens", 0, 0..=1 << 30) as u32,
                reserve: 0,
            },
            cut_ends: cut_ends(&mut params, short),
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

    /// Asks for a seat's turn after its `own` last one; `None` if there is no room for any.
    fn ask(&self, role: &RoleName, turn: u16, own: Option<&Event>, message: String) -> Option<Step> {
        let limit = self.limit(own, &message);
        let asked = Ask {
            turn,
            max_new_tokens: Some(limit),
            ..ask(role, 0, vec![Message::user(message)])
        };
        (limit > 0).then(|| Step::Ask(vec![asked]))
    }

    /// Returns the asker's message for this answer.
    fn for_asker(&self, task: &Task, high: u64, before: Option<&Event>) -> String {
        match before {
            None => {
                let turns = self.turns;
                self.prompts.text("asker", task, context! { low => 0, high, turns })
            }
            Some(answer) => {
                let answer = read_answer(&answer.text).unwrap_or_default();
                self.prompts.text("asker_next", task, context! { answer })
            }
        }
    }

    fn for_answerer(&self, task: &Task, turn: u16, secret: u64, guess: u64) -> String {
        let template = if turn == 0 { "answerer" } else { "answerer_next" };
        self.prompts.text(template, task, context! { secret, guess })
    }

    /// Returns the limit of tokens for a seat after its `own` last turn and a message; the message
    /// counts by its bytes.
    fn limit(&self, own: Option<&Event>, message: &str) -> u32 {
        let rest = self.room.rest(prompt_of(own, tokens_of(message)));
        rest.map_or(self.tokens, |rest| rest.min(self.tokens))
    }

    fn is_cut(&self, event: &Event) -> bool {
        self.cut_ends && event.finish == Finish::Length
    }

    fn outcome(&self, said: &Said) -> Outcome {
        let success = f64::from(u8::from(said.found));
        let truthful = f64::from(said.true_answers) / f64::from(said.answers.max(1));
        let turns = f64::from(said.guesses);
        let mut rewards = Vec::new();
        if said.guesses > 0 && !said.silenced {
            let parts = [("success", success as f32), ("turns", turns as f32)];
            rewards.push(reward(&self.asker, 0, &parts));
        }
        let mut metrics = vec![
            ("success", success),
            ("guesses", turns),
            ("guess_unparsed", f64::from(u8::from(said.lost))),
            ("truncated", f64::from(u8::from(said.truncated))),
        ];
        if said.answers > 0 {
            let parts = [("truthful", truthful as f32), ("success", success as f32)];
            rewards.push(reward(&self.answerer, 0, &parts));
            metrics.push(("truthful", truthful));
        }
        Outcome { rewards, metrics }
    }
}

/// Returns `less` or `more`, if an answer has one of them and not both.
fn read_answer(answer: &str) -> Option<&'static str> {
    let answer = answer.to_ascii_lowercase();
    let has = |wanted: &str| answer.split(|c: char| !c.is_alphanumeric()).any(|word| word == wanted);
    match (has("less"), has("more")) {
        (true, false) => Some("less"),
        (false, true) => Some("more"),
        _ => None,
    }
}

/// Returns the last number of a guess, if it is in the range.
fn number(guess: &str, high: u64) -> Option<u64> {
    last_number(guess).filter(|number| *number <= high)
}

/// Returns the secret and its largest possible value.
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

    fn needs(&self, task: &Task) -> Vec<Need> {
        let need = |(secret, _)| Need {
            role: self.asker.clone(),
            field: "label",
            kind: NeedKind::SayNumber(secret),
            limit: Some((self.tokens, "workflow.params.max_new_tokens")),
        };
        secret(task).map(need).into_iter().collect()
    }

    fn whole_turn(&self, _role: &RoleName) -> Option<u32> {
        (!self.cut_ends).then_some(self.tokens)
    }

    fn most_turns(&self) -> Option<usize> {
        Some(2 * usize::from(self.turns) - 1)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        if task.prompt.has_images() {
            return Err("the prompt has an image, and this workflow shows none".into());
        }
        let Some((_, high)) = secret(task) else {
            let high = task.metadata.get(HIGH);
            return Err(match high.map(|high| (high, high.is_u64())) {
                None => format!("metadata.{HIGH} is missing; write there the largest number that the secret may be"),
                Some((high, false)) => format!(
                    "metadata.{HIGH} is {}; write there the largest number that the secret may be",
                    excerpt(high)
                ),
                Some((high, true)) => format!(
                    "the label is {}; it is the secret, a whole number from 0 to {high}, the one under metadata.{HIGH}",
                    excerpt(&task.label)
                ),
            });
        };
        let message = self.for_asker(task, high, None);
        if self.limit(None, &message) == 0 {
            return Err(format!(
                "workflow.params.max_tokens = {} leaves no room after the asker's first message of {} bytes (each may be a \
                 token): raise it, or shorten the template",
                self.room.most,
                message.len()
            ));
        }
        Ok(())
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        // A task without a secret was rejected before; its outcome is no success.
        let (secret, high) = secret(task).unwrap_or((u64::MAX, 0));
        let (mut said, mut guessed, mut answered) = (Said::default(), None, None);
        for turn in 0..self.turns {
            let Some(event) = events.turn(&self.asker, 0, turn) else {
                let message = self.for_asker(task, high, answered);
                if let Some(step) = self.ask(&self.asker, turn, guessed, message) {
                    return step;
                }
                said.truncated = true;
                break;
            };
            guessed = Some(event);
            said.guesses += 1;
            if self.is_cut(event) {
                said.truncated = true;
                break;
            }
            let Some(guess) = number(&event.text, high) else {
                said.lost = true;
                break;
            };
            said.found = guess == secret;
            // The answer to the last guess has no reader.
            if said.found || turn + 1 == self.turns {
                break;
            }
            let Some(answer) = events.turn(&self.answerer, 0, turn) else {
                let message = self.for_answerer(task, turn, secret, guess);
                if let Some(step) = self.ask(&self.answerer, turn, answered, message) {
                    return step;
                }
                said.truncated = true;
                break;
            };
            answered = Some(answer);
            said.answers += 1;
            if self.is_cut(answer) {
                (said.truncated, said.silenced) = (true, true);
                break;
            }
            let truth = if secret < guess { "less" } else { "more" };
            said.true_answers += u16::from(read_answer(&answer.text) == Some(truth));
        }
        Step::Done(self.outcome(&said))
    }
}

#[cfg(test)]
mod tests;
