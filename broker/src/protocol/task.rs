//! Tasks: the public JSON that any publisher may send.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::turn::{Image, Message, MessageFault};
use crate::codec::{Parsed, excerpt, explain_json, parse_exact_json};

/// Longest task id, in bytes.
pub const MAX_TASK_ID: usize = 200;

/// The prompt of a task: text, or a list of `{role, content}` messages.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Prompt {
    Text(String),
    Messages(#[schemars(length(min = 1))] Vec<Message>),
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Self::read(&value).map_err(|fault| D::Error::custom(fault.within("prompt")))
    }
}

impl Prompt {
    /// Reads a text, or messages with which a conversation can begin.
    ///
    /// # Errors
    /// Names the field within the prompt, such as `[1].content`.
    pub fn read(value: &Value) -> Result<Self, MessageFault> {
        match value {
            Value::String(text) => Ok(Self::Text(text.clone())),
            Value::Array(list) => Message::read_chat(list).map(Self::Messages),
            other => {
                let problem = format!(
                    "is {}, neither a text nor a list of {{role, content}} messages: write one of them",
                    excerpt(other)
                );
                Err(MessageFault::new("", problem))
            }
        }
    }

    /// Returns the text of the last message, or the text itself.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Prompt::Text(text) => text,
            Prompt::Messages(messages) => messages.last().map_or("", |m| m.content.as_str()),
        }
    }

    /// Returns all text: the text itself, or each of several messages after its role, with a blank
    /// line between them.
    #[must_use]
    pub fn conversation(&self) -> Cow<'_, str> {
        match self {
            Prompt::Messages(messages) if messages.len() > 1 => {
                let said = messages.iter().map(|one| format!("{}: {}", one.role, one.content));
                Cow::Owned(said.collect::<Vec<_>>().join("\n\n"))
            }
            one => Cow::Borrowed(one.text()),
        }
    }

    /// Returns the images of the last message.
    #[must_use]
    pub fn images(&self) -> &[Image] {
        match self {
            Prompt::Text(_) => &[],
            Prompt::Messages(messages) => messages.last().map_or(&[], |message| &message.images),
        }
    }

    /// Returns true if any message has an image.
    #[must_use]
    pub fn has_images(&self) -> bool {
        match self {
            Prompt::Text(_) => false,
            Prompt::Messages(messages) => messages.iter().any(|message| !message.images.is_empty()),
        }
    }
}

/// One of the run's tools that a task's conversations may call. A task chooses among the run's
/// tools: it cannot bring its own program or address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a tool of a task must be its name, or {name, bind}")]
pub enum TaskTool {
    Name(String),
    Bound(BoundTool),
}

/// A tool with arguments that the task fixes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundTool {
    /// The name in `[tools.NAME]`.
    pub name: String,
    /// Arguments of every call; agents neither see nor write them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub bind: Map<String, Value>,
}

impl TaskTool {
    /// Returns the name in `[tools.NAME]`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            TaskTool::Name(name) => name,
            TaskTool::Bound(tool) => &tool.name,
        }
    }

    /// Returns the arguments that the task fixes, if it fixes any.
    #[must_use]
    pub fn bound(&self) -> Option<&Map<String, Value>> {
        match self {
            TaskTool::Name(_) => None,
            TaskTool::Bound(tool) => Some(&tool.bind),
        }
    }
}

/// One unit of input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("additionalProperties" = {"type": "null"}))]
pub struct Task {
    /// Names the task within the run; tasks with the same id are played once. Without an id, the
    /// AMQP `message_id` is used, or else the body's hash. At most 200 bytes of UTF-8, which may be
    /// fewer characters. A whole number of 64 bits means its text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_id")]
    #[schemars(extend("type" = ["string", "integer", "null"], "minimum" = i64::MIN, "maximum" = u64::MAX), length(min = 1, max = MAX_TASK_ID), regex(pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"))]
    pub id: Option<String>,
    /// The workflow of the task. If given, it must be the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The subject of the conversation: a text, or messages, which may contain images.
    pub prompt: Prompt,
    /// The reference for the graders; its type depends on the workflow. A number that a float would
    /// round becomes a text with all digits.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub label: Value,
    /// More input for prompts, tools and rewards: facts, rubrics, references. It reaches programs
    /// unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(extend("type" = ["object", "null"]))]
    pub metadata: Map<String, Value>,
    /// The run's tools that its conversations may call: all of them if not given, none if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<TaskTool>>,
}

/// Returns a task's id: a text, or a whole number of 64 bits as its text, for tables often count
/// their rows. JSON's readers round other numbers, so that different ones would be the same id.
#[must_use]
pub fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

fn read_id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::Number(number) if number.is_f64() => Err(D::Error::custom("write it as a text")),
        value => id_of(&value)
            .map(Some)
            .ok_or_else(|| D::Error::custom("write a text or a whole number")),
    }
}

/// Says why a body is not JSON. Publishers send one line, so only the column counts.
fn not_json(body: &[u8], error: &serde_json::Error) -> String {
    let said = explain_json(body, error);
    let text = said.replace(" at line 1 column ", " at column ");
    if said == error.to_string() {
        format!("{text}; write one object, with double quotes: {{\"prompt\": \"..\"}}")
    } else {
        text
    }
}

/// The reason why a task was rejected, in words for its publisher.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("the body is {size} bytes and the limit is {limit}: shorten the prompt or raise run.message_cap")]
    Oversize { size: usize, limit: usize },
    #[error("the body is not UTF-8")]
    NotUtf8,
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    #[error("the body is not a task: {0}")]
    Json(String),
    #[error("the task's id has {0} bytes and the limit is {MAX_TASK_ID}: shorten it")]
    LongId(usize),
    #[error("the task's id is empty or has control characters: write other characters, or leave it out")]
    BadId,
    #[error(
        "the task asks for workflow {asked:?} and this run plays {plays:?}: leave `workflow` out, or publish to another run"
    )]
    Workflow { asked: String, plays: String },
    #[error("the workflow cannot use this task: {0}")]
    Content(String),
}

impl Task {
    /// Reads a body of at most `limit` bytes.
    pub fn parse(body: &[u8], limit: usize) -> Result<Self, TaskError> {
        if body.len() > limit {
            return Err(TaskError::Oversize {
                size: body.len(),
                limit,
            });
        }
        std::str::from_utf8(body).map_err(|_| TaskError::NotUtf8)?;
        let read = || parse_exact_json(body).map_err(|e| TaskError::NotJson(not_json(body, &e)));
        let parsed: Parsed = read()?;
        let exact = parsed.exact().get("label").cloned();
        let mut value = parsed.value;
        if !value.is_object() {
            let found = excerpt(&value);
            return Err(TaskError::Json(format!("it is {found}: write an object with a prompt")));
        }
        // Rows of tables have every key, with null where it does not apply.
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
            if let (Some(label), Some(exact)) = (fields.get_mut("label"), exact) {
                *label = exact;
            }
        }
        let task: Task = match serde_path_to_error::deserialize(value) {
            Ok(task) => task,
            Err(error) => return Err(TaskError::Json(fault(&read()?.value, &error))),
        };
        match &task.id {
            Some(id) if id.len() > MAX_TASK_ID => Err(TaskError::LongId(id.len())),
            Some(id) if id.is_empty() || id.chars().any(char::is_control) => Err(TaskError::BadId),
            _ => Ok(task),
        }
    }

    /// Returns true if its conversations may call this tool of the run.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        let list = self.tools.as_ref();
        list.is_none_or(|list| list.iter().any(|one| one.name() == tool))
    }

    /// Returns the arguments of this tool that the task fixes, if it fixes any.
    #[must_use]
    pub fn bound(&self, tool: &str) -> Option<&Map<String, Value>> {
        let list = self.tools.as_ref()?;
        list.iter().find(|one| one.name() == tool)?.bound()
    }

    /// Returns the task's id: its own, or the message's, or the hash of its body.
    #[must_use]
    pub fn resolve_id(&self, message_id: Option<&str>, body: &[u8]) -> String {
        let usable = |id: &&str| !id.is_empty() && id.len() <= MAX_TASK_ID && !id.chars().any(char::is_control);
        match (&self.id, message_id.filter(usable)) {
            (Some(id), _) => id.clone(),
            (None, Some(id)) => id.to_owned(),
            (None, None) => blake3::hash(body).to_hex()[..32].to_owned(),
        }
    }
}

/// Returns the words for a body that is JSON and no task: the path of the field, its value and the
/// right form.
fn fault(body: &Value, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, why) = (error.path().to_string(), error.inner().to_string());
    let wanted = match path.split(['.', '[']).next() {
        Some("id" | "tools") if path != "tools" => why.as_str(),
        Some("workflow") => "write the name of the run's workflow, or leave it out",
        Some("metadata") => "write an object",
        Some("tools") => "write a list of the run's tools: names, or {name, bind}",
        // The words of the prompt's fault have its path, and those of other fields their names.
        _ => return why,
    };
    let pointer: String = path
        .replace(']', "")
        .split(['.', '['])
        .flat_map(|part| ["/", part].map(str::to_owned))
        .collect();
    match body.pointer(&pointer) {
        Some(found) => format!("{path} is {}: {wanted}", excerpt(found)),
        None => why,
    }
}

#[cfg(test)]
mod tests;
