//! Grades of a workflow's answers, by a grader, by a program of the user's own, or by a model,
//! which may be an agent of the run.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, JUDGE, Missing};

use super::program::{Grade, Program, ProgramPlace, Question};
use super::unanswered::is_missing;
use super::{Ask, Event, Outcome, Step, Transcript, UNGRADED, ask};
use crate::grade::Grader;
use crate::judge::Judge;

/// The way answers are graded.
#[derive(Debug, Clone)]
pub enum Grading {
    Rule(Grader),
    /// A program, with the roles that it grades.
    Program(Box<Program>),
}

/// The beginning of the names of roles that grade.
const GRADE: &str = "grade-";

/// Returns the role that `role` grades, or nothing for a role that grades none.
#[must_use]
pub fn graded_role(role: &RoleName) -> Option<&str> {
    role.as_str().strip_prefix(GRADE)
}

/// Returns the role of a program that grades the answers of `role`.
fn grader_of(role: &RoleName) -> RoleName {
    // A role's name is legal, but the new name may be too long; then its end is cut.
    let name: String = format!("{GRADE}{role}").chars().take(32).collect();
    RoleName::new(&name).unwrap_or_else(|_| role.clone())
}

/// Returns a grade as a share from 0 to 1, for metrics such as `success`. A program's grade is a
/// reward, which may be below 0 or above 1.
#[must_use]
pub fn share(grade: f32) -> f64 {
    f64::from(grade.clamp(0.0, 1.0))
}

impl Grading {
    /// Makes the grading for the kind in `[graders.NAME]`.
    ///
    /// # Errors
    /// An unknown kind, or a judge that cannot be used.
    pub fn new(grader: &GraderConfig) -> Result<Self, String> {
        let place = match &grader.judge {
            Some(config) if grader.kind == JUDGE => {
                let judge = Arc::new(Judge::new(config)?);
                Some(match &config.agent {
                    Some(agent) => ProgramPlace::Agent(agent.clone(), judge),
                    None => ProgramPlace::Judge(judge),
                })
            }
            _ => ProgramPlace::read(&grader.kind)?,
        };
        match place {
            None => Grader::of(grader).map(Self::Rule),
            Some(place) => Ok(Self::Program(Box::new(Program {
                place,
                roles: Vec::new(),
                timeout: grader.timeout,
                workers: grader.workers,
                memory: grader.memory,
                missing: grader.missing,
            }))),
        }
    }

    /// Sets the roles that are graded.
    #[must_use]
    pub fn of_roles(self, roles: &[&RoleName]) -> Self {
        match self {
            Self::Program(mut program) => {
                program.roles = roles.iter().map(|role| grader_of(role)).collect();
                Self::Program(program)
            }
            rule => rule,
        }
    }

    /// Returns the grader, if it is a grader of this crate.
    #[must_use]
    pub fn rule(&self) -> Option<Grader> {
        match self {
            Self::Rule(grader) => Some(*grader),
            Self::Program(_) => None,
        }
    }

    /// Checks that the grader can compare with this label. Labels for programs are not checked.
    ///
    /// # Errors
    /// A label that the grader cannot read, in words for the task's publisher.
    pub fn check_label(&self, label: &serde_json::Value) -> Result<(), String> {
        self.rule()
            .map_or(Ok(()), |grader| grader.check_label(label).map_err(String::from))
    }

    /// Returns the programs to ask, for [`super::Workflow::programs`].
    #[must_use]
    pub fn programs(&self) -> Vec<Program> {
        match self {
            Self::Rule(_) => Vec::new(),
            Self::Program(program) => vec![(**program).clone()],
        }
    }

    /// Adds the metric for missing grades. Where grades may stay missing, their share must be a
    /// mean over all conversations.
    fn with_ungraded(&self, mut outcome: Outcome) -> Outcome {
        if let Self::Program(program) = self
            && program.missing == Missing::Tombstone
        {
            outcome.metrics.push((UNGRADED, 0.0));
        }
        outcome
    }

    /// Returns the grades of a conversation once its generations are complete.
    #[must_use]
    pub fn grades<'a>(&'a self, task: &'a Task, events: Transcript<'a>) -> Grades<'a> {
        Grades {
            grading: self,
            task,
            events,
            missing: RefCell::new(Vec::new()),
            lost_for_good: Cell::new(false),
            failed: RefCell::new(None),
        }
    }
}

/// The grades available so far; missing ones of programs are noted as asks.
///
/// An outcome is computed in one pass and discarded if a grade was missing. So grade only when no
/// generation is outstanding, and let no grade decide which other grades are wanted.
pub struct Grades<'a> {
    grading: &'a Grading,
    task: &'a Task,
    events: Transcript<'a>,
    missing: RefCell<Vec<Ask>>,
    /// True if a grade is missing for good.
    lost_for_good: Cell<bool>,
    /// The reason for failure: a grade is missing, and the conversation may not stay without it.
    failed: RefCell<Option<String>>,
}

impl Grades<'_> {
    /// Returns the grade of a seat's answer. A program grades one answer per seat.
    #[must_use]
    pub fn of(&self, event: &Event) -> f32 {
        self.of_text(&event.role, event.seat, &event.text)
    }

    /// Returns the grade of a text of a seat: its answer, or more of the conversation.
    #[must_use]
    pub fn of_text(&self, role: &RoleName, seat: u16, text: &str) -> f32 {
        let own = grader_of(role);
        let program = match self.grading {
            Grading::Rule(grader) => return grader.grade(text, &self.task.label),
            Grading::Program(program) => match &program.place {
                ProgramPlace::Agent(_, judge) => return self.judged(judge, program.missing, &own, (role, seat, text)),
                _ => own,
            },
        };
        let said = self.events.first(&program, seat);
        let grade = said.map(|said| serde_json::from_str::<Grade>(&said.text));
        match grade {
            // Answers are checked before they are committed, so a text that cannot be read here was
            // never an answer.
            Some(grade) => {
                let reward = grade.ok().and_then(|grade| grade.reward);
                self.lost_for_good.set(self.lost_for_good.get() || reward.is_none());
                reward.unwrap_or(0.0) as f32
            }
            None => {
                self.want(&program, role, seat, text);
                0.0
            }
        }
    }

    /// Returns the grade that an agent gives to a text. If its words have no number, the agent gets
    /// the reason and is asked again.
    fn judged(&self, judge: &Judge, missing: Missing, own: &RoleName, said: (&RoleName, u16, &str)) -> f32 {
        let (role, seat, text) = said;
        let mut trouble: Option<String> = None;
        for turn in 0..judge.config.tries.min(u32::from(u16::MAX)) as u16 {
            let Some(event) = self.events.turn(own, seat, turn) else {
                let message = match trouble {
                    None => judge.prompt(role.as_str(), text, self.task),
                    Some(reason) => Ok(judge.again(&reason)),
                };
                return match message {
                    Ok(message) => self.ask_judge(judge, own, (seat, turn), message),
                    Err(reason) => self.lost(missing, format!("{own}: {reason}")),
                };
            };
            if is_missing(event) {
                return self.lost(missing, format!("{own}: its turn failed"));
            }
            match judge.reward(&event.text) {
                Ok(reward) => return reward as f32,
                Err(reason) => trouble = Some(reason),
            }
        }
        let (tries, reason) = (judge.config.tries, trouble.unwrap_or_default());
        self.lost(missing, format!("{own}: {reason} (after {tries} tries)"))
    }

    fn ask_judge(&self, judge: &Judge, own: &RoleName, (seat, turn): (u16, u16), message: String) -> f32 {
        let mut missing = self.missing.borrow_mut();
        if missing.iter().all(|ask| (&ask.role, ask.seat) != (own, seat)) {
            missing.push(Ask {
                turn,
                max_new_tokens: Some(judge.config.max_tokens),
                ..ask(own, seat, vec![Message::user(message)])
            });
        }
        0.0
    }

    /// Records a missing grade, which is never a 0.
    fn lost(&self, missing: Missing, reason: String) -> f32 {
        match missing {
            Missing::Tombstone => self.lost_for_good.set(true),
            Missing::Retry | Missing::Drop => {
                self.failed.borrow_mut().get_or_insert(reason);
            }
        }
        0.0
    }

    fn question(&self, role: &RoleName, text: &str) -> Question {
        Question::Grade {
            role: role.to_string(),
            text: text.to_owned(),
            task: self.task.clone(),
        }
    }

    fn want(&self, program: &RoleName, role: &RoleName, seat: u16, text: &str) {
        let question = self.question(role, text);
        // A question consists of texts and numbers, so it is always JSON.
        let line = serde_json::to_string(&question).unwrap_or_default();
        let mut missing = self.missing.borrow_mut();
        if missing.iter().all(|ask| (&ask.role, ask.seat) != (program, seat)) {
            missing.push(ask(program, seat, vec![Message::user(line)]));
        }
    }

    /// Returns the outcome, or first the asks for missing grades.
    #[must_use]
    pub fn settle(self, outcome: Outcome) -> Step {
        let missing = self.missing.into_inner();
        if !missing.is_empty() {
            return Step::Ask(missing);
        }
        if let Some(reason) = self.failed.into_inner() {
            return Step::Fail(reason);
        }
        if self.lost_for_good.get() {
            // Without the grade the reward is unknown.
            return Step::Done(Outcome {
                rewards: Vec::new(),
                metrics: vec![(UNGRADED, 1.0)],
            });
        }
        Step::Done(self.grading.with_ungraded(outcome))
    }
}

#[cfg(test)]
mod tests;
