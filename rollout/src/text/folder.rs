//! Reading a Hugging Face folder's files about text.

use std::path::Path;

use serde_json::Value;

use super::TextError;

/// Texts of the special tokens that templates name.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecialTexts {
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) pad: Option<String>,
    pub(super) unk: Option<String>,
}

/// What the folder says beside `tokenizer.json`.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) template: String,
    pub(super) texts: SpecialTexts,
    /// End-of-sequence ids of generation_config.json and config.json.
    pub(super) eos: Vec<u32>,
}

impl Folder {
    pub(super) fn read(folder: &Path) -> Result<Self, TextError> {
        let config = json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        let text = |key: &str| special_text(config.get(key)?);
        let texts = SpecialTexts {
            bos: text("bos_token"),
            eos: text("eos_token"),
            pad: text("pad_token"),
            unk: text("unk_token"),
        };
        let own_file = optional(&folder.join("chat_template.jinja"))?;
        let template = own_file
            .or_else(|| config.get("chat_template").and_then(named_template))
            .ok_or_else(|| TextError::NoTemplate {
                folder: folder.to_owned(),
            })?;
        let mut eos = Vec::new();
        for file in ["generation_config.json", "config.json"] {
            let config = json(&folder.join(file))?.unwrap_or_default();
            eos.extend(config.get("eos_token_id").into_iter().flat_map(ids));
        }
        Ok(Self { template, texts, eos })
    }
}

/// The file's text; `None` if there is no such file.
fn optional(path: &Path) -> Result<Option<String>, TextError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn json(path: &Path) -> Result<Option<Value>, TextError> {
    let parse = |text: String| {
        serde_json::from_str(&text).map_err(|e| TextError::Format {
            path: path.to_owned(),
            message: e.to_string(),
        })
    };
    optional(path)?.map(parse).transpose()
}

/// A special token is a text, or an object with its text as `content`.
fn special_text(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value.get("content")?.as_str())
        .map(str::to_owned)
}

/// A template is a text, or the one named `default` of a list of `{name, template}`.
fn named_template(value: &Value) -> Option<String> {
    let list = || {
        value
            .as_array()?
            .iter()
            .find(|t| t.get("name").and_then(Value::as_str) == Some("default"))
    };
    value
        .as_str()
        .or_else(|| list()?.get("template")?.as_str())
        .map(str::to_owned)
}

fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().filter_map(id).collect(),
        value => id(value).into_iter().collect(),
    }
}
