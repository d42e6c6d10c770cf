//! Chat templates: Hugging Face's Jinja dialect on minijinja.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use broker::protocol::turn::Message;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;

use super::clock::strftime;
use super::folder::SpecialTexts;
use super::{TextError, pyjson};

const NAME: &str = "chat";
/// The name of the template for chats with tools, which some folders have.
const TOOL_USE: &str = "tool_use";
/// The function that templates call for the date.
pub(super) const CLOCK: &str = "strftime_now";
/// Instructions of one rendering. A conversation of a thousand messages takes less than a hundred
/// thousand. A template that never ends is stopped within seconds.
const FUEL: u64 = 5_000_000;
/// Most bytes of a template: several times the longest in use. Each byte may cost its compiler a
/// stack frame.
const SOURCE: usize = 64 << 10;
const STACK: usize = 256 << 20;
/// Most bytes of a rendered prompt: a million tokens of text. Encoding takes up to 70 bytes of
/// memory for each byte.
const LONGEST: usize = 4 << 20;

/// A compiled chat template, and the separate one for chats with tools if there is one.
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    tool_use: bool,
    texts: SpecialTexts,
    /// Variables that are the same for every rendering.
    args: Value,
}

/// Checks that the file of an agent's `chat_template` compiles.
///
/// # Errors
/// [`TextError::ChatTemplate`] and [`TextError::Jinja`].
pub fn check_template(path: &Path) -> Result<(), TextError> {
    let source = std::fs::read_to_string(path).map_err(|source| TextError::ChatTemplate {
        path: path.to_owned(),
        source,
    })?;
    ChatTemplate::new(&source, SpecialTexts::default(), None).map(drop)
}

impl ChatTemplate {
    /// Compiles a template. `now` is the time for `strftime_now`, in seconds since 1970. Without it
    /// that function does not exist.
    pub(super) fn new(source: &str, texts: SpecialTexts, now: Option<i64>) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", |value: Value, places: Rest<Value>, kwargs: Kwargs| {
            pyjson::tojson(&value, &places, &kwargs)
        });
        // In Jinja `none` is not iterable, but an undefined value is, as an empty list.
        environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        if let Some(now) = now {
            environment.add_function(CLOCK, move |format: &str| strftime(now, format));
        }
        let mut template = Self {
            environment,
            tool_use: false,
            texts,
            args: context! {},
        };
        template.compile(NAME, source)?;
        Ok(template)
    }

    /// Adds the separate template for chats with tools, if there is one.
    pub(super) fn with_tool_use(mut self, source: Option<&str>) -> Result<Self, TextError> {
        if let Some(source) = source {
            self.compile(TOOL_USE, source)?;
            self.tool_use = true;
        }
        Ok(self)
    }

    fn compile(&mut self, name: &'static str, source: &str) -> Result<(), TextError> {
        let source = plain_blocks(&source.replace("\r\n", "\n"));
        if source.len() > SOURCE {
            return Err(TextError::Jinja {
                message: format!("it has {} bytes; the limit is {SOURCE}", source.len()),
            });
        }
        let compiled = deep(|| self.environment.add_template_owned(name, source))?;
        compiled.map_err(|error| TextError::Jinja {
            message: error.to_string(),
        })
    }

    /// Adds variables for every rendering (`chat_template_kwargs` in other programs). The check of
    /// the configuration already rejected names that every rendering sets.
    pub(super) fn with_args(mut self, args: &toml::Table) -> Result<Self, TextError> {
        if args.is_empty() {
            return Ok(self);
        }
        let asked = self.asked()?;
        for name in args.keys().filter(|name| !asked.contains(name.as_str())) {
            tracing::warn!(%name, "the model's chat template has no such variable: template_args.{name} has no effect");
        }
        self.args = Value::from_serialize(args);
        Ok(self)
    }

    /// Returns true if the template uses a variable or function of that name that it does not
    /// define itself.
    pub(super) fn names(&self, name: &str) -> Result<bool, TextError> {
        Ok(self.asked()?.contains(name))
    }

    fn asked(&self) -> Result<HashSet<String>, TextError> {
        let find = || {
            let names = self.environment.templates();
            Ok(names
                .flat_map(|(_, template)| template.undeclared_variables(false))
                .collect())
        };
        deep(find)?.map_err(|e| failed(&e))
    }

    /// Renders messages. `tools` is the value of the template's variable of that name. A chat has
    /// tools if it has a list of them, or if the caller says so (`with_tools`).
    pub(super) fn render(
        &self,
        messages: &[Message],
        tools: Option<&Json>,
        with_tools: bool,
        generation: bool,
    ) -> Result<String, TextError> {
        let name = if with_tools || tools.is_some() { TOOL_USE } else { NAME };
        self.render_values(name, &Value::from_serialize(messages), tools, generation)
    }

    /// Renders messages with any fields, by the template of that name or the only one.
    pub(super) fn render_values(
        &self,
        name: &str,
        messages: &Value,
        tools: Option<&Json>,
        generation: bool,
    ) -> Result<String, TextError> {
        let name = if self.tool_use { name } else { NAME };
        // A missing token is undefined, which renders as nothing; `none` would be written as text.
        let token = |text: &Option<String>| {
            text.as_ref()
                .map_or(Value::UNDEFINED, |text| Value::from(text.as_str()))
        };
        let context = context! {
            messages => messages,
            add_generation_prompt => generation,
            tools => tools.map_or_else(|| Value::from(()), Value::from_serialize),
            documents => Value::from(()),
            bos_token => token(&self.texts.bos),
            eos_token => token(&self.texts.eos),
            pad_token => token(&self.texts.pad),
            unk_token => token(&self.texts.unk),
            ..self.args.clone()
        };
        let mut prompt = Bounded(Vec::new());
        self.environment
            .get_template(name)
            .and_then(|template| template.render_captured_to(context, &mut prompt).map(drop))
            .map_err(|e| failed(&e))?;
        String::from_utf8(prompt.0).map_err(|e| TextError::Template { message: e.to_string() })
    }
}

/// Runs work on a thread with a large stack: the compiler recurses for each sign of `----1`.
fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, TextError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        let running = thread.spawn_scoped(scope, work).map_err(|error| TextError::Template {
            message: format!("cannot start a thread to compile it: {error}"),
        })?;
        Ok(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// A rendering that stops at [`LONGEST`].
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(io::Error::other(format!("the prompt is longer than {LONGEST} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(error: &Error) -> TextError {
    let clock = error.kind() == ErrorKind::UnknownFunction && error.to_string().contains(CLOCK);
    let hint = if clock {
        " (it asks for the day, and has none of its own: write template_date = \"2026-11-23\", or another day, in the agent's configuration)"
    } else {
        ""
    };
    TextError::Template {
        message: format!("{error}{hint}"),
    }
}

/// Replaces `{% generation %}` blocks, which mark the assistant's text, with their content.
/// White-space control stays.
fn plain_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let inside = open + 2;
        let Some(close) = rest[inside..].find("%}").map(|at| inside + at) else {
            break;
        };
        let tag = &rest[inside..close];
        let name = tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        out.push_str(&rest[..inside]);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn renders(source: &str) -> bool {
        let texts = SpecialTexts::default();
        ChatTemplate::new(source, texts, None).is_ok_and(|template| template.render(&[], None, false, true).is_ok())
    }

    #[test]
    fn deep_long_or_endless_templates_are_rejected() {
        let deep = SOURCE - 100;
        for (what, source, good) in [
            ("signs", format!("{{{{ {}1 }}}}", "-".repeat(deep)), true),
            ("negations", format!("{{{{ {}1 }}}}", "not ".repeat(deep / 4)), true),
            ("sums", format!("{{{{ 1{} }}}}", "+1".repeat(deep / 2)), true),
            ("brackets", format!("{{{{ {}1", "[".repeat(deep)), false),
            ("blocks", "{% if 1 %}".repeat(deep / 10), false),
            ("calls", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}".into(), false),
            ("loops", "{% for i in range(99999) %}".repeat(4) + &"{% endfor %}".repeat(4), false),
            ("texts", "{% set ns = namespace(t='x') %}{% for i in range(9999) %}{{ ns.t }}{% set ns.t = ns.t ~ 'xxxxxxxx' %}{% endfor %}".into(), false),
            ("length", "x".repeat(SOURCE + 1), false),
            ("tags", "{%}{% %}%}{%".into(), false),
        ] {
            assert_eq!(renders(&source), good, "{what}");
        }
        assert!(renders("{{ 1 + 1 }}") && !renders("{{ f() }}"));
    }

    /// Jinja2 3.1 gives these results.
    #[test]
    fn iterable_means_the_same_as_in_jinja() {
        for (value, iterable) in [
            ("none", false),
            ("missing", true),
            ("''", true),
            ("'ab'", true),
            ("[]", true),
            ("{}", true),
            ("{'a': 1}", true),
            ("1", false),
            ("true", false),
            ("messages", true),
            ("tools", false),
        ] {
            let source = format!("{{{{ {value} is iterable }}}}{{{{ {value} is not iterable }}}}");
            let template = ChatTemplate::new(&source, SpecialTexts::default(), None).unwrap();
            let made = template.render(&[], None, false, true).unwrap().to_lowercase();
            assert_eq!(made, format!("{iterable}{}", !iterable), "{value}");
        }
    }

    #[test]
    fn args_are_variables_and_replace_no_other_variable() {
        let source = "{{ bos_token }}{{ eos_token }}{{ messages | length }}{% if mood is defined %}{{ mood.kinds[1] }}{% endif %}";
        let texts = SpecialTexts {
            eos: Some("E".into()),
            ..SpecialTexts::default()
        };
        let with = |args: &str| {
            let template = ChatTemplate::new(source, texts.clone(), None).unwrap();
            let template = template.with_args(&args.parse().unwrap()).unwrap();
            template.render(&[], None, false, true).unwrap()
        };
        assert_eq!(with(""), "E0", "a token that is not there is no text");
        assert_eq!(with("mood = { kinds = [1, \"calm\"] }"), "E0calm");
        assert_eq!(with("messages = [1, 2]\neos_token = \"x\"\nno_such = true"), "E0");
    }
}
