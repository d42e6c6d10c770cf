//! Turns a row of a data set into a task. The configuration names the keys of prompt, label, id,
//! images and tools. An object under `metadata` goes with the task.

use broker::protocol::task::{MAX_TASK_ID, Prompt, Task, TaskTool};
use broker::protocol::turn::Message;
use configs::TasksConfig;
use serde_json::{Map, Value};

use super::pictures;

/// The number of bytes reserved after an id for `#` and the number of the pass.
const PASS: usize = 11;

/// The keys of a row's parts.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prompt: String,
    label: String,
    id: Option<String>,
    images: Option<String>,
    tools: Option<String>,
    /// The number of bytes in the prefix that a mix puts before each id.
    before: usize,
}

impl Keys {
    pub(super) fn of(config: &TasksConfig) -> Self {
        Self {
            prompt: config.prompt.clone(),
            label: config.label.clone(),
            id: config.id.clone(),
            images: config.images.clone(),
            tools: config.tools.clone(),
            before: 0,
        }
    }

    /// Returns these keys for a source of a mix. Its ids get the prefix `NAME/`.
    pub(super) fn in_mix(self, name: &str) -> Self {
        Self {
            before: name.len() + 1,
            ..self
        }
    }

    /// Returns the task in this row. The error says what is wrong with the row.
    pub(super) fn task(&self, row: &Value) -> Result<Task, String> {
        let given = |key: &str| lookup(row, key).ok_or_else(|| missing(row, key));
        let mut prompt = prompt(given(&self.prompt)?).map_err(|message| format!("{}: {message}", self.prompt))?;
        // A null makes a task without a label: published tasks may have no label. The workflow
        // decides whether it can grade the task.
        let label = at(row, &self.label)
            .ok_or_else(|| unlabelled(row, &self.label))?
            .clone();
        let id = match &self.id {
            None => None,
            Some(key) => {
                let most = MAX_TASK_ID.saturating_sub(PASS + self.before);
                let id = id(given(key)?, most);
                Some(id.ok_or_else(|| format!("{key} is no id: write a text or a number of {most} bytes at most"))?)
            }
        };
        // A row without images is a task without images.
        if let Some((key, found)) = self.images.as_ref().and_then(|key| Some((key, lookup(row, key)?))) {
            let shown = pictures::urls(found).and_then(|urls| pictures::show(prompt, urls));
            prompt = shown.map_err(|message| format!("{key}: {message}"))?;
        }
        Ok(Task {
            id,
            workflow: None,
            prompt,
            label,
            metadata: metadata(row),
            tools: self.tools(row)?,
        })
    }

    /// Returns the row's tools, or `None` for all tools of the run. If the configuration names a
    /// key, a row gets all tools only by a null there. A row without the key is an error: it may
    /// have lost its list.
    fn tools(&self, row: &Value) -> Result<Option<Vec<TaskTool>>, String> {
        let Some(key) = &self.tools else { return Ok(None) };
        let Some(found) = at(row, key) else {
            let missing = missing(row, key);
            return Err(format!(
                "{missing}. `tools` of this source (or of [tasks], where it has none of its own) names it: write the row's tools there, or null for all tools of the run; in [eval] an own `prompt` goes without it"
            ));
        };
        if found.is_null() {
            return Ok(None);
        }
        let list = found
            .as_array()
            .ok_or_else(|| format!("{key} is no list of the run's tools"))?;
        let tools: Result<Vec<TaskTool>, _> = list.iter().map(|one| serde_json::from_value(unpadded(one))).collect();
        tools.map(Some).map_err(|error| format!("{key}: {error}"))
    }
}

/// Returns the tool without the nulls that tables add. A Parquet struct has every key in every row,
/// and null stands for a missing value.
fn unpadded(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if let Some(fields) = tool.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        if let Some(bound) = fields.get_mut("bind").and_then(Value::as_object_mut) {
            bound.retain(|_, value| !value.is_null());
        }
    }
    tool
}

/// Returns the row's metadata: data that only some of the roles may know, or that a grader needs.
fn metadata(row: &Value) -> Map<String, Value> {
    match row.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        // Some data sets have a value there that is no object. It stays under the key `metadata`,
        // where templates and tools find it.
        Some(other) => [("metadata".to_owned(), other.clone())].into_iter().collect(),
    }
}

/// Returns the error text for a row without a value under `key`.
pub(super) fn missing(row: &Value, key: &str) -> String {
    match row.as_object() {
        None => "the row is no JSON object".into(),
        Some(object) => {
            let keys = object.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("there is nothing under {key:?}; the row has: {keys}")
        }
    }
}

fn unlabelled(row: &Value, key: &str) -> String {
    let missing = missing(row, key);
    if row.is_object() {
        format!("{missing}. A task without a label says null there")
    } else {
        missing
    }
}

/// Returns the value under a key if it is not null.
pub(super) fn lookup<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    at(value, key).filter(|value| !value.is_null())
}

/// Returns the value under a key. If the row does not have the key itself, the key is a path of
/// parts with dots between them. A number in the path is an index into a list.
fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let step = |value: &'a Value, part: &str| match value {
        Value::Object(object) => object.get(part),
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    };
    step(value, key).or_else(|| key.split('.').try_fold(value, step))
}

/// Reads a text, or a list of messages.
fn prompt(value: &Value) -> Result<Prompt, String> {
    match value {
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(list) => Ok(Prompt::Messages(messages(list)?)),
        _ => Err("is neither a text nor a list of {role, content} messages".into()),
    }
}

/// Reads `{role, content}` messages, as published tasks have them.
pub(crate) fn messages(list: &[Value]) -> Result<Vec<Message>, String> {
    if list.is_empty() {
        return Err("the list of messages is empty".into());
    }
    let one = |(index, value): (usize, &Value)| {
        let message = Message::read(value).map_err(|why| format!("message {index} {why}"))?;
        if !message.is_said() {
            let role = message.role;
            return Err(format!(
                "message {index} has the role {role:?}: use system, user, assistant or tool"
            ));
        }
        Ok(message)
    };
    list.iter().enumerate().map(one).collect()
}

fn id(value: &Value, most: usize) -> Option<String> {
    let id = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!id.is_empty() && id.len() <= most && !id.chars().any(char::is_control)).then_some(id)
}
