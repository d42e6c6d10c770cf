//! The rewards of both sides, and the dialogue's figures.

use broker::RoleName;
use broker::protocol::task::Task;

use super::DoctorPatient;
use super::rubric::{self, Facts};
use super::said::{DIAGNOSIS, RECOMMENDATION, Said, Status, named, paragraph};
use crate::grade::Grader;
use crate::workflow::grading::Grades;
use crate::workflow::transcript::Transcript;
use crate::workflow::{Event, Step};
use crate::workflow::{Outcome, Part, SeatReward};

impl DoctorPatient {
    fn doctor_parts(&self, task: &Task, said: &Said<'_>) -> Vec<Part> {
        let part = |name, value| Part { name, value };
        if said.status == Status::Aborted {
            let names = ["diagnosis", "recommendation", "information", "compliance"];
            return names.into_iter().map(|name| part(name, 0.0)).collect();
        }
        let last = said.doctor.last().map_or("", |event| event.text.as_str());
        let paragraphed = |marker| named(last, marker).map(paragraph);
        let (diagnosis, recommendation) = if self.mrlx {
            // The reference's recommendation is one line.
            let line = named(last, RECOMMENDATION).and_then(|text| text.lines().next());
            (named(last, DIAGNOSIS), line.map(str::trim_end))
        } else {
            (paragraphed(DIAGNOSIS), paragraphed(RECOMMENDATION))
        };
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
        // The reference knows only the narrow mark.
        let marks: &[char] = if self.mrlx { &['?'] } else { &['?', '？'] };
        let several = |event: &&&Event| event.text.matches(marks).count() >= 2;
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

    pub(super) fn done(&self, task: &Task, events: Transcript<'_>, said: &Said<'_>) -> Step {
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
        // A doctor that the patient's turn kept from its ending earns nothing, good or bad. Neither
        // does a doctor that was never asked.
        if said.status != Status::Silenced && !said.doctor.is_empty() {
            rewards.push(seat(&self.doctor, doctor));
        }
        // A patient that was never asked has no reward; the reference does not train on aborted
        // dialogues.
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
