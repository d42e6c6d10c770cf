//! What a workflow's answers are worth: by a grader, by a program of the user's own, or by a model, which may be an agent of the run.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, JUDGE, Missing};

use super::program::{Grade, Place, Program, Question};
use super::unanswered::is_missing;
use super::{Ask, Event, Outcome, Step, Transcript, UNGRADED, ask};
use crate::grade::Grader;
use crate::judge::Judge;

/// How answers are graded.
#[derive(Debug, Clone)]
pub enum Grading {
    Rule(Grader),
    /// A program, and the roles whose answers it grades.
    Program(Box<Program>),
}

/// The role of a program that grades the answers of `role`.
fn grader_of(role: &RoleName) -> RoleName {
    // A role's name is legal; only its length may be too much, and then its end gives way.
    let name: String = format!("grade-{role}").chars().take(32).collect();
    RoleName::new(&name).unwrap_or_else(|_| role.clone())
}

impl Grading {
    /// By the kind that `[graders.NAME]` gives.
    ///
    /// # Errors
    /// A kind that there is not, or a judge that cannot be asked.
    pub fn new(grader: &GraderConfig) -> Result<Self, String> {
        let place = match &grader.judge {
            Some(config) if grader.kind == JUDGE => {
                let judge = Arc::new(Judge::new(config)?);
                Some(match &config.agent {
                    Some(agent) => Place::Agent(agent.clone(), judge),
                    None => Place::Judge(judge),
                })
            }
            _ => Place::read(&grader.kind)?,
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

    /// With the roles whose answers are graded.
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

    /// The grader, if it is one of ours.
    #[must_use]
    pub fn rule(&self) -> Option<Grader> {
        match self {
            Self::Rule(grader) => Some(*grader),
            Self::Program(_) => None,
        }
    }

    /// Whether this label can be compared with; a program sees for itself.
    ///
    /// # Errors
    /// What a grader of ours cannot read, for who published the task.
    pub fn check_label(&self, label: &serde_json::Value) -> Result<(), String> {
        self.rule().map_or(Ok(()), |grader| grader.check_label(label))
    }

    /// The programs that are asked, for [`super::Workflow::programs`].
    #[must_use]
    pub fn programs(&self) -> Vec<Program> {
        match self {
            Self::Rule(_) => Vec::new(),
            Self::Program(program) => vec![(**program).clone()],
        }
    }

    /// Where an answer may stay without a grade, how often that is so must be a mean over all conversations.
    fn told(&self, mut outcome: Outcome) -> Outcome {
        if let Self::Program(program) = self
            && program.missing == Missing::Tombstone
        {
            outcome.metrics.push((UNGRADED, 0.0));
        }
        outcome
    }

    /// The grades of a conversation whose generations are all there.
    #[must_use]
    pub fn grades<'a>(&'a self, task: &'a Task, events: Transcript<'a>) -> Grades<'a> {
        Grades {
            grading: self,
            task,
            events,
            missing: RefCell::new(Vec::new()),
            buried: Cell::new(false),
            failed: RefCell::new(None),
        }
    }
}

/// Grades as far as they are there; what a program has yet to say is noted.
///
/// An outcome is worked out in one go and thrown away if a grade was missing. So grade only when no generation is
/// outstanding, and let no grade decide which others are wanted.
pub struct Grades<'a> {
    grading: &'a Grading,
    task: &'a Task,
    events: Transcript<'a>,
    missing: RefCell<Vec<Ask>>,
    /// A grade is missing for good.
    buried: Cell<bool>,
    /// A grade is missing, and the conversation is not to stay without it.
    failed: RefCell<Option<String>>,
}

impl Grades<'_> {
    /// What a seat's answer is worth. One answer of a seat is graded by a program.
    #[must_use]
    pub fn of(&self, event: &Event) -> f32 {
        self.of_text(&event.role, event.seat, &event.text)
    }

    /// What a text of a seat is worth: its answer, or more of the conversation.
    #[must_use]
    pub fn of_text(&self, role: &RoleName, seat: u16, text: &str) -> f32 {
        let own = grader_of(role);
        let program = match self.grading {
            Grading::Rule(grader) => return grader.grade(text, &self.task.label),
            Grading::Program(program) => match &program.place {
                Place::Agent(_, judge) => return self.judged(judge, program.missing, &own, (role, seat, text)),
                _ => own,
            },
        };
        let said = self.events.first(&program, seat);
        let grade = said.map(|said| serde_json::from_str::<Grade>(&said.text));
        match grade {
            // Answers are checked before they are committed: what cannot be read here was never an answer.
            Some(grade) => {
                let reward = grade.ok().and_then(|grade| grade.reward);
                self.buried.set(self.buried.get() || reward.is_none());
                reward.unwrap_or(0.0) as f32
            }
            None => {
                self.want(&program, role, seat, text);
                0.0
            }
        }
    }

    /// What an agent says that a text is worth. It is told when its words have no number, and asked again.
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

    /// No grade: it is missing, and never a 0.
    fn lost(&self, missing: Missing, reason: String) -> f32 {
        match missing {
            Missing::Tombstone => self.buried.set(true),
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
        // A question is made of texts and numbers: it is always JSON.
        let line = serde_json::to_string(&question).unwrap_or_default();
        let mut missing = self.missing.borrow_mut();
        if missing.iter().all(|ask| (&ask.role, ask.seat) != (program, seat)) {
            missing.push(ask(program, seat, vec![Message::user(line)]));
        }
    }

    /// The outcome, or first what programs have yet to say.
    #[must_use]
    pub fn settle(self, outcome: Outcome) -> Step {
        let missing = self.missing.into_inner();
        if !missing.is_empty() {
            return Step::Ask(missing);
        }
        if let Some(reason) = self.failed.into_inner() {
            return Step::Fail(reason);
        }
        if self.buried.get() {
            // What a reward would be without the grade, nobody knows.
            return Step::Done(Outcome {
                rewards: Vec::new(),
                metrics: vec![(UNGRADED, 1.0)],
            });
        }
        Step::Done(self.grading.told(outcome))
    }
}

#[cfg(test)]
mod tests;
