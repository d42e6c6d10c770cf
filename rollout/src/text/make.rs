//! Makes tiny tokenizers in Hugging Face's format.
//!
//! Prompts stay very short. A user's message is its bare content; the assistant's turn begins and
//! ends with one token each. A line break separates messages in a row, and a tokenizer of words
//! ignores it.

use std::collections::BTreeSet;
use std::path::Path;

use broker::protocol::turn::Message;
use configs::TokenizerConfig;
use serde_json::{Map, Value, json};

use super::TextError;

/// Ends a turn.
pub const END: &str = "<|end|>";
/// Begins the assistant's turn.
pub const ASSISTANT: &str = "<|assistant|>";
/// Pads rows.
pub const PAD: &str = "<|pad|>";
/// Stands for words outside the vocabulary.
pub const UNKNOWN: &str = "<|unk|>";

const TEMPLATE: &str = "{%- for message in messages -%}\
{%- if message.role == 'assistant' -%}<|assistant|>{{ message.content }}<|end|>\
{%- else -%}{{ message.content }}\
{%- if not loop.last and loop.nextitem.role != 'assistant' -%}{{ '\\n' }}{%- endif -%}\
{%- endif -%}\
{%- endfor -%}\
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}";

/// Writes tokenizer.json, tokenizer_config.json, special_tokens_map.json and generation_config.json
/// into `folder`, and creates it if necessary.
///
/// The id of a byte is its value, and the id of a word is its index in the list. The control tokens
/// follow.
pub fn write_tokenizer(folder: &Path, config: &TokenizerConfig) -> Result<(), TextError> {
    let (model, pre_tokenizer, decoder, first, control) = match config {
        TokenizerConfig::Bytes => {
            let level =
                json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
            (byte_model(), level.clone(), level, 256, vec![PAD, END, ASSISTANT])
        }
        TokenizerConfig::Words(words) => {
            check_words(words)?;
            let level = json!({"type": "WhitespaceSplit"});
            (
                word_model(words),
                level,
                Value::Null,
                words.len(),
                vec![UNKNOWN, PAD, END, ASSISTANT],
            )
        }
    };
    let added: Vec<Value> = control
        .iter()
        .enumerate()
        .map(|(i, content)| {
            json!({"id": first + i, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model});
    let mut special = Map::new();
    special.insert("eos_token".into(), END.into());
    special.insert("pad_token".into(), PAD.into());
    if control.contains(&UNKNOWN) {
        special.insert("unk_token".into(), UNKNOWN.into());
    }
    let mut settings = special.clone();
    settings.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    settings.insert("clean_up_tokenization_spaces".into(), false.into());
    settings.insert("chat_template".into(), TEMPLATE.into());
    let id = |token: &str| control.iter().position(|c| *c == token).map(|i| first + i);
    let generation = json!({"eos_token_id": id(END), "pad_token_id": id(PAD)});
    std::fs::create_dir_all(folder).map_err(|source| TextError::Write {
        path: folder.to_owned(),
        source,
    })?;
    write(folder, "tokenizer.json", &tokenizer)?;
    write(folder, "tokenizer_config.json", &Value::Object(settings))?;
    write(folder, "special_tokens_map.json", &Value::Object(special))?;
    write(folder, "generation_config.json", &generation)
}

/// Returns the number of tokens of a chat that is ready for an answer, in the built-in template,
/// which does not show the list of tools. A text that spells control tokens may have more: its
/// pieces are encoded one by one.
#[must_use]
pub fn tokens_of_chat(config: &TokenizerConfig, messages: &[Message]) -> usize {
    let said: Vec<&Message> = messages.iter().filter(|message| message.is_said()).collect();
    let of_texts = said.iter().map(|message| tokens_of_text(config, &message.content));
    let around = 2 * said.iter().filter(|message| message.role == "assistant").count();
    // The token that begins the answer.
    of_texts.sum::<usize>() + around + line_breaks(config, &said) + 1
}

/// Returns the number of line breaks between messages in a row, where they are tokens.
fn line_breaks(config: &TokenizerConfig, messages: &[&Message]) -> usize {
    let in_a_row = |pair: &&[&Message]| pair.iter().all(|message| message.role != "assistant");
    match config {
        TokenizerConfig::Bytes => messages.windows(2).filter(in_a_row).count(),
        TokenizerConfig::Words(_) => 0,
    }
}

/// Returns the number of tokens of a text.
#[must_use]
pub fn tokens_of_text(config: &TokenizerConfig, text: &str) -> usize {
    match config {
        TokenizerConfig::Bytes => text.len(),
        TokenizerConfig::Words(_) => text.split_whitespace().count(),
    }
}

fn write(folder: &Path, file: &str, value: &Value) -> Result<(), TextError> {
    let path = folder.join(file);
    std::fs::write(&path, format!("{value:#}\n")).map_err(|source| TextError::Write { path, source })
}

/// Returns a model of byte-pair encoding without any pair.
fn byte_model() -> Value {
    let vocabulary: Map<String, Value> = (0..=255u8).map(|b| (byte_char(b).to_string(), b.into())).collect();
    json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": vocabulary, "merges": []})
}

/// Returns the printable character that stands for a byte in byte-level tokenizers (GPT-2's table).
pub(super) fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !printable(*b)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn word_model(words: &[String]) -> Value {
    let mut vocabulary: Map<String, Value> = words.iter().enumerate().map(|(i, w)| (w.clone(), i.into())).collect();
    vocabulary.insert(UNKNOWN.into(), words.len().into());
    json!({"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN})
}

fn check_words(words: &[String]) -> Result<(), TextError> {
    let mut seen = BTreeSet::new();
    let fault = |word: &String| -> Option<&'static str> {
        if word.is_empty() || word.contains(char::is_whitespace) {
            Some("it is empty or has white space")
        } else if [END, ASSISTANT, PAD, UNKNOWN]
            .iter()
            .any(|control| word.contains(control))
        {
            Some("it contains a control token")
        } else {
            None
        }
    };
    for word in words {
        let fault = fault(word).or_else(|| (!seen.insert(word)).then_some("it appears twice"));
        if let Some(message) = fault {
            return Err(TextError::Word {
                word: word.clone(),
                message,
            });
        }
    }
    if words.is_empty() {
        return Err(TextError::Word {
            word: String::new(),
            message: "there are no words",
        });
    }
    Ok(())
}
