//! `doctor-patient`: a doctor asks a patient, and only the patient knows the case. The doctor ends
//! with a diagnosis and a recommendation (MrlX's TakesTwo).
//!
//! The doctor earns the overlap of its `diagnosis` and `recommendation` with the case's (F1), and
//! `information` for what its questions got out of the patient. It pays for breaking the rules
//! (`compliance`). The patient earns a rubric: it tells what is asked (`complete`), nothing that is
//! not (`control`), and makes nothing up (`consistent`). [`rubric`] judges it by a rule, from the
//! facts of the case. A program of the user's own may judge instead, for example one that asks a
//! large model.
//!
//! A dialogue ends at the doctor's markers, at its last turn, at a turn that was cut at its limit,
//! or where its next turn would not fit ([`ahead`]). The last two give the status `truncated`. A
//! reply that was cut by the rest of `max_tokens` does not end it: the doctor is asked for its
//! ending.
//!
//! Profile `mrlx` pays the doctor as the reference does. `information` grows with every turn, and a
//! recommendation is punished. Several questions at once are detected in the patient's replies, and
//! by `?` alone. A cut reply is not detected. The patient replies to the doctor's last turn too. A
//! silent doctor earns 0 (`aborted`), which is more than many answers earn.

mod ahead;
mod earned;
mod rubric;
mod said;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::codec::excerpt;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Message};
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;

use crate::workflow::grading::Grading;
use crate::workflow::params::{Params, check_roles, cut_ends};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates};
use crate::workflow::room::{Room, prompt_of, tokens_of};
use crate::workflow::transcript::{Transcript, ask, role};
use crate::workflow::{Event, RoleSpec, Step, Workflow};
use ahead::Ahead;
use rubric::Facts;
use said::{Said, Status, ends};

const FULL: [(&str, &str); 5] = templates!(
    "doctor-patient/full",
    "doctor",
    "doctor_next",
    "doctor_last",
    "patient",
    "patient_next"
);
const SHORT: [(&str, &str); 5] = templates!(
    "doctor-patient/short",
    "doctor",
    "doctor_next",
    "doctor_last",
    "patient",
    "patient_next"
);

pub(super) struct DoctorPatient {
    doctor: RoleName,
    patient: RoleName,
    turns: u16,
    /// The bound of each side's context.
    room: Room,
    /// True if a turn that was cut at its limit ends the dialogue.
    cut_ends: bool,
    mrlx: bool,
    /// A program that judges the patient instead of the rule.
    judge: Option<Grading>,
    prompts: Prompts,
}

impl DoctorPatient {
    pub(super) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { complaint => "?", self_report => "?", question => "?", reply => "?", turns => 10 };
        let patient = role("patient")?;
        let judge = params.text("judge", "facts");
        let judge = match (judge.as_str(), graders.get(&judge)) {
            ("facts", _) => None,
            (_, Some(config)) => match Grading::new(config) {
                Ok(Grading::Program(program)) => Some(Grading::Program(program).of_roles(&[&patient])),
                Ok(Grading::Rule(_)) => {
                    params.problem(
                        "judge",
                        "a patient is judged by \"facts\", by a model (kind = \"judge\") or by a program (\"process:FILE\", \"remote:NAME\")",
                    );
                    None
                }
                Err(message) => {
                    params.problem("judge", message);
                    None
                }
            },
            (name, None) => {
                params.problem(
                    "judge",
                    format!("there is no [graders.{name}]; write \"facts\" or the name of one"),
                );
                None
            }
        };
        let workflow = Self {
            doctor: role("doctor")?,
            patient,
            turns: params.integer("turns", 10, 1..=256) as u16,
            room: room(&mut params, config),
            cut_ends: cut_ends(&mut params, short),
            mrlx: config.profile == "mrlx",
            judge,
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    fn ask(role: &RoleName, (turn, limit): (u16, Option<u32>), message: String) -> Step {
        let mut ask = ask(role, 0, vec![Message::user(message)]);
        (ask.turn, ask.max_new_tokens) = (turn, limit);
        Step::Ask(vec![ask])
    }

    /// Returns the room of this task's dialogue. The text that `doctor_last` adds around a reply is
    /// added to the reserve.
    fn room_of(&self, task: &Task) -> Room {
        if self.room.most == 0 {
            return self.room;
        }
        let around = tokens_of(&self.prompts.text("doctor_last", task, context! { reply => "" }));
        let around = u32::try_from(around).unwrap_or(u32::MAX);
        Room {
            reserve: self.room.reserve.saturating_add(around),
            ..self.room
        }
    }

    fn first_to_doctor(&self, task: &Task) -> String {
        let (complaint, turns) = (task.prompt.text(), self.turns);
        self.prompts.text("doctor", task, context! { complaint, turns })
    }

    fn first_to_patient(&self, task: &Task, question: &str) -> String {
        let (complaint, self_report) = (task.prompt.text(), text_of(task, "self_report"));
        let variables = context! { complaint, self_report, question };
        self.prompts.text("patient", task, variables)
    }

    /// Returns the doctor's next messages, and the limit of tokens for its answer.
    fn for_doctor(&self, task: &Task, room: Room, said: &Said<'_>) -> (String, Option<u32>) {
        let (message, tokens) = match said.patient.last() {
            None => {
                let message = self.first_to_doctor(task);
                let tokens = tokens_of(&message);
                (message, tokens)
            }
            Some(reply) => {
                let template = if said.hurried { "doctor_last" } else { "doctor_next" };
                let message = self.prompts.text(template, task, context! { reply => reply.text });
                let tokens = ahead::message_tokens(&message, reply);
                (message, tokens)
            }
        };
        (message, ahead::doctor_limit(room, &said.doctor, tokens))
    }

    /// Returns the message with the doctor's last question for the patient, and the limit of tokens
    /// for the reply.
    fn for_patient(&self, task: &Task, room: Room, said: &Said<'_>, asked: &Event) -> (String, Option<u32>) {
        let question = asked.text.as_str();
        let message = if said.patient.is_empty() {
            self.first_to_patient(task, question)
        } else {
            self.prompts.text("patient_next", task, context! { question })
        };
        let tokens = ahead::message_tokens(&message, asked);
        (message, ahead::patient_limit(room, &said.doctor, &said.patient, tokens))
    }

    /// Checks that there is room for each side's first turn, and for the doctor's last one after an
    /// empty prompt.
    fn check_room(&self, task: &Task) -> Result<(), String> {
        let room = self.room_of(task);
        let first = tokens_of(&self.first_to_doctor(task)).max(tokens_of(&self.first_to_patient(task, "")));
        if room.rest(prompt_of(None, first)) != Some(0) && room.is_left(0) {
            return Ok(());
        }
        Err(format!(
            "workflow.params.max_tokens = {} leaves no room: the longer one of the first messages has {first} bytes (each may be a \
             token), and the reserve with the text of doctor_last around a reply is {}; raise max_tokens, or shorten the templates",
            room.most, room.reserve
        ))
    }

    fn is_cut(&self, event: &Event) -> bool {
        self.cut_ends && event.finish == Finish::Length
    }

    /// Returns the status with which the doctor's turn ends the dialogue. `is_last` is true if the
    /// doctor has no further turn. The reference then still asks the patient, which pays the doctor
    /// for the reply.
    fn ended_by(&self, said: &Event, is_last: bool, hurried: bool) -> Option<Status> {
        if self.mrlx && said.text.trim().is_empty() {
            return Some(Status::Aborted);
        }
        if ends(&said.text) {
            return Some(Status::Completed);
        }
        if self.is_cut(said) || hurried {
            return Some(Status::Truncated);
        }
        (is_last && !self.mrlx).then_some(Status::Completed)
    }
}

fn text_of<'a>(task: &'a Task, key: &str) -> &'a str {
    task.metadata
        .get(key)
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
}

/// Takes `max_tokens` and `reserve`.
fn room(params: &mut Params<'_>, config: &WorkflowConfig) -> Room {
    const MOST: i64 = 1 << 30;
    let most = params.integer("max_tokens", 0, 0..=MOST);
    let reserve = params.integer("reserve", (most / 4).min(1024), 0..=MOST);
    if most == 0 && config.params.contains_key("reserve") {
        params.problem("reserve", "is a part of max_tokens: give that too, or remove this");
    } else if most > 0 && reserve >= most {
        params.problem(
            "reserve",
            format!("{reserve} leaves nothing of max_tokens = {most}: write less"),
        );
    }
    Room {
        most: most as u32,
        reserve: reserve as u32,
    }
}

impl Workflow for DoctorPatient {
    fn kind(&self) -> &'static str {
        "doctor-patient"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let patient = match &self.judge {
            Some(_) => vec![("judged", 1.0)],
            None => vec![("control", 1.0), ("complete", 1.0), ("consistent", 1.0)],
        };
        vec![
            RoleSpec {
                name: self.doctor.clone(),
                parts: vec![
                    ("diagnosis", 5.0),
                    ("recommendation", 5.0),
                    ("information", 1.0),
                    ("compliance", 1.0),
                ],
            },
            RoleSpec {
                name: self.patient.clone(),
                parts: patient,
            },
        ]
    }

    fn most_turns(&self) -> Option<usize> {
        Some(2 * usize::from(self.turns) - usize::from(!self.mrlx))
    }

    /// Under `cut = "heard"` the game goes on with every turn that says something.
    fn whole_turn(&self, _role: &RoleName) -> Option<u32> {
        (!self.cut_ends).then_some(1)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        self.check_room(task)?;
        if task.prompt.has_images() {
            return Err("the prompt has an image, and this workflow shows none".into());
        }
        if !task.label.get("diagnosis").is_some_and(serde_json::Value::is_string) {
            return Err(format!(
                "the label is {}; it is an object with a text under \"diagnosis\", and one under \"recommendation\" if wanted",
                excerpt(&task.label)
            ));
        }
        if text_of(task, "self_report").is_empty() {
            return Err("metadata.self_report is missing: what the patient knows".into());
        }
        if self.judge.is_none() && Facts::of(task).is_empty() {
            return Err(
                "metadata.facts is missing: an object of texts, what may be asked and the true answer; or name a judge"
                    .into(),
            );
        }
        Ok(())
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (events, room) = (Transcript(events), self.room_of(task));
        let (mut said, mut of_room) = (Said::default(), false);
        for turn in 0..self.turns {
            let ahead = ahead::of_doctor(room, &said.doctor, &said.patient);
            if ahead == Ahead::Full {
                said.status = Status::Truncated;
                break;
            }
            let is_last = turn + 1 == self.turns;
            said.hurried = (ahead == Ahead::Last || of_room) && !is_last;
            let Some(question) = events.turn(&self.doctor, 0, turn) else {
                let (message, limit) = self.for_doctor(task, room, &said);
                if limit == Some(0) {
                    (said.status, said.hurried) = (Status::Truncated, false);
                    break;
                }
                return Self::ask(&self.doctor, (turn, limit), message);
            };
            said.doctor.push(question);
            if let Some(status) = self.ended_by(question, is_last, said.hurried) {
                said.status = status;
                break;
            }
            let Some(reply) = events.turn(&self.patient, 0, turn) else {
                let (message, limit) = self.for_patient(task, room, &said, question);
                if limit == Some(0) {
                    said.status = Status::Truncated;
                    break;
                }
                return Self::ask(&self.patient, (turn, limit), message);
            };
            if !self.mrlx && self.is_cut(reply) {
                let (_, limit) = self.for_patient(task, room, &said, question);
                of_room = limit.is_some_and(|limit| reply.tokens >= limit);
                if !of_room {
                    said.status = Status::Silenced;
                }
            }
            said.patient.push(reply);
            if said.status == Status::Silenced {
                break;
            }
        }
        self.done(task, events, &said)
    }

    fn programs(&self) -> Vec<Program> {
        self.judge.as_ref().map_or_else(Vec::new, Grading::programs)
    }
}

#[cfg(test)]
mod tests;
