//! Chat templates: Hugging Face's Jinja dialect on minijinja.

use broker::protocol::turn::Message;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::clock::strftime;
use super::folder::SpecialTexts;
use super::{TextError, pyjson};

const NAME: &str = "chat";

/// A compiled chat template.
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    texts: SpecialTexts,
}

impl ChatTemplate {
    /// `now`, in seconds since 1970, is what `strftime_now` tells; without it that function does not exist.
    pub(super) fn new(source: &str, texts: SpecialTexts, now: Option<i64>) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", |value: Value, kwargs| pyjson::tojson(&value, kwargs));
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        if let Some(now) = now {
            environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        }
        let source = plain_blocks(&source.replace("\r\n", "\n"));
        environment.add_template_owned(NAME, source).map_err(|e| failed(&e))?;
        Ok(Self { environment, texts })
    }

    pub(super) fn render(&self, messages: &[Message], generation: bool) -> Result<String, TextError> {
        let context = context! {
            messages => messages,
            add_generation_prompt => generation,
            tools => Value::from(()),
            documents => Value::from(()),
            bos_token => self.texts.bos,
            eos_token => self.texts.eos,
            pad_token => self.texts.pad,
            unk_token => self.texts.unk,
        };
        self.environment
            .get_template(NAME)
            .and_then(|t| t.render(context))
            .map_err(|e| failed(&e))
    }
}

fn failed(error: &Error) -> TextError {
    let clock = error.kind() == ErrorKind::UnknownFunction && error.to_string().contains("strftime_now");
    let hint = if clock {
        " (it asks for the date: open the folder with TextCodec::open_at)"
    } else {
        ""
    };
    TextError::Template {
        message: format!("{error}{hint}"),
    }
}

/// `{% generation %}` blocks mark what the assistant says; they render as what they hold. White-space control stays.
fn plain_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(close) = rest[open..].find("%}").map(|at| open + at) else {
            break;
        };
        let tag = &rest[open + 2..close];
        let name = tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out.push_str(&rest[..open + 2]);
        match name {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[close..];
    }
    out.push_str(rest);
    out
}
