//! Prompts of the roles: minijinja templates, one per role, outside the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use broker::protocol::task::{Prompt, Task};
use broker::protocol::turn::Message;
use minijinja::value::{Object, merge_maps};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value, context};

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

/// The variable with the task's metadata.
const METADATA: &str = "metadata";

/// Compiled templates by name.
#[derive(Debug)]
pub(crate) struct Prompts {
    environment: Environment<'static>,
    /// Worked examples by the name of their template.
    examples: BTreeMap<String, Value>,
    /// The variables with which templates were tried.
    sample: Value,
    /// Templates, if any of them reads the task's metadata: the task must have what they read.
    of_metadata: Vec<&'static str>,
}

/// A stand-in for metadata that is not known yet: it has every key, and each is text.
#[derive(Debug)]
struct Anything;

impl Object for Anything {
    fn get_value(self: &Arc<Self>, _key: &Value) -> Option<Value> {
        Some(Value::from_object(Self))
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result
    where
        Self: Sized + 'static,
    {
        f.write_str("?")
    }
}

impl Prompts {
    /// Takes the built-in templates and replaces those that `templates = { NAME = "PATH" }` names.
    /// `examples = { NAME = ... }` gives a template its variable `examples`, an empty list
    /// otherwise. Every template is rendered once with `sample`, so that a faulty one is found
    /// before the run begins.
    pub(crate) fn new(builtin: &[(&'static str, &'static str)], params: &mut Params<'_>, sample: &Value) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        let given = params.text_table("templates");
        let names: Vec<&str> = builtin.iter().map(|(name, _)| *name).collect();
        let examples = examples::read(params, &names);
        let mut reads_metadata = false;
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
            let text = match given.get(*name).map(|path| (path, std::fs::read_to_string(path))) {
                None => (*text).to_owned(),
                Some((_, Ok(text))) => text,
                Some((path, Err(error))) => {
                    params.problem(&key, format!("cannot read the template {path}: {error}"));
                    continue;
                }
            };
            let of_metadata = text.contains(METADATA);
            reads_metadata |= of_metadata;
            let anything = Value::from_object(Anything);
            let checked = environment.add_template_owned(*name, text).and_then(|()| {
                environment
                    .get_template(name)?
                    .render(with(&examples, name, sample.clone(), anything))
            });
            // A computation with metadata may fail only for lack of a value; each task is tried
            // ([`Prompts::check`]).
            let wants = |kind| matches!(kind, ErrorKind::InvalidOperation | ErrorKind::CannotUnpack);
            let excused = |error: &minijinja::Error| of_metadata && wants(error.kind());
            if let Err(error) = checked.as_ref()
                && !excused(error)
            {
                let unknown = unknown_variables(&environment, name, sample);
                params.problem(&key, format!("the template does not render: {}{unknown}", chain(error)));
            } else if examples.contains_key(*name) && !names_examples(&environment, name) {
                let message =
                    format!("the template {name} does not use `{EXAMPLES}`: replace it by one that does, under {key}");
                params.problem(&format!("{EXAMPLES}.{name}"), message);
            }
        }
        let all = builtin.iter().map(|(name, _)| *name);
        Self {
            environment,
            examples,
            sample: sample.clone(),
            of_metadata: all.filter(|_| reads_metadata).collect(),
        }
    }

    /// Checks that the task has the metadata that templates read.
    pub(crate) fn check(&self, task: &Task) -> Result<(), String> {
        for name in &self.of_metadata {
            self.render(name, task, self.sample.clone()).map_err(|error| {
                format!(
                    "the template {name} does not render with its metadata: {}",
                    chain(&error)
                )
            })?;
        }
        Ok(())
    }

    fn render(&self, name: &str, task: &Task, context: Value) -> Result<String, minijinja::Error> {
        let metadata = if self.of_metadata.is_empty() {
            Value::UNDEFINED
        } else {
            Value::from_serialize(&task.metadata)
        };
        let variables = with(&self.examples, name, context, metadata);
        self.environment.get_template(name)?.render(variables)
    }

    /// Returns the text of template `name`, with the task's metadata added to `context`. Templates
    /// were tried at the start, so a failure here comes from this very context. It is logged and
    /// the text is empty.
    pub(crate) fn text(&self, name: &str, task: &Task, context: Value) -> String {
        self.render(name, task, context).unwrap_or_else(|error| {
            tracing::error!(template = name, error = chain(&error), "a prompt template failed");
            String::new()
        })
    }
}

/// Returns the variables of a template, including its examples and the task's metadata.
fn with(examples: &BTreeMap<String, Value>, name: &str, variables: Value, metadata: Value) -> Value {
    let examples = examples
        .get(name)
        .cloned()
        .unwrap_or_else(|| Value::from(Vec::<Value>::new()));
    merge_maps([variables, context! { examples, metadata }])
}

/// Describes the variables that a template reads but does not get, and those that it gets. Empty if
/// it gets all that it reads.
fn unknown_variables(environment: &Environment<'_>, name: &str, sample: &Value) -> String {
    let Ok(template) = environment.get_template(name) else {
        return String::new();
    };
    let given = sample.try_iter().into_iter().flatten();
    let given: BTreeSet<String> = given.map(|key| key.to_string()).collect();
    let known = |one: &String| given.contains(one) || [EXAMPLES, METADATA].contains(&one.as_str());
    let read: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
    let unknown: Vec<String> = read.into_iter().filter(|one| !known(one)).collect();
    if unknown.is_empty() {
        return String::new();
    }
    let given: Vec<String> = given.into_iter().collect();
    format!(
        "; it reads {}, but its variables are {}, {EXAMPLES}, {METADATA}",
        unknown.join(", "),
        given.join(", ")
    )
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

/// Returns a task's messages before its last one (a system message, worked examples), then `text`
/// as the user's, after the images of the last one.
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
    use super::super::testing::task;
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
            "\u{feff}{\"prompt\": \"1+1\", \"answer\": 2}\n\n{\"prompt\": \"{{ 2 }}\", \"answer\": \"\\u00e9\"}\n",
        )
        .unwrap();
        (folder, template.display().to_string(), lines.display().to_string())
    }

    #[test]
    fn examples_stand_where_their_template_has_them() {
        let (_folder, template, lines) = shots();
        let over = format!("templates.solver = {template:?}\n");
        let question = || context! { prompt => "3+4" };
        let any = task("3+4", 7.into());
        let with_lines = prompts(&format!("{over}examples.solver = {lines:?}")).unwrap();
        // The text of an example is not a template.
        let golden = "Q: 1+1\nA: 2\nQ: {{ 2 }}\nA: \u{e9}\nQ: 3+4\nA:";
        assert_eq!(with_lines.text("solver", &any, question()), golden);
        assert_eq!(with_lines.text("verifier", &any, question()), "3+4?");
        let listed = prompts(&format!(
            "{over}examples.solver = [{{ prompt = \"5+5\", answer = \"10\" }}]"
        ))
        .unwrap();
        assert_eq!(listed.text("solver", &any, question()), "Q: 5+5\nA: 10\nQ: 3+4\nA:");
        let none = prompts(&over).unwrap();
        assert_eq!(
            none.text("solver", &any, question()),
            "Q: 3+4\nA:",
            "without examples the list is empty"
        );
    }

    #[test]
    fn examples_that_would_not_be_seen_or_read_are_named() {
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
            // An example without a value that the template reads.
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

    #[test]
    fn a_task_without_the_metadata_that_a_template_reads_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let laid = |text: &str| {
            let path = folder.path().join("solver.jinja");
            std::fs::write(&path, text).unwrap();
            prompts(&format!("templates.solver = {:?}", path.display().to_string()))
        };
        let mut hinted = task("3+4", 7.into());
        hinted.metadata.insert("hint".into(), "count".into());
        hinted.metadata.insert("level".into(), 2.into());
        let bare = task("3+4", 7.into());
        let sum = laid("{{ prompt }} {{ metadata.hint }} {{ metadata.level + 1 }}").unwrap();
        assert_eq!(sum.text("solver", &hinted, context! { prompt => "3+4" }), "3+4 count 3");
        assert!(sum.check(&hinted).is_ok());
        let error = sum.check(&bare).unwrap_err();
        assert!(error.contains("the template solver"), "{error}");
        // The stand-in for metadata cannot be taken apart as a pair; a task's value can.
        let pair = laid("{% set a, b = metadata.pair %}{{ prompt }} {{ a }}").unwrap();
        hinted.metadata.insert("pair".into(), serde_json::json!([1, 2]));
        assert!(pair.check(&hinted).is_ok() && pair.check(&bare).is_err());
        // A template tests first for a value that may be missing.
        let optional = laid("{{ metadata.hint if metadata.hint is defined else 'none' }}").unwrap();
        assert_eq!(optional.text("solver", &bare, context! { prompt => "3+4" }), "none");
        assert!(optional.check(&bare).is_ok());
        // Names that are no variables are still found before the run.
        let faulty = laid("{{ metadata.hint }} {{ promt }}").unwrap_err();
        let named = "; it reads promt, but its variables are prompt, examples, metadata";
        assert!(faulty.len() == 1 && faulty[0].ends_with(named), "{faulty:?}");
    }
}
