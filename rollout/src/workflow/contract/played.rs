//! Conversations that programs decide. The caller asks the programs and passes their answers;
//! agents say made-up words.

use std::collections::BTreeSet;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Finish;
use serde_json::Value;

use super::{ANSWERS, ROUNDS, TEXTS, answer, check_asks, check_outcome, roles, shown};
use crate::random::Random;
use crate::workflow::program::{DECISIONS, SPOILT};
use crate::workflow::{Ask, Event, Step, Workflow};

/// The number of such conversations per task. Each of their questions costs the time of a process
/// or a broker.
pub const PLAYED: u64 = 8;

/// One made-up conversation with the real answers of programs.
pub struct Played<'a> {
    workflow: &'a dyn Workflow,
    task: &'a Task,
    seed: u64,
    /// All roles that may be asked for, and those of them that no agent plays.
    roles: Vec<RoleName>,
    programs: BTreeSet<RoleName>,
    random: Random,
    events: Vec<Event>,
    rounds: usize,
    /// The reason why a run would reject a program's answer.
    refused: Option<String>,
}

impl<'a> Played<'a> {
    /// Starts the conversation of this number. It is the same every time, if the programs give the
    /// same answers.
    #[must_use]
    pub fn new(workflow: &'a dyn Workflow, task: &'a Task, number: u64) -> Self {
        let programs = workflow.programs().into_iter();
        let programs = programs.filter(|program| !program.place.is_agent());
        let tools = workflow.tools().into_iter().flat_map(|tool| tool.roles);
        Self {
            workflow,
            task,
            seed: number + 1,
            roles: roles(workflow),
            programs: programs.flat_map(|program| program.roles).chain(tools).collect(),
            random: Random::new("dyad workflow contract, played", 0, &[number]),
            events: Vec::new(),
            rounds: 0,
            refused: None,
        }
    }

    /// Returns the questions for programs; pass each answer to [`Played::says`]. Returns nothing
    /// once the conversation has ended as it should.
    ///
    /// # Errors
    /// The rule that is broken, and the events before it.
    pub fn wanted(&mut self) -> Result<Vec<Ask>, String> {
        let wanted = match self.refused.take() {
            Some(refused) => Err(refused),
            None => self.follow(),
        };
        wanted.map_err(|broken| format!("{broken}, after the events {}", shown(&self.events)))
    }

    /// Records the answer of a program.
    pub fn says(&mut self, ask: &Ask, text: &str) {
        let question = ask
            .messages
            .first()
            .map(|message| serde_json::from_str(&message.content));
        if let Some(Ok(question)) = question {
            self.refused = self
                .refused
                .take()
                .or(self.workflow.check_answer(&question, text).err());
        }
        self.events.push(Event {
            tokens: 0,
            prompt: 0,
            ..answer(ask, text, Finish::Stop)
        });
    }

    /// Lets agents answer until programs are asked, or the conversation ends.
    fn follow(&mut self) -> Result<Vec<Ask>, String> {
        // A decision and the answers to it are two rounds.
        while self.rounds < 2 * ROUNDS {
            self.rounds += 1;
            let asks = match self.workflow.step(self.task, self.seed, &self.events) {
                Step::Ask(asks) => asks,
                Step::Done(outcome) if outcome.metrics.iter().any(|(name, _)| *name == SPOILT) => {
                    return Err(format!(
                        "the conversation has no end after {DECISIONS} decisions: a run would end it there, without rewards"
                    ));
                }
                Step::Done(outcome) => {
                    check_outcome(self.workflow, &outcome, &self.events)?;
                    return Ok(Vec::new());
                }
                Step::Fail(reason) => return Err(format!("it fails: {reason}")),
            };
            check_asks(&asks, &self.events)?;
            if let Some(ask) = asks.iter().find(|ask| !self.roles.contains(&ask.role)) {
                return Err(format!("it asks for {}, which is none of its roles", ask.role));
            }
            let (programs, agents): (Vec<Ask>, Vec<Ask>) =
                asks.into_iter().partition(|ask| self.programs.contains(&ask.role));
            if agents.is_empty() {
                return Ok(programs);
            }
            // In random order.
            for place in self.random.permutation(agents.len()) {
                let said = agents.get(place as usize).map(|ask| self.made_up(ask));
                self.events.extend(said);
            }
        }
        Err(format!("the conversation has no end after {ROUNDS} rounds of answers"))
    }

    fn made_up(&mut self, ask: &Ask) -> Event {
        let finish = if self.random.below(4) == 0 {
            Finish::Length
        } else {
            Finish::Stop
        };
        let text = self.word();
        answer(ask, &text, finish)
    }

    /// Returns a likely word half of the time, else an unexpected one.
    fn word(&mut self) -> String {
        let label = match &self.task.label {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let likely: Vec<&str> = ANSWERS.into_iter().chain(["approve", label.as_str()]).collect();
        let words = if self.random.below(2) == 0 {
            &likely[..]
        } else {
            &TEXTS[..]
        };
        let at = self.random.below(words.len() as u64) as usize;
        words.get(at).copied().unwrap_or_default().to_owned()
    }
}
