//! `jsonl:PATH`: one JSON object per line, its prompt and label under keys of the user's choice. An object under `metadata`
//! goes with the task.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use broker::protocol::task::{MAX_TASK_ID, Prompt, Task};
use broker::protocol::turn::Message;
use configs::TasksConfig;
use serde_json::{Map, Value, json};

use super::{Pool, TasksError, bad_line};

/// A file of tasks. Only where its lines begin is kept in memory.
pub(super) struct Jsonl {
    path: PathBuf,
    name: String,
    keys: Keys,
    file: BufReader<File>,
    /// Byte offset and number of each line that is not blank.
    lines: Vec<(u64, u64)>,
}

struct Keys {
    prompt: String,
    label: String,
    id: Option<String>,
}

impl Jsonl {
    /// Opens the file and tries every line.
    pub(super) fn open(path: &Path, config: &TasksConfig) -> Result<Self, TasksError> {
        if let Some(key) = config.params.keys().next() {
            let message = "a JSONL source has no such setting; known is: seed".to_owned();
            return Err(TasksError::Config {
                key: format!("tasks.params.{key}"),
                message,
            });
        }
        let keys = Keys {
            prompt: config.prompt.clone(),
            label: config.label.clone(),
            id: config.id.clone(),
        };
        let read = |source| TasksError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::new(File::open(path).map_err(read)?);
        let (mut lines, mut offset, mut number, mut line) = (Vec::new(), 0, 0, Vec::new());
        loop {
            line.clear();
            let length = file.read_until(b'\n', &mut line).map_err(read)? as u64;
            if length == 0 {
                break;
            }
            number += 1;
            if !line.trim_ascii().is_empty() {
                keys.task(&line).map_err(|message| bad_line(path, number, message))?;
                lines.push((offset, number));
            }
            offset += length;
        }
        if lines.is_empty() || lines.len() > u32::MAX as usize {
            return Err(TasksError::Empty { path: path.to_owned() });
        }
        let stem = path
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let name: String = stem.chars().filter(|c| !c.is_control()).take(MAX_TASK_ID / 8).collect();
        Ok(Self {
            path: path.to_owned(),
            name,
            keys,
            file,
            lines,
        })
    }
}

impl Pool for Jsonl {
    fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        let (offset, number) = self.lines[item as usize];
        let mut line = Vec::new();
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_until(b'\n', &mut line))
            .map_err(|source| TasksError::Read {
                path: self.path.clone(),
                source,
            })?;
        self.keys
            .task(&line)
            .map_err(|message| bad_line(&self.path, number, message))
    }
}

impl Keys {
    fn task(&self, line: &[u8]) -> Result<Task, String> {
        let line: Value = serde_json::from_slice(line).map_err(|e| format!("not JSON: {e}"))?;
        let at = |key: &str| lookup(&line, key).ok_or_else(|| missing(&line, key));
        let prompt = prompt(at(&self.prompt)?).map_err(|message| format!("{}: {message}", self.prompt))?;
        let label = at(&self.label)?.clone();
        let id = match &self.id {
            None => None,
            Some(key) => Some(id(at(key)?).ok_or_else(|| format!("{key} is no id: {MAX_TASK_ID} bytes at most"))?),
        };
        Ok(Task {
            id,
            workflow: None,
            prompt,
            label,
            metadata: metadata(&line),
        })
    }
}

/// What only some of the roles may know, or a grader needs.
fn metadata(line: &Value) -> Map<String, Value> {
    match line.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        // Data sets keep other things there; they stay where templates and tools find them.
        Some(other) => [("metadata".to_owned(), other.clone())].into_iter().collect(),
    }
}

fn missing(line: &Value, key: &str) -> String {
    match line.as_object() {
        None => "the line is no JSON object".into(),
        Some(object) => {
            let keys = object.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("there is nothing under {key:?}; the line has: {keys}")
        }
    }
}

/// The value under a key: the very key if there is one, else its dotted parts one into another; numbers count in lists.
pub(super) fn lookup<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let step = |value: &'a Value, part: &str| match value {
        Value::Object(object) => object.get(part),
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    };
    step(value, key)
        .or_else(|| key.split('.').try_fold(value, step))
        .filter(|value| !value.is_null())
}

/// A text, or a list of messages.
fn prompt(value: &Value) -> Result<Prompt, String> {
    match value {
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(list) => Ok(Prompt::Messages(messages(list)?)),
        _ => Err("is neither a text nor a list of {role, content} messages".into()),
    }
}

/// `{role, content}` messages; other keys of theirs are passed over. Content may be a list of parts: texts and images.
pub(super) fn messages(list: &[Value]) -> Result<Vec<Message>, String> {
    if list.is_empty() {
        return Err("the list of messages is empty".into());
    }
    let one = |(index, value): (usize, &Value)| {
        let role = match value.get("role").and_then(Value::as_str) {
            Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
            Some(role) => {
                return Err(format!(
                    "message {index} has the role {role:?}: use system, user, assistant or tool"
                ));
            }
            None => return Err(format!("message {index} has no role")),
        };
        let content = value.get("content").and_then(content);
        let content = content.ok_or_else(|| format!("message {index} has no content of text and images"))?;
        serde_json::from_value(json!({ "role": role, "content": content }))
            .map_err(|error| format!("message {index}: {error}"))
    };
    list.iter().enumerate().map(one).collect()
}

/// A text, or parts as messages of the wire have them. Data sets write an image as `"image": URL`, or its URL without the object
/// around it.
fn content(value: &Value) -> Option<Value> {
    let part = |part: &Value| {
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            return Some(json!({ "type": "text", "text": text }));
        }
        let image = part.get("image_url").or_else(|| part.get("image"))?;
        let url = image.get("url").unwrap_or(image).as_str()?;
        Some(json!({ "type": "image_url", "image_url": { "url": url } }))
    };
    match value {
        Value::String(_) => Some(value.clone()),
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => None,
    }
}

/// Leaves room for `#pass` behind it.
fn id(value: &Value) -> Option<String> {
    let id = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!id.is_empty() && id.len() + 11 <= MAX_TASK_ID && !id.chars().any(char::is_control)).then_some(id)
}
