//! `process:FILE` and `remote:NAME`: a workflow that is the user's own program.
//!
//! The program decides in rounds. It is asked, wants some generations, and is asked again when all
//! of them are there. Each decision is committed before it is used. A program sees its events in
//! the order in which it wanted them, whatever the order of their arrival. So a program without
//! state and clock plays the same conversation every time.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{Missing, Problem, WorkflowConfig};

use crate::workflow::program::{
    DECISIONS, Decision, Earned, Ending, Program, ProgramPlace, Question, SPOILT, WantedTurn, fits, name,
};
use crate::workflow::transcript::{ask, role};
use crate::workflow::{Ask, Event, Outcome, Part, RoleSpec, SeatReward, Step, Workflow, profile};

/// The part that a role earns if `[workflow.reward]` names none.
const PART: &str = "reward";
/// The param with the most generations of a conversation.
const MOST_TURNS: &str = "most_turns";

pub(super) struct Process {
    program: Program,
    /// The role under which the program's decisions are committed.
    own: RoleName,
    roles: Vec<RoleSpec>,
    params: serde_json::Value,
    most_turns: Option<usize>,
}

impl Process {
    pub(super) fn new(config: &WorkflowConfig) -> Result<Self, Vec<Problem>> {
        let mut problems: Vec<Problem> = profile::unknown(config).into_iter().collect();
        let mut problem = |path: String, message: String| problems.push(Problem { path, message });
        let place = ProgramPlace::read(&config.kind).unwrap_or_else(|message| {
            problem("workflow.kind".into(), message);
            None
        });
        let own = role("workflow")?;
        if config.roles.is_empty() {
            problem(
                "workflow.roles".into(),
                "name the program's roles: lines such as solver = \"a\"".into(),
            );
        }
        if config.roles.contains_key(&own) {
            problem(
                "workflow.roles.workflow".into(),
                "this name is the program's own: take another".into(),
            );
        }
        for given in config.reward.keys().filter(|given| !config.roles.contains_key(*given)) {
            problem(
                format!("workflow.reward.{given}"),
                "there is no such role under workflow.roles".into(),
            );
        }
        let most_turns = match config.params.get(MOST_TURNS) {
            None => None,
            Some(toml::Value::Integer(most)) if *most > 0 => usize::try_from(*most).ok(),
            Some(other) => {
                problem(
                    format!("workflow.params.{MOST_TURNS}"),
                    format!("{other} is not a number of generations: write a whole number from 1"),
                );
                None
            }
        };
        let mut roles = Vec::new();
        for role in config.roles.keys() {
            let given = config.reward.get(role).filter(|parts| !parts.is_empty());
            let mut parts = Vec::new();
            for (part, weight) in given.into_iter().flatten() {
                match name(part) {
                    Some(part) => parts.push((part, *weight)),
                    None => problem(format!("workflow.reward.{role}.{part}"), "is no name of a part".into()),
                }
            }
            if given.is_none() {
                parts.push((PART, 1.0));
            }
            let name = role.clone();
            roles.push(RoleSpec { name, parts });
        }
        let (true, Some(place)) = (problems.is_empty(), place) else {
            return Err(problems);
        };
        Ok(Self {
            program: Program {
                place,
                roles: vec![own.clone()],
                timeout: config.process.timeout,
                workers: config.process.workers,
                memory: config.process.memory,
                missing: Missing::Retry,
            },
            own,
            roles,
            params: serde_json::to_value(&config.params).unwrap_or_default(),
            most_turns,
        })
    }

    fn question(&self, task: &Task, seed: u64, history: &[&Event]) -> Question {
        Question::Step {
            seed,
            params: self.params.clone(),
            events: history.iter().map(|event| (*event).into()).collect(),
            task: task.clone(),
        }
    }

    fn spec(&self, role: &str) -> Option<&RoleSpec> {
        self.roles.iter().find(|spec| spec.name.as_str() == role)
    }

    /// Returns the asks of a decision. `spoken` counts each seat's turns so far.
    fn asks(&self, wanted: &[WantedTurn], spoken: &BTreeMap<(&str, u16), u16>) -> Result<Vec<Ask>, String> {
        let mut asks: Vec<Ask> = Vec::new();
        for turn in wanted {
            let spec = self
                .spec(&turn.role)
                .ok_or_else(|| format!("it asks for {:?}, which is no role under workflow.roles", turn.role))?;
            if asks.iter().any(|ask| ask.role == spec.name && ask.seat == turn.seat) {
                return Err(format!("it asks for {}/{} twice at once", turn.role, turn.seat));
            }
            let mut messages = turn.messages.clone();
            messages.extend(turn.prompt.as_ref().map(Message::user));
            if messages.is_empty() {
                return Err(format!("it asks for {}/{} without a message", turn.role, turn.seat));
            }
            if let Some(other) = messages.iter().find(|message| !message.is_said()) {
                return Err(format!(
                    "it asks for {}/{} with a message of the role {:?}: use {}",
                    turn.role,
                    turn.seat,
                    other.role,
                    Message::ROLES.join(", ")
                ));
            }
            if turn.stop.iter().any(String::is_empty) {
                return Err(format!(
                    "it asks for {}/{} with an empty text under stop, which ends nothing",
                    turn.role, turn.seat
                ));
            }
            asks.push(Ask {
                role: spec.name.clone(),
                seat: turn.seat,
                turn: spoken.get(&(turn.role.as_str(), turn.seat)).copied().unwrap_or(0),
                messages,
                max_new_tokens: turn.max_new_tokens.filter(|limit| *limit > 0),
                stop: turn.stop.clone(),
            });
        }
        if asks.is_empty() {
            Err("it asks for nothing".into())
        } else {
            Ok(asks)
        }
    }

    fn outcome(&self, ending: &Ending, spoken: &BTreeMap<(&str, u16), u16>) -> Result<Outcome, String> {
        let mut rewards: Vec<SeatReward> = Vec::new();
        for Earned {
            role,
            seat,
            parts,
            target,
        } in &ending.rewards
        {
            let spec = self
                .spec(role)
                .ok_or_else(|| format!("it rewards {role:?}, which is no role"))?;
            if !spoken.contains_key(&(role.as_str(), *seat)) {
                return Err(format!("it rewards {role}/{seat}, which never spoke"));
            }
            if rewards.iter().any(|r| r.role == spec.name && r.seat == *seat) {
                return Err(format!("it rewards {role}/{seat} twice"));
            }
            if let Some(unknown) = parts
                .keys()
                .find(|part| spec.parts.iter().all(|(known, _)| known != part))
            {
                return Err(format!(
                    "{role} earns {unknown:?}, which has no weight under workflow.reward.{role}"
                ));
            }
            let part = |(name, _): &(&'static str, f64)| match parts.get(*name) {
                Some(value) if fits(*value) => Ok(Part {
                    name,
                    value: *value as f32,
                }),
                found => Err(format!(
                    "part {name:?} of {role}/{seat} is {found:?}, and no finite number of 32 bits"
                )),
            };
            rewards.push(SeatReward {
                role: spec.name.clone(),
                seat: *seat,
                subkey: String::new(),
                target: target.clone(),
                parts: spec.parts.iter().map(part).collect::<Result<_, _>>()?,
            });
        }
        let mut metrics = Vec::new();
        for (metric, value) in &ending.metrics {
            match name(metric) {
                Some(name) if fits(*value) => metrics.push((name, *value)),
                _ => return Err(format!("metric {metric:?} = {value:e} has no usable name or value")),
            }
        }
        match ending.metrics.get("success") {
            None => return Err("its metrics have no \"success\"".into()),
            Some(success) if !(0.0..=1.0).contains(success) => {
                return Err(format!("its \"success\" is {success}: write a number from 0 to 1"));
            }
            Some(_) => {}
        }
        Ok(Outcome { rewards, metrics })
    }

    /// Returns the step that a decision gives after `history`.
    fn decided(&self, text: &str, history: &[&Event]) -> Result<Decided, String> {
        let decision: Decision = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut spoken: BTreeMap<(&str, u16), u16> = BTreeMap::new();
        for event in history {
            *spoken.entry((event.role.as_str(), event.seat)).or_default() += 1;
        }
        match decision {
            Decision::Ask(wanted) => self.asks(&wanted, &spoken).map(Decided::Ask),
            Decision::Done(ending) => self.outcome(&ending, &spoken).map(Decided::Done),
        }
    }
}

enum Decided {
    Ask(Vec<Ask>),
    Done(Outcome),
}

/// Handles a decision that cannot be used. It is rejected before it is committed, so this is only
/// for events of unknown origin.
fn spoilt() -> Step {
    Step::Done(Outcome {
        rewards: Vec::new(),
        metrics: vec![("success", 0.0), (SPOILT, 1.0)],
    })
}

impl Workflow for Process {
    fn kind(&self) -> &'static str {
        match self.program.place {
            ProgramPlace::Remote(_) => "remote",
            ProgramPlace::Process(_) | ProgramPlace::Judge(_) | ProgramPlace::Agent(..) => "process",
        }
    }

    fn roles(&self) -> Vec<RoleSpec> {
        self.roles.clone()
    }

    fn most_turns(&self) -> Option<usize> {
        self.most_turns
    }

    fn check_task(&self, _: &Task) -> Result<(), String> {
        Ok(())
    }

    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step {
        let find = |role: &RoleName, seat, turn| {
            events
                .iter()
                .find(|event| &event.role == role && event.seat == seat && event.turn == turn)
        };
        let mut history: Vec<&Event> = Vec::new();
        for round in 0..DECISIONS {
            let Some(decision) = find(&self.own, 0, round) else {
                // A question consists of texts and numbers, so it is always JSON.
                let line = serde_json::to_string(&self.question(task, seed, &history)).unwrap_or_default();
                let mut ask = ask(&self.own, 0, vec![Message::user(line)]);
                ask.turn = round;
                return Step::Ask(vec![ask]);
            };
            let asks = match self.decided(&decision.text, &history) {
                Ok(Decided::Ask(asks)) => asks,
                Ok(Decided::Done(outcome)) => return Step::Done(outcome),
                Err(_) => return spoilt(),
            };
            let answers: Vec<Option<&Event>> = asks.iter().map(|ask| find(&ask.role, ask.seat, ask.turn)).collect();
            if answers.iter().any(Option::is_none) {
                let open = asks.into_iter().zip(answers).filter(|(_, answer)| answer.is_none());
                return Step::Ask(open.map(|(ask, _)| ask).collect());
            }
            history.extend(answers.into_iter().flatten());
        }
        spoilt()
    }

    fn programs(&self) -> Vec<Program> {
        vec![self.program.clone()]
    }

    fn check_answer(&self, question: &Question, answer: &str) -> Result<(), String> {
        let Question::Step { events, .. } = question else {
            return Err("this workflow grades nothing".into());
        };
        let events: Vec<Event> = events
            .iter()
            .filter_map(|event| {
                Some(Event {
                    role: RoleName::new(&event.role).ok()?,
                    seat: event.seat,
                    turn: event.turn,
                    text: event.text.clone(),
                    finish: event.finish,
                    tokens: event.tokens,
                    prompt: 0,
                })
            })
            .collect();
        self.decided(answer, &events.iter().collect::<Vec<_>>()).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
