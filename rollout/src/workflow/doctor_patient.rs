//! `doctor-patient`: a doctor asks a patient, who alone knows the case, and ends with a diagnosis and a recommendation (MrlX's
//! TakesTwo).
//!
//! The doctor earns the overlap of its `diagnosis` and `recommendation` with the case's (F1), `information` for what its
//! questions got out of the patient, and pays for breaking the rules (`compliance`). The patient earns a rubric: it tells what
//! is asked (`complete`), nothing that is not (`control`), and makes nothing up (`consistent`). [`rubric`] judges it by a
//! rule, from the facts of the case; a program of the user's own may judge instead, such as one that asks a large model.
//!
//! Profile `mrlx` pays the doctor as the reference does: `information` grows with every turn, a recommendation is punished,
//! and several questions at once are looked for in the patient's replies.

mod rubric;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::{Value, context};

use super::grading::{Grades, Grading};
use super::params::{Params, check_roles};
use super::program::Program;
use super::prompts::{Prompts, templates};
use super::transcript::{Transcript, ask, role};
use super::{Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow};
use crate::grade::Grader;
use rubric::Facts;

const FULL: [(&str, &str); 4] = templates!(
    "doctor-patient/full",
    "doctor",
    "doctor_next",
    "patient",
    "patient_next"
);
const SHORT: [(&str, &str); 4] = templates!(
    "doctor-patient/short",
    "doctor",
    "doctor_next",
    "patient",
    "patient_next"
);

const DIAGNOSIS: &str = "Diagnosis:";
const RECOMMENDATION: &str = "Recommendation:";

pub(super) struct DoctorPatient {
    doctor: RoleName,
    patient: RoleName,
    turns: u16,
    mrlx: bool,
    /// A program that judges the patient, instead of the rule.
    judge: Option<Grading>,
    prompts: Prompts,
}

/// A conversation that has ended.
struct Said<'a> {
    doctor: Vec<&'a Event>,
    patient: Vec<&'a Event>,
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

    fn ask(&self, role: &RoleName, turn: u16, template: &str, context: Value) -> Step {
        let messages = vec![Message::user(self.prompts.text(template, context))];
        let mut ask = ask(role, 0, messages);
        ask.turn = turn;
        Step::Ask(vec![ask])
    }

    fn ask_doctor(&self, turn: u16, task: &Task, reply: Option<&Event>) -> Step {
        match reply {
            None => {
                let (complaint, turns) = (task.prompt.text(), self.turns);
                self.ask(&self.doctor, turn, "doctor", context! { complaint, turns })
            }
            Some(reply) => self.ask(&self.doctor, turn, "doctor_next", context! { reply => reply.text }),
        }
    }

    fn ask_patient(&self, turn: u16, task: &Task, question: &Event) -> Step {
        let question = question.text.as_str();
        if turn > 0 {
            return self.ask(&self.patient, turn, "patient_next", context! { question });
        }
        let (complaint, self_report) = (task.prompt.text(), text_of(task, "self_report"));
        self.ask(
            &self.patient,
            turn,
            "patient",
            context! { complaint, self_report, question },
        )
    }

    fn doctor_parts(&self, task: &Task, said: &Said<'_>) -> Vec<Part> {
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
        let part = |name, value| Part { name, value };
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
            return vec![part("judged", grades.of_text(&self.patient, 0, &transcript(said)))];
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
        let mut rewards = vec![seat(&self.doctor, doctor)];
        // A patient that was never asked did nothing.
        if !said.patient.is_empty() {
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

/// What follows a marker: up to the next marker, or to the end. `None` without the marker or with nothing behind it.
fn named<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let rest = &text[text.rfind(marker)? + marker.len()..];
    let end = [DIAGNOSIS, RECOMMENDATION]
        .iter()
        .filter_map(|other| rest.find(other))
        .min();
    let found = rest[..end.unwrap_or(rest.len())].trim();
    (!found.is_empty()).then_some(found)
}

fn ends(text: &str) -> bool {
    text.contains(DIAGNOSIS) || text.contains(RECOMMENDATION)
}

fn text_of<'a>(task: &'a Task, key: &str) -> &'a str {
    task.metadata
        .get(key)
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default()
}

/// The dialogue as a judge reads it.
fn transcript(said: &Said<'_>) -> String {
    let mut text = String::new();
    for (turn, question) in said.doctor.iter().enumerate() {
        text.push_str(&format!("Doctor: {}\n", question.text));
        if let Some(reply) = said.patient.get(turn) {
            text.push_str(&format!("Patient: {}\n", reply.text));
        }
    }
    text
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
        let events = Transcript(events);
        let mut said = Said {
            doctor: Vec::new(),
            patient: Vec::new(),
        };
        for turn in 0..self.turns {
            let Some(question) = events.turn(&self.doctor, 0, turn) else {
                return self.ask_doctor(turn, task, said.patient.last().copied());
            };
            said.doctor.push(question);
            if ends(&question.text) || turn + 1 == self.turns {
                break;
            }
            let Some(reply) = events.turn(&self.patient, 0, turn) else {
                return self.ask_patient(turn, task, question);
            };
            said.patient.push(reply);
        }
        self.done(task, events, &said)
    }

    fn programs(&self) -> Vec<Program> {
        self.judge.as_ref().map_or_else(Vec::new, Grading::programs)
    }
}

#[cfg(test)]
mod tests;
