//! Turns a row of a data set into a task. The configuration names the keys of prompt, label, id,
//! images and tools. An object under `metadata` goes with the task.

use broker::codec::{Parsed, excerpt};
use broker::protocol::task::{MAX_TASK_ID, Prompt, Task, TaskTool, id_of};
use configs::TasksConfig;
use serde_json::{Map, Value};

use super::pictures;

/// The number of bytes reserved after an id for `#` and the number of the pass.
const PASS: usize = 11;

/// The most keys of a row that an error lists, and their longest part.
const MOST_KEYS: usize = 30;
const LONGEST_KEY: usize = 60;

/// Usual keys of published data sets, by the setting that names them. A message proposes the first
/// one that a row has.
const USUAL: [(&str, &[&str]); 3] = [
    (
        "prompt",
        &[
            "prompt",
            "messages",
            "question",
            "problem",
            "instruction",
            "input",
            "query",
        ],
    ),
    (
        "label",
        &[
            "label",
            "answer",
            "solution",
            "ground_truth",
            "target",
            "output",
            "response",
        ],
    ),
    ("id", &["id", "uid", "uuid", "index"]),
];

/// The keys of a row's parts.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prompt: String,
    label: String,
    id: Option<String>,
    images: Option<String>,
    tools: Option<String>,
    /// The section that sets these keys, for messages.
    section: String,
    /// The number of bytes in the prefix that a mix puts before each id.
    before: usize,
}

impl Keys {
    pub(super) fn of(config: &TasksConfig, section: &str) -> Self {
        Self {
            prompt: config.prompt.clone(),
            label: config.label.clone(),
            id: config.id.clone(),
            images: config.images.clone(),
            tools: config.tools.clone(),
            section: section.to_owned(),
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
    pub(super) fn task(&self, row: &Parsed) -> Result<Task, String> {
        let (row, exact) = (&row.value, row.exact());
        let given = |setting: &str, key: &str| lookup(row, key).ok_or_else(|| self.unset(row, setting, key));
        let mut prompt =
            Prompt::read(given("prompt", &self.prompt)?).map_err(|fault| fault.within(&self.prompt).to_string())?;
        // A null makes a task without a label: published tasks may have no label. The workflow
        // decides whether it can grade the task.
        let label = at(exact, &self.label).ok_or_else(|| self.unlabelled(row))?.clone();
        let id = match &self.id {
            None => None,
            Some(key) => {
                let most = MAX_TASK_ID.saturating_sub(PASS + self.before);
                let found = given("id", key)?;
                let wrong = || {
                    // Reading has rounded it.
                    let wanted = match found.is_f64() {
                        true => "it as a text",
                        false => "a text or a whole number",
                    };
                    let found = excerpt(found);
                    format!("{key} is {found}: write {wanted} of 1 to {most} bytes without control characters")
                };
                Some(id(found, most).ok_or_else(wrong)?)
            }
        };
        // A row without images is a task without images.
        if let Some((key, found)) = self.images.as_ref().and_then(|key| Some((key, lookup(row, key)?))) {
            let shown = pictures::urls(found).and_then(|urls| pictures::show(prompt, urls));
            prompt = shown.map_err(|fault| fault.within(key).to_string())?;
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

    /// Returns the error text for a row without the key that `setting` names, with the line to
    /// write.
    fn unset(&self, row: &Value, setting: &str, key: &str) -> String {
        let missing = missing(row, key);
        let usual = USUAL.iter().find(|(known, _)| *known == setting);
        let usual = usual.map_or(&[][..], |(_, keys)| keys);
        let found = usual.iter().find(|key| lookup(row, key).is_some());
        match found {
            Some(found) => format!("{missing}: write {}.{setting} = {found:?}", self.section),
            None => missing,
        }
    }

    fn unlabelled(&self, row: &Value) -> String {
        let missing = self.unset(row, "label", &self.label);
        match row.is_object() {
            true => format!("{missing}. A task without a label says null there"),
            false => missing,
        }
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
            .ok_or_else(|| format!("{key} is {}: write a list of the run's tools", excerpt(found)))?;
        let tool = |(index, one): (usize, &Value)| {
            let wrong = |error| format!("{key}[{index}] is {}: {error}", excerpt(one));
            serde_json::from_value(unpadded(one)).map_err(wrong)
        };
        list.iter().enumerate().map(tool).collect::<Result<_, _>>().map(Some)
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
        None => format!("the row is no JSON object, but {}", excerpt(row)),
        Some(object) => {
            let short = |key: &String| key.chars().take(LONGEST_KEY).collect::<String>();
            let mut keys: Vec<String> = object.keys().take(MOST_KEYS).map(short).collect();
            if object.len() > MOST_KEYS {
                keys.push(format!("and {} more", object.len() - MOST_KEYS));
            }
            format!("there is nothing under {key:?}; the row has: {}", keys.join(", "))
        }
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

/// Returns an id, also of a column that pandas made floats of. Larger floats were rounded when they
/// were read, so that different ones would be the same id.
fn id(value: &Value, most: usize) -> Option<String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = || {
        value
            .as_f64()
            .filter(|float| float.abs() < EXACT)
            .map(|_| value.to_string())
    };
    id_of(value)
        .or_else(float)
        .filter(|id| !id.is_empty() && id.len() <= most && !id.chars().any(char::is_control))
}
