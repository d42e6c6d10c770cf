//! Merges `[defaults.agent]` under every `[agents.NAME]`.

use toml::{Table, Value};

use super::reading::at;
use crate::{JUDGE, Problem};

const JUDGE_TIMEOUT: &str = "60s";

/// The places where the values of a merged table were written.
#[derive(Debug, Default)]
pub(super) struct Origins {
    defaults: Option<Value>,
    agents: Option<Value>,
}

/// Merges in place. Returns the origins of the values and the problems of `[defaults]` itself.
pub(super) fn agent_defaults(table: &mut Table) -> (Origins, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut origins = Origins {
        defaults: None,
        agents: table.get("agents").cloned(),
    };
    let base = match table.remove("defaults") {
        None => return (origins, problems),
        Some(Value::Table(mut defaults)) => {
            let base = defaults.remove("agent");
            problems.extend(defaults.keys().map(|key| Problem {
                path: format!("defaults.{key}"),
                message: "is not known here: write [defaults.agent], which is merged under every agent".into(),
            }));
            base
        }
        Some(_) => {
            problems.push(not_a_table("defaults"));
            None
        }
    };
    match base {
        Some(Value::Table(base)) => {
            if let Some(Value::Table(agents)) = table.get_mut("agents") {
                for agent in agents.iter_mut().filter_map(|(_, agent)| agent.as_table_mut()) {
                    lay_under(agent, &base);
                }
            }
            origins.defaults = Some(Value::Table(base));
        }
        Some(_) => problems.push(not_a_table("defaults.agent")),
        None => {}
    }
    (origins, problems)
}

/// Gives each judge without a timeout its default, which is longer than that of other graders.
pub(super) fn judge_timeouts(table: &mut Table) {
    let Some(Value::Table(graders)) = table.get_mut("graders") else {
        return;
    };
    for grader in graders.iter_mut().filter_map(|(_, grader)| grader.as_table_mut()) {
        if grader.get("kind").and_then(Value::as_str) == Some(JUDGE) && !grader.contains_key("timeout") {
            grader.insert("timeout".into(), Value::String(JUDGE_TIMEOUT.into()));
        }
    }
}

fn not_a_table(path: &str) -> Problem {
    Problem {
        path: path.into(),
        message: "must be a table: write [defaults.agent] and its keys below".into(),
    }
}

fn lay_under(top: &mut Table, base: &Table) {
    for (key, value) in base {
        match (top.get_mut(key), value) {
            // A choice of kind (`model.path` or `model.random`) is one value. Kinds are not mixed.
            (Some(Value::Table(top)), Value::Table(base)) if is_choice(key) && !top.keys().eq(base.keys()) => {}
            (Some(Value::Table(top)), Value::Table(base)) => lay_under(top, base),
            (Some(_), _) => {}
            (None, value) => {
                top.insert(key.clone(), value.clone());
            }
        }
    }
}

fn is_choice(key: &str) -> bool {
    matches!(key, "model" | "tokenizer")
}

impl Origins {
    /// Returns the place where the user wrote the value at `path`: the defaults if the agent does
    /// not set it.
    pub(super) fn place(&self, path: Vec<String>) -> Vec<String> {
        let Some((agent, rest)) = path
            .split_first()
            .filter(|(first, _)| *first == "agents")
            .and_then(|(_, rest)| rest.split_first())
        else {
            return path;
        };
        let of_agent = self.agents.as_ref().and_then(|agents| agents.get(agent));
        let written = |root: Option<&Value>| root.is_some_and(|root| !rest.is_empty() && at(root, rest).is_some());
        if written(of_agent) || !written(self.defaults.as_ref()) {
            return path;
        }
        ["defaults", "agent"]
            .into_iter()
            .map(String::from)
            .chain(rest.iter().cloned())
            .collect()
    }
}
