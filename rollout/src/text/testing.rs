//! Codecs for tests.

use broker::protocol::turn::{Message, TurnPrompt};
use configs::TokenizerConfig;
use serde_json::{Value, json};

use super::TextCodec;
use super::make::{ASSISTANT, END, write_tokenizer};

pub(super) fn words() -> TextCodec {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(
        folder.path(),
        &TokenizerConfig::Words(["o0", "o1", "s0", "s1"].map(str::to_owned).into()),
    )
    .unwrap();
    TextCodec::open(folder.path()).unwrap()
}

pub(super) fn bytes_in(folder: &std::path::Path) -> TextCodec {
    write_tokenizer(folder, &TokenizerConfig::Bytes).unwrap();
    TextCodec::open(folder).unwrap()
}

pub(super) fn bytes() -> TextCodec {
    bytes_in(tempfile::tempdir().unwrap().path())
}

pub(super) fn first(messages: &[Message]) -> TurnPrompt {
    TurnPrompt {
        held: Vec::new(),
        sampled: 0,
        messages: messages.to_vec(),
    }
}

pub(super) fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

/// Writes the folder of a byte tokenizer with changes: more tokens, another template or another
/// normaliser.
pub(super) fn changed_folder(change: impl Fn(&mut Value, &mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    bytes_in(folder.path());
    let path = |file: &str| folder.path().join(file);
    let read = |file: &str| serde_json::from_slice::<Value>(&std::fs::read(path(file)).unwrap()).unwrap();
    let (mut tokenizer, mut config) = (read("tokenizer.json"), read("tokenizer_config.json"));
    change(&mut tokenizer, &mut config);
    std::fs::write(path("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

pub(super) fn changed(change: impl Fn(&mut Value, &mut Value)) -> TextCodec {
    TextCodec::open(changed_folder(change).path()).unwrap()
}

pub(super) fn add_token(tokenizer: &mut Value, content: &str, special: bool) {
    let list = tokenizer["added_tokens"].as_array_mut().unwrap();
    let id = 256 + list.len();
    list.push(
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": special}),
    );
}

/// Returns ChatML as Qwen uses it, with empty reasoning in the generation prompt, `<think>` tokens
/// and a default system message.
pub(super) fn chatml() -> TextCodec {
    chatml_of(Some(false), QUIET)
}

/// The end of a generation prompt in a template: reasoning begins, or is already over.
pub(super) const THINKS: &str = "<think>\\n";
pub(super) const QUIET: &str = "<think>\\n\\n</think>\\n\\n";

/// Returns [`chatml`] with other marks. `Some(true)` makes `<think>` and `</think>` control tokens,
/// `Some(false)` other added tokens, `None` no tokens. `opening` ends the generation prompt.
pub(super) fn chatml_of(marks: Option<bool>, opening: &str) -> TextCodec {
    changed(|tokenizer, config| {
        for content in ["<|im_start|>", "<|im_end|>"] {
            add_token(tokenizer, content, true);
        }
        if let Some(special) = marks {
            for content in ["<think>", "</think>"] {
                add_token(tokenizer, content, special);
            }
        }
        config["eos_token"] = json!({"content": "<|im_end|>"});
        config["chat_template"] = json!(CHATML.replace("OPENING", opening));
    })
}

const CHATML: &str = "{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{%- endif %}\r\n\
     {%- for m in messages %}\n\
     {%- if m.role == 'assistant' %}\n\
     {{- '<|im_start|>assistant\\n' }}{% generation %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{{- '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}\n\
     {%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}\n\
     {%- endfor %}\n\
     {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\nOPENING' }}{%- endif %}\n";

/// Returns the ids as text, with control tokens spelled out.
pub(super) fn spelled(codec: &TextCodec, ids: &[u32]) -> String {
    ids.iter()
        .map(|id| match *id {
            byte @ 0..256 => char::from(byte as u8).to_string(),
            259.. if !codec.is_control(*id) => (if *id == 261 { "<think>" } else { "</think>" }).into(),
            256 => "<|pad|>".into(),
            257 => END.into(),
            258 => ASSISTANT.into(),
            259 => "<|im_start|>".into(),
            260 => "<|im_end|>".into(),
            other => panic!("{other}"),
        })
        .collect()
}
