//! `doctor-patient`: a doctor asks a patient, who alone knows the case, and ends with a diagnosis and a recommendation (MrlX's
//! TakesTwo).
//!
//! The doctor earns the overlap of its `diagnosis` and `recommendation` with the case's (F1), `information` for what its
//! questions got out of the patient, and pays for breaking the rules (`compliance`). The patient earns a rubric: it tells what
//! is asked (`complete`), nothing that is not (`control`), and makes nothing up (`consistent`). [`rubric`] judges it by a
//! rule, from the facts of the case; a program of the user's own may judge instead, such as one that asks a large model.
//!
//! A dialogue ends at the doctor's markers, at its last turn, at a turn that its limit cut, or where its next turn would not fit
//! ([`ahead`]); the last two are the status `truncated`. A reply whose limit was what `max_tokens` left does not end it: the
//! doctor is asked for its ending.
//!
//! Profile `mrlx` pays the doctor as the reference does: `information` grows with every turn, a recommendation is punished,
//! several questions at once are looked for in the patient's replies, nobody looks whether a reply was cut, and a doctor that
//! says nothing earns 0 (`aborted`), which is more than many an answer.

mod ahead;
mod rubric;
mod said;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Message};
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;

use super::grading::{Grades, Grading};
use super::params::{Params, check_roles, cut_ends};
use super::program::Program;
use super::prompts::{Prompts, templates};
use super::room::{Room, prompt_of, tokens_of};
use super::transcript::{Transcript, ask, role};
use super::{Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};
use crate::grade::Grader;
use ahead::Ahead;
use rubric::Facts;
use said::{DIAGNOSIS, RECOMMENDATION, Said, Status, ends, named};

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
    /// Of each side's context.
    room: Room,
    /// A turn that its limit cut ends the dialogue.
    cut_ends: bool,
    mrlx: bool,
    /// A program that judges the patient, instead of the rule.
    judge: Option<Grading>,
    prompts: Prompts,
}

impl DoctorPatient {
    pub(super) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { complaint => "?", self_report => "?", question => "?", reply => "?", turns => 10 };
        let named = |name| role(name).map_err(|problem| vec![problem]);
        let patient = named("patient")?;
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
            doctor: named("doctor")?,
            patient,
            turns: params.integer("turns", 10, 1..=256) as u16,
            room: room(&mut params, config),
            cut_ends: cut_ends(&mut params, short),
            mrlx: config.profile == "mrlx",
            judge,
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
        };
        let mut problems = params.finish();
        if !["dyad", "mrlx"].contains(&config.profile.as_str()) {
            let message = format!("{:?} is no profile of doctor-patient: use dyad or mrlx", config.profile);
            problems.push(Problem {
                path: "workflow.profile".into(),
                message,
            });
        }
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

    /// The room of this task's dialogue: what `doctor_last` lays round a reply is kept beside the reserve.
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

    /// What the doctor is told next, and how many tokens it may say to it.
    fn for_doctor(&self, task: &Task, room: Room, said: &Said<'_>) -> (String, Option<u32>) {
        let (message, told) = match said.patient.last() {
            None => {
                let message = self.first_to_doctor(task);
                let told = tokens_of(&message);
                (message, told)
            }
            Some(reply) => {
                let template = if said.hurried { "doctor_last" } else { "doctor_next" };
                let message = self.prompts.text(template, task, context! { reply => reply.text });
                let told = ahead::told(&message, reply);
                (message, told)
            }
        };
        (message, ahead::doctor_limit(room, &said.doctor, told))
    }

    /// What the patient is told of the doctor's last question, and how many tokens it may say to it.
    fn for_patient(&self, task: &Task, room: Room, said: &Said<'_>, asked: &Event) -> (String, Option<u32>) {
        let question = asked.text.as_str();
        let message = if said.patient.is_empty() {
            self.first_to_patient(task, question)
        } else {
            self.prompts.text("patient_next", task, context! { question })
        };
        let told = ahead::told(&message, asked);
        (message, ahead::patient_limit(room, &said.doctor, &said.patient, told))
    }

    /// Whether there is room for each side's first turn, and for the doctor's last one after a prompt of nothing.
    fn check_room(&self, task: &Task) -> Result<(), String> {
        let room = self.room_of(task);
        let first = tokens_of(&self.first_to_doctor(task)).max(tokens_of(&self.first_to_patient(task, "")));
        if room.rest(prompt_of(None, first)) != Some(0) && room.is_left(0) {
            return Ok(());
        }
        Err(format!(
            "workflow.params.max_tokens = {} leaves no room: the longer one of the first messages has {first} bytes (each may be a \
             token), and the reserve with what doctor_last lays round a reply is {}; raise max_tokens, or shorten the templates",
            room.most, room.reserve
        ))
    }

    fn is_cut(&self, event: &Event) -> bool {
        self.cut_ends && event.finish == Finish::Length
    }

    /// The status that the doctor's turn ends the dialogue with. `is_last`: nothing could follow it.
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
        is_last.then_some(Status::Completed)
    }

    fn doctor_parts(&self, task: &Task, said: &Said<'_>) -> Vec<Part> {
        let part = |name, value| Part { name, value };
        if said.status == Status::Aborted {
            let names = ["diagnosis", "recommendation", "information", "compliance"];
            return names.into_iter().map(|name| part(name, 0.0)).collect();
        }
        let last = said.doctor.last().map_or("", |event| event.text.as_str());
        let (diagnosis, recommendation) = (named(last, DIAGNOSIS), named(last, RECOMMENDATION));
        let overlap = |text: Option<&str>, key: &str| text.map_or(0.0, |text| Grader::F1.grade(text, &task.label[key]));
        let replies = said.patient.iter().map(|reply| {
            let refused = reply.text.to_lowercase().contains("sorry");
            if refused { -2.0 } else { 1.0 }
        });
        let total: f32 = replies.sum();
        let information = if self.mrlx {
            total
        } else {
            total / said.patient.len().max(1) as f32
        };
        let asker = if self.mrlx { &said.patient } else { &said.doctor };
        let several = |event: &&&Event| event.text.matches(['?', '？']).count() >= 2;
        let needs = task.label.get("recommendation").is_some_and(|wanted| !wanted.is_null());
        let incomplete = if self.mrlx {
            diagnosis.is_none() || recommendation.is_some()
        } else {
            diagnosis.is_none() || (needs && recommendation.is_none())
        };
        let compliance = -2.0 * asker.iter().filter(several).count() as f32 - if incomplete { 5.0 } else { 0.0 };
        vec![
            part("diagnosis", overlap(diagnosis, "diagnosis")),
            part("recommendation", overlap(recommendation, "recommendation")),
            part("information", information),
            part("compliance", compliance),
        ]
    }

    fn patient_parts(&self, task: &Task, said: &Said<'_>, grades: Option<&Grades<'_>>) -> Vec<Part> {
        let part = |name, value| Part { name, value };
        if let Some(grades) = grades {
            return vec![part("judged", grades.of_text(&self.patient, 0, &said.transcript()))];
        }
        let pairs = said.doctor.iter().zip(&said.patient);
        let pairs = pairs.map(|(question, reply)| (question.text.as_str(), reply.text.as_str()));
        let rubric = rubric::judge(&Facts::of(task), pairs);
        vec![
            part("control", rubric.control),
            part("complete", rubric.complete),
            part("consistent", rubric.consistent),
        ]
    }

    fn done(&self, task: &Task, events: Transcript<'_>, said: &Said<'_>) -> Step {
        let grades = self.judge.as_ref().map(|judge| judge.grades(task, events));
        let seat = |role: &RoleName, parts| SeatReward {
            role: role.clone(),
            seat: 0,
            subkey: String::new(),
            target: None,
            parts,
        };
        let doctor = self.doctor_parts(task, said);
        let value = |name: &str| {
            doctor
                .iter()
                .find(|part| part.name == name)
                .map_or(0.0, |part| f64::from(part.value))
        };
        let diagnosed = said
            .doctor
            .last()
            .is_some_and(|event| named(&event.text, DIAGNOSIS).is_some());
        let mut metrics = vec![
            ("success", f64::from(u8::from(value("diagnosis") == 1.0))),
            ("diagnosis_f1", value("diagnosis")),
            ("recommendation_f1", value("recommendation")),
            ("turns", said.doctor.len() as f64),
            ("diagnosed", f64::from(u8::from(diagnosed))),
        ];
        let flag = |yes: bool| f64::from(u8::from(yes));
        let truncated = [Status::Truncated, Status::Silenced].contains(&said.status);
        metrics.extend([("truncated", flag(truncated)), ("hurried", flag(said.hurried))]);
        if self.mrlx {
            metrics.push(("aborted", flag(said.status == Status::Aborted)));
        }
        let mut rewards = Vec::new();
        // A doctor whom the patient's turn kept from its ending earns nothing, good or bad; nor does one that was never asked.
        if said.status != Status::Silenced && !said.doctor.is_empty() {
            rewards.push(seat(&self.doctor, doctor));
        }
        // A patient that was never asked did nothing; the reference does not train on what was aborted.
        if !said.patient.is_empty() && said.status != Status::Aborted {
            let parts = self.patient_parts(task, said, grades.as_ref());
            let total: f64 = parts.iter().map(|part| f64::from(part.value)).sum();
            metrics.push(("patient_rubric", total / parts.len().max(1) as f64));
            rewards.push(seat(&self.patient, parts));
        }
        let outcome = Outcome { rewards, metrics };
        match grades {
            Some(grades) => grades.settle(outcome),
            None => Step::Done(outcome),
        }
    }
}

fn text_of<'a>(task: &'a Task, key: &str) -> &'a str {
    task.metadata
        .get(key)
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
}

/// `max_tokens` and `reserve`.
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
        Some(2 * usize::from(self.turns) - 1)
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
                task.label
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
