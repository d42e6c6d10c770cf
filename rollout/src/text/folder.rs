//! Reads the files of a Hugging Face folder that concern text.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::AddedToken;

use super::TextError;

/// The number of characters that an error shows of a value.
const SHOWN: usize = 40;

/// The texts of the special tokens that templates name.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecialTexts {
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) pad: Option<String>,
    pub(super) unk: Option<String>,
}

/// The settings of a folder outside `tokenizer.json`.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) template: String,
    /// The separate template for chats with tools.
    pub(super) tool_use: Option<String>,
    pub(super) texts: SpecialTexts,
    /// End-of-sequence ids of generation_config.json and config.json.
    pub(super) eos: Vec<u32>,
    /// Tokens that tokenizer_config.json adds or changes, by id.
    pub(super) added: BTreeMap<u32, AddedToken>,
    /// Texts that any special-token key names.
    pub(super) special: Vec<String>,
}

impl Folder {
    /// Reads a folder. The chat template of the file `own` replaces the folder's templates.
    pub(super) fn read(folder: &Path, own: Option<&Path>) -> Result<Self, TextError> {
        let path = folder.join("tokenizer_config.json");
        let config = json(&path)?.unwrap_or_default();
        let text = |key: &str| special_text(config.get(key)?);
        let texts = SpecialTexts {
            bos: text("bos_token"),
            eos: text("eos_token"),
            pad: text("pad_token"),
            unk: text("unk_token"),
        };
        let named = |name: &str| named_template(config.get("chat_template")?, name);
        let whole_file = optional(&folder.join("chat_template.jinja"))?;
        let tools_file = optional(&folder.join("additional_chat_templates/tool_use.jinja"))?;
        let own = own.map(|path| {
            std::fs::read_to_string(path).map_err(|source| TextError::ChatTemplate {
                path: path.to_owned(),
                source,
            })
        });
        // Template files replace all templates of the configuration.
        let (template, tool_use) = match (whole_file, tools_file) {
            _ if own.is_some() => (own.transpose()?, None),
            (None, None) => (named("default"), named("tool_use")),
            files => files,
        };
        let template = template.ok_or_else(|| TextError::NoTemplate {
            folder: folder.to_owned(),
        })?;
        let mut eos = Vec::new();
        for file in ["generation_config.json", "config.json"] {
            let path = folder.join(file);
            let config = json(&path)?.unwrap_or_default();
            eos.extend(ids(&path, config.get("eos_token_id"))?);
        }
        Ok(Self {
            template,
            tool_use,
            texts,
            eos,
            added: added(&path, &config)?,
            special: special(&config),
        })
    }
}

/// A token of `added_tokens_decoder`.
#[derive(Deserialize)]
struct Added {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    normalized: Option<bool>,
    #[serde(default)]
    special: bool,
}

fn added(path: &Path, config: &Value) -> Result<BTreeMap<u32, AddedToken>, TextError> {
    let Some(list) = config.get("added_tokens_decoder").filter(|list| !list.is_null()) else {
        return Ok(BTreeMap::new());
    };
    let list = BTreeMap::<u32, Added>::deserialize(list).map_err(|e| TextError::Format {
        path: path.to_owned(),
        message: format!("added_tokens_decoder: {e}"),
    })?;
    let token = |added: Added| {
        AddedToken::from(added.content, added.special)
            .single_word(added.single_word)
            .lstrip(added.lstrip)
            .rstrip(added.rstrip)
            .normalized(added.normalized.unwrap_or(!added.special))
    };
    Ok(list.into_iter().map(|(id, added)| (id, token(added))).collect())
}

/// Returns the texts of all keys named `.._token` and of the lists of extra special tokens.
/// transformers 4 and 5 name these lists differently.
fn special(config: &Value) -> Vec<String> {
    let named = config.as_object().into_iter().flatten();
    let named = named.filter(|(key, _)| key.ends_with("_token")).map(|(_, value)| value);
    let more = ["additional_special_tokens", "extra_special_tokens"].map(|key| config.get(key));
    let more = more.into_iter().flatten().flat_map(|value| match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(named) => named.values().collect(),
        _ => Vec::new(),
    });
    named.chain(more).filter_map(special_text).collect()
}

/// Returns the file's text, or `None` if there is no such file.
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

/// Returns the text of a special token: a text, or an object with the text as `content`.
fn special_text(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value.get("content")?.as_str())
        .map(str::to_owned)
}

/// Returns the template of a name. A single text is named `default`. Several templates are a list
/// of `{name, template}`, or `{NAME: template}`.
fn named_template(value: &Value, name: &str) -> Option<String> {
    let listed = |list: &Vec<Value>| {
        let found = list
            .iter()
            .rfind(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
        found.and_then(|entry| entry.get("template").cloned())
    };
    let found = match value {
        Value::String(_) => (name == "default").then(|| value.clone()),
        Value::Array(list) => listed(list),
        other => other.get(name).cloned(),
    };
    found?.as_str().map(str::to_owned)
}

/// Returns the ids of an `eos_token_id`: none, one or a list. An entry that is not an id is an
/// error, because that end of turn would never come.
fn ids(path: &Path, value: Option<&Value>) -> Result<Vec<u32>, TextError> {
    let id = |place: &str, value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let shown: String = value.to_string().chars().take(SHOWN).collect();
            TextError::Format {
                path: path.to_owned(),
                message: format!("{place} is {shown}: write the id of a token, a whole number, 0 or more"),
            }
        })
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let entries = list.iter().enumerate();
            entries
                .map(|(index, value)| id(&format!("eos_token_id[{index}]"), value))
                .collect()
        }
        Some(one) => Ok(vec![id("eos_token_id", one)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ends_of_turn_are_ids_or_named() {
        let read = |value: Value| ids(Path::new("generation_config.json"), Some(&value));
        assert_eq!(read(json!([7, 0])).unwrap(), [7, 0]);
        assert_eq!(read(json!(7)).unwrap(), [7]);
        assert!(read(json!(null)).unwrap().is_empty());
        for (value, entry) in [
            (json!("</s>"), "eos_token_id is \"</s>\""),
            (json!([7, -1]), "eos_token_id[1] is -1"),
            (json!([4_294_967_296_u64]), "eos_token_id[0] is 4294967296"),
            (json!([[7]]), "eos_token_id[0] is [7]"),
        ] {
            let error = read(value).unwrap_err().to_string();
            assert!(
                error.contains("generation_config.json") && error.contains(entry),
                "{error}"
            );
        }
    }
}
