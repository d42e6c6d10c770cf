//! What each role is told: minijinja templates, one per role, outside the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::Message;
use minijinja::value::merge_maps;
use minijinja::{Environment, UndefinedBehavior, Value, context};

use super::examples::{self, EXAMPLES};
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
    /// Worked examples by the name of their template.
    examples: BTreeMap<String, Value>,
}

impl Prompts {
    /// Takes the built-in templates and lays those files over them that `templates = { NAME = "PATH" }` names; `examples = { NAME =
    /// ... }` is what a template has as its variable `examples`, an empty list otherwise. Every template is rendered once with `sample`, so that a faulty one is found before the run begins.
    pub(crate) fn new(builtin: &[(&'static str, &'static str)], params: &mut Params<'_>, sample: &Value) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        let given = params.text_table("templates");
        let names: Vec<&str> = builtin.iter().map(|(name, _)| *name).collect();
        let examples = examples::read(params, &names);
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
            let checked = environment.add_template_owned(*name, text).and_then(|()| {
                environment
                    .get_template(name)?
                    .render(with(&examples, name, sample.clone()))
            });
            if let Err(error) = checked {
                params.problem(&key, format!("the template does not render: {}", chain(&error)));
            } else if examples.contains_key(*name) && !names_examples(&environment, name) {
                let message =
                    format!("the template {name} does not use `{EXAMPLES}`: lay one over it that does, under {key}");
                params.problem(&format!("{EXAMPLES}.{name}"), message);
            }
        }
        Self { environment, examples }
    }

    /// The text of template `name`. Templates were tried at the start, so a failure here is one that only this very
    /// context causes; it is logged and the text is empty.
    pub(crate) fn text(&self, name: &str, context: Value) -> String {
        let rendered = self
            .environment
            .get_template(name)
            .and_then(|template| template.render(with(&self.examples, name, context)));
        rendered.unwrap_or_else(|error| {
            tracing::error!(template = name, error = chain(&error), "a prompt template failed");
            String::new()
        })
    }
}

/// The variables of a template, its examples among them.
fn with(examples: &BTreeMap<String, Value>, name: &str, variables: Value) -> Value {
    let examples = examples
        .get(name)
        .cloned()
        .unwrap_or_else(|| Value::from(Vec::<Value>::new()));
    merge_maps([variables, context! { examples }])
}

fn names_examples(environment: &Environment<'_>, name: &str) -> bool {
    let template = environment.get_template(name);
    template.is_ok_and(|template| template.undeclared_variables(false).contains(EXAMPLES))
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATES: [(&str, &str); 2] = [("solver", "{{ prompt }}"), ("verifier", "{{ prompt }}?")];

    fn prompts(settings: &str) -> Result<Prompts, Vec<String>> {
        let table: toml::Table = settings.parse().unwrap();
        let mut params = Params::new(&table, "workflow.params");
        let prompts = Prompts::new(&TEMPLATES, &mut params, &context! { prompt => "?" });
        let problems: Vec<String> = params
            .finish()
            .into_iter()
            .map(|one| format!("{}: {}", one.path, one.message))
            .collect();
        if problems.is_empty() {
            Ok(prompts)
        } else {
            Err(problems)
        }
    }

    fn shots() -> (tempfile::TempDir, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let (template, lines) = (folder.path().join("solver.jinja"), folder.path().join("shots.jsonl"));
        std::fs::write(
            &template,
            "{% for one in examples %}\nQ: {{ one.prompt }}\nA: {{ one.answer }}\n{% endfor %}\nQ: {{ prompt }}\nA:",
        )
        .unwrap();
        std::fs::write(
            &lines,
            "{\"prompt\": \"1+1\", \"answer\": 2}\n\n{\"prompt\": \"{{ 2 }}\", \"answer\": \"\\u00e9\"}\n",
        )
        .unwrap();
        (folder, template.display().to_string(), lines.display().to_string())
    }

    #[test]
    fn examples_stand_where_their_template_has_them() {
        let (_folder, template, lines) = shots();
        let over = format!("templates.solver = {template:?}\n");
        let question = || context! { prompt => "3+4" };
        let told = prompts(&format!("{over}examples.solver = {lines:?}")).unwrap();
        // What an example says is text, and no template.
        let golden = "Q: 1+1\nA: 2\nQ: {{ 2 }}\nA: \u{e9}\nQ: 3+4\nA:";
        assert_eq!(told.text("solver", question()), golden);
        assert_eq!(told.text("verifier", question()), "3+4?");
        let listed = prompts(&format!(
            "{over}examples.solver = [{{ prompt = \"5+5\", answer = \"10\" }}]"
        ))
        .unwrap();
        assert_eq!(listed.text("solver", question()), "Q: 5+5\nA: 10\nQ: 3+4\nA:");
        let none = prompts(&over).unwrap();
        assert_eq!(
            none.text("solver", question()),
            "Q: 3+4\nA:",
            "without examples the list is empty"
        );
    }

    #[test]
    fn examples_that_nobody_would_see_or_read_are_named() {
        let (folder, template, _) = shots();
        let over = format!("templates.solver = {template:?}\n");
        let bad = folder.path().join("bad.jsonl");
        std::fs::write(&bad, "{\"prompt\": \"1\"}\n[1]\n").unwrap();
        for (settings, says) in [
            (
                "examples.verifier = [{ prompt = \"1\" }]".to_owned(),
                "does not use `examples`",
            ),
            (
                "examples.judge = [{ prompt = \"1\" }]".to_owned(),
                "known are: solver, verifier",
            ),
            (
                format!("{over}examples.solver = \"nowhere.jsonl\""),
                "cannot read nowhere.jsonl",
            ),
            (
                format!("{over}examples.solver = {:?}", bad.display().to_string()),
                "line 2",
            ),
            (format!("{over}examples.solver = []"), "has no example"),
            (format!("{over}examples.solver = [1]"), "neither a file"),
            // An example without what the template reads of it.
            (
                format!("{over}examples.solver = [{{ prompt = \"1\" }}]"),
                "does not render",
            ),
        ] {
            let problems = prompts(&settings).unwrap_err();
            assert!(
                problems.len() == 1 && problems[0].contains(says),
                "{settings}: {problems:?}"
            );
        }
    }
}
