//! The user's own programs that work next to the agents: their questions and their answers.
//!
//! A program receives one JSON line and answers with one. Its answer is committed once, like a
//! generation, before it is used. So a workflow stays a pure function of its events, whatever the
//! program does. This crate neither starts programs nor talks to them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Message};
use broker::{AgentName, RoleName};
use configs::{ByteSize, HumanDuration, Missing, PROCESS, ParticipantName, REMOTE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Event;
use crate::judge::Judge;

/// The place of a program or judge that answers.
#[derive(Debug, Clone, PartialEq)]
pub enum ProgramPlace {
    /// A file to run: a Python file, a shell script, or any executable.
    Process(String),
    /// A participant, reached over RabbitMQ.
    Remote(ParticipantName),
    /// A model that grades, behind a server.
    Judge(Arc<Judge>),
    /// An agent of the run that grades. It is asked like other agents, and not by the code that
    /// asks programs.
    Agent(AgentName, Arc<Judge>),
}

impl ProgramPlace {
    /// Returns true if an agent of the run answers.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        matches!(self, Self::Agent(..))
    }

    /// Reads the `kind` of a grader or workflow; `None` is a shipped kind. The error says what to
    /// write.
    pub fn read(kind: &str) -> Result<Option<Self>, String> {
        if let Some(name) = kind.strip_prefix(REMOTE) {
            let name = ParticipantName::new(name).map_err(|error| error.to_string())?;
            return Ok(Some(Self::Remote(name)));
        }
        match kind.strip_prefix(PROCESS) {
            None => Ok(None),
            Some(file) if file.trim().is_empty() => Err("name the program: write process:FILE".into()),
            Some(file) if !std::path::Path::new(file).is_file() => Err(format!(
                "there is no file {file:?}: paths count from the working directory"
            )),
            Some(file) => Ok(Some(Self::Process(file.to_owned()))),
        }
    }
}

/// A program and the roles it plays.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub place: ProgramPlace,
    pub roles: Vec<RoleName>,
    /// The time limit for one answer.
    pub timeout: HumanDuration,
    /// Concurrent questions: the number of copies of a process, each of which gets one question at
    /// a time.
    pub workers: u16,
    /// The address space of one copy of a process.
    pub memory: ByteSize,
    /// The policy for a conversation if the program gives no answer.
    pub missing: Missing,
}

/// A question for a program: one line of JSON, to which the sender adds an `id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Question {
    /// Asks for the grade of an answer.
    Grade {
        /// The role that gave the answer.
        role: String,
        text: String,
        task: Task,
    },
    /// Asks for the next step of a conversation.
    Step {
        seed: u64,
        params: Value,
        events: Vec<SaidEvent>,
        task: Task,
    },
}

impl Question {
    /// Returns the prompt with which `judge` is asked to grade.
    ///
    /// # Errors
    /// A question that asks for no grade, or a template that does not render.
    pub fn judge_prompt(&self, judge: &Judge) -> Result<String, String> {
        match self {
            Self::Grade { role, text, task } => judge.prompt(role, text, task),
            Self::Step { .. } => Err("a judge grades answers and plays no workflow".into()),
        }
    }
}

/// An event in the form that programs see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SaidEvent {
    pub role: String,
    pub seat: u16,
    pub turn: u16,
    pub text: String,
    pub finish: Finish,
    pub tokens: u32,
}

impl From<&Event> for SaidEvent {
    fn from(event: &Event) -> Self {
        Self {
            role: event.role.to_string(),
            seat: event.seat,
            turn: event.turn,
            text: event.text.clone(),
            finish: event.finish,
            tokens: event.tokens,
        }
    }
}

/// A program's answer to [`Question::Grade`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grade {
    /// Missing or null: the program cannot grade. That is a missing reward, and never a 0.
    pub reward: Option<f64>,
}

/// A program's answer to [`Question::Step`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// Generations that are wanted now; the program is asked again when all of them are there.
    Ask(Vec<WantedTurn>),
    Done(Ending),
}

/// A generation that a program wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedTurn {
    pub role: String,
    #[serde(default)]
    pub seat: u16,
    /// The message that is new to this seat: a text of the user,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// or messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<u32>,
    /// Texts that end it; none is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1)))]
    pub stop: Vec<String>,
}

/// How a program's conversation ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    pub rewards: Vec<Earned>,
    /// Includes `success`, from 0 to 1.
    pub metrics: std::collections::BTreeMap<String, f64>,
}

/// The reward of one seat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Earned {
    pub role: String,
    #[serde(default)]
    pub seat: u16,
    /// The values of the parts that `[workflow.reward]` gives weights to.
    pub parts: std::collections::BTreeMap<String, f64>,
    /// The answer that it should have given last, for agents that learn known answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The reason why a program's answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Asking again may help.
    #[error("{0}")]
    Failed(String),
    /// The program cannot grade this, so the conversation has no reward.
    #[error("the program gave no reward")]
    Missing,
}

/// The most decisions in one conversation.
pub(crate) const DECISIONS: u16 = 256;
/// The metric of a conversation that ended without an outcome from its program.
pub(crate) const SPOILT: &str = "spoilt";

/// The committed text of a grade that is missing for good, where the conversation stays.
pub const TOMBSTONE: &str = r#"{"reward":null}"#;

/// Reads one line of a program. Returns the answer's text without the `id`, or the reason why it
/// cannot be used.
pub fn read_answer(question: &Question, line: &str) -> Result<String, Fault> {
    let failed = |message: String| Fault::Failed(message);
    let value: Value =
        serde_json::from_str(line).map_err(|error| failed(format!("its answer is not JSON: {error}")))?;
    let Value::Object(mut answer) = value else {
        return Err(failed("its answer is no JSON object".into()));
    };
    answer.remove("id");
    if let Some(error) = answer.remove("error").filter(|error| !error.is_null()) {
        let text = error.as_str().map_or_else(|| error.to_string(), ToOwned::to_owned);
        return Err(failed(format!("it says: {text}")));
    }
    let answer = Value::Object(answer);
    let text = answer.to_string();
    match question {
        Question::Grade { .. } => {
            let grade: Grade = serde_json::from_value(answer).map_err(|error| {
                let why = error.to_string().replace("expected f64", "expected a number");
                failed(format!("its grade is unusable: {why}; write {{\"reward\": NUMBER}}"))
            })?;
            match grade.reward {
                None => return Err(Fault::Missing),
                Some(reward) if !fits(reward) => {
                    return Err(failed(format!("its reward is {reward:e}, which 32 bits cannot hold")));
                }
                Some(_) => {}
            }
        }
        Question::Step { .. } => {
            serde_json::from_value::<Decision>(answer).map_err(|error| {
                failed(format!(
                    "its step is unusable: {error}; write {{\"ask\": [..]}} or {{\"done\": {{..}}}}"
                ))
            })?;
        }
    }
    Ok(text)
}

/// Returns true if a number stays finite in 32 bits, in which it is trained on.
pub(crate) fn fits(value: f64) -> bool {
    (value as f32).is_finite()
}

/// The most names that programs may give to metrics and parts in one process, because each name is
/// kept for good.
const NAMES: usize = 256;

/// Returns the one copy of a name; `None` if it is not legal or there are too many.
pub(crate) fn name(text: &str) -> Option<&'static str> {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'/' | b'.');
    if text.is_empty() || text.len() > 48 || !text.bytes().all(legal) {
        return None;
    }
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(name) = known.get(text) {
        return Some(name);
    }
    if known.len() >= NAMES {
        return None;
    }
    let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::super::testing::task;
    use super::*;

    fn grade() -> Question {
        Question::Grade {
            role: "solver".into(),
            text: "5".into(),
            task: task("2+3=", 5.into()),
        }
    }

    #[test]
    fn a_grade_is_a_finite_number_or_missing() {
        assert_eq!(
            read_answer(&grade(), r#"{"id": 3, "reward": 0.5}"#),
            Ok(r#"{"reward":0.5}"#.into())
        );
        assert_eq!(
            read_answer(&grade(), r#"{"id": 3, "reward": null}"#),
            Err(Fault::Missing)
        );
        assert_eq!(read_answer(&grade(), r#"{"id": 3}"#), Err(Fault::Missing));
        // Go and other languages write null for a missing error.
        assert_eq!(
            read_answer(&grade(), r#"{"id": 3, "error": null, "reward": 0.5}"#),
            Ok(r#"{"reward":0.5}"#.into())
        );
        assert_eq!(read_answer(&grade(), r#"{"error": null}"#), Err(Fault::Missing));
        for bad in [
            "",
            "5",
            "[]",
            r#"{"reward": "5"}"#,
            r#"{"reward": 1, "why": "x"}"#,
            r#"{"error": "no model"}"#,
            r#"{"reward": 1e39}"#,
            r#"{"reward": -1e39}"#,
        ] {
            assert!(matches!(read_answer(&grade(), bad), Err(Fault::Failed(_))), "{bad}");
        }
    }

    #[test]
    fn names_are_few_and_narrow() {
        assert_eq!(name("success"), Some("success"));
        for bad in ["", "two words", "é", &"x".repeat(49)] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_question_is_one_line() {
        let line = serde_json::to_string(&grade()).unwrap();
        assert!(line.starts_with(r#"{"kind":"grade""#) && !line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Question>(&line).unwrap(), grade());
    }
}
