//! What each role is told: minijinja templates, one per role, outside the code.

use std::fmt::Write as _;

use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::Message;
use minijinja::{Environment, UndefinedBehavior, Value};

use super::params::Params;

/// Built-in templates of a set, by name: `rollout/templates/SET/NAME.jinja`.
macro_rules! templates {
    ($set:literal, $($name:literal),+) => {
        [$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/", $set, "/", $name, ".jinja")),
        )),+]
    };
}
pub(crate) use templates;

/// Compiled templates by name.
#[derive(Debug)]
pub(crate) struct Prompts {
    environment: Environment<'static>,
}

impl Prompts {
    /// Takes the built-in templates and lays those files over them that `templates = { NAME = "PATH" }` names. Every
    /// template is rendered once with `sample`, so that a faulty one is found before the run begins.
    pub(crate) fn new(builtin: &[(&'static str, &'static str)], params: &mut Params<'_>, sample: &Value) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        let given = params.text_table("templates");
        for name in given
            .keys()
            .filter(|name| builtin.iter().all(|(known, _)| known != name))
        {
            let known = builtin.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            params.problem(
                &format!("templates.{name}"),
                format!("there is no such template; known are: {known}"),
            );
        }
        for (name, text) in builtin {
            let key = format!("templates.{name}");
            let text = match given.get(*name).map(std::fs::read_to_string) {
                None => (*text).to_owned(),
                Some(Ok(text)) => text,
                Some(Err(error)) => {
                    params.problem(&key, format!("cannot read the template: {error}"));
                    continue;
                }
            };
            let checked = environment
                .add_template_owned(*name, text)
                .and_then(|()| environment.get_template(name)?.render(sample));
            if let Err(error) = checked {
                params.problem(&key, format!("the template does not render: {}", chain(&error)));
            }
        }
        Self { environment }
    }

    /// The text of template `name`. Templates were tried at the start, so a failure here is one that only this very
    /// context causes; it is logged and the text is empty.
    pub(crate) fn text(&self, name: &str, context: Value) -> String {
        let rendered = self
            .environment
            .get_template(name)
            .and_then(|template| template.render(context));
        rendered.unwrap_or_else(|error| {
            tracing::error!(template = name, error = chain(&error), "a prompt template failed");
            String::new()
        })
    }
}

fn chain(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let _ = write!(text, ": {inner}");
        source = inner.source();
    }
    text
}

/// A task's messages before its last one (a system message, worked examples), then `text` as the user's, behind the images of the
/// last one.
pub(crate) fn with_preamble(task: &Task, text: String) -> Vec<Message> {
    let mut messages = match &task.prompt {
        Prompt::Text(_) => Vec::new(),
        Prompt::Messages(messages) => messages
            .split_last()
            .map_or_else(Vec::new, |(_, before)| before.to_vec()),
    };
    let images = task.prompt.images().iter().map(|image| image.url.clone());
    messages.push(Message::user(text).showing(images));
    messages
}
