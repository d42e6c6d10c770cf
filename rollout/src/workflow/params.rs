//! Reads `[workflow]` and finds every problem in one pass, each with its key path.

use std::collections::BTreeMap;

use configs::{GraderConfig, Problem, WorkflowConfig, nearest};

use super::grading::Grading;
use super::{RoleSpec, profile};
use crate::grade::{Grader, KINDS, OTHER};

/// Takes settings out of a table and records what is wrong with them. Settings that are left over
/// at the end are unknown.
#[derive(Debug)]
pub struct Params<'a> {
    table: &'a toml::Table,
    path: String,
    known: Vec<&'static str>,
    /// The problems so far, each with its key path.
    pub problems: Vec<Problem>,
}

impl<'a> Params<'a> {
    /// Makes a reader of `table`. `path` is the table's key path, for example `workflow.params`.
    #[must_use]
    pub fn new(table: &'a toml::Table, path: &str) -> Self {
        Self {
            table,
            path: path.to_owned(),
            known: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Records a problem of `key`.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            path: format!("{}.{key}", self.path),
            message: message.into(),
        });
    }

    fn get(&mut self, key: &'static str) -> Option<&'a toml::Value> {
        self.known.push(key);
        self.table.get(key)
    }

    /// Returns a whole number within `range`, or `default` if not given.
    pub fn integer(&mut self, key: &'static str, default: i64, range: std::ops::RangeInclusive<i64>) -> i64 {
        match self.get(key) {
            None => default,
            Some(toml::Value::Integer(value)) if range.contains(value) => *value,
            Some(other) => {
                let (low, high) = (range.start(), range.end());
                self.problem(key, format!("{other} is not a whole number from {low} to {high}"));
                default
            }
        }
    }

    /// Returns a finite number within `range`, or `default` if not given.
    pub fn number(&mut self, key: &'static str, default: f64, range: std::ops::RangeInclusive<f64>) -> f64 {
        let value = match self.get(key) {
            None => return default,
            Some(toml::Value::Integer(value)) => *value as f64,
            Some(toml::Value::Float(value)) => *value,
            Some(_) => f64::NAN,
        };
        if range.contains(&value) {
            return value;
        }
        let (low, high) = (range.start(), range.end());
        self.problem(key, format!("write a number from {low} to {high}"));
        default
    }

    /// Returns one of `choices`, or the first if not given.
    pub fn choice(&mut self, key: &'static str, choices: &[&'static str]) -> &'static str {
        let default = choices.first().copied().unwrap_or_default();
        let Some(value) = self.get(key) else { return default };
        match choices.iter().find(|choice| value.as_str() == Some(choice)) {
            Some(choice) => choice,
            None => {
                self.problem(key, format!("{value} is not one of {}", choices.join(", ")));
                default
            }
        }
    }

    /// Returns a text, or `default` if not given.
    pub fn text(&mut self, key: &'static str, default: &str) -> String {
        match self.get(key) {
            None => default.to_owned(),
            Some(toml::Value::String(text)) => text.clone(),
            Some(other) => {
                self.problem(key, format!("{other} is not a text"));
                default.to_owned()
            }
        }
    }

    /// Returns a table of anything; empty if not given.
    pub fn any_table(&mut self, key: &'static str) -> Vec<(&'a String, &'a toml::Value)> {
        match self.get(key) {
            None => Vec::new(),
            Some(toml::Value::Table(table)) => table.iter().collect(),
            Some(_) => {
                self.problem(key, "write a table");
                Vec::new()
            }
        }
    }

    /// Returns a table of texts; empty if not given.
    pub fn text_table(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let Some(value) = self.get(key) else {
            return BTreeMap::new();
        };
        let Some(table) = value.as_table() else {
            self.problem(key, "write a table of texts");
            return BTreeMap::new();
        };
        let mut texts = BTreeMap::new();
        for (name, value) in table {
            match value.as_str() {
                Some(text) => drop(texts.insert(name.clone(), text.to_owned())),
                None => self.problem(&format!("{key}.{name}"), format!("{value} is not a text")),
            }
        }
        texts
    }

    /// Returns a table of lists of texts; empty if not given.
    pub fn lists(&mut self, key: &'static str) -> BTreeMap<String, Vec<String>> {
        let Some(value) = self.get(key) else {
            return BTreeMap::new();
        };
        let texts = |value: &toml::Value| -> Option<Vec<String>> {
            let items = value.as_array()?.iter();
            items.map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let Some(table) = value.as_table() else {
            self.problem(key, "write a table of lists of texts");
            return BTreeMap::new();
        };
        let mut lists = BTreeMap::new();
        for (name, value) in table {
            match texts(value) {
                Some(list) => drop(lists.insert(name.clone(), list)),
                None => self.problem(&format!("{key}.{name}"), format!("{value} is not a list of texts")),
            }
        }
        lists
    }

    /// Returns a list of texts; empty if not given.
    pub(crate) fn list(&mut self, key: &'static str) -> Vec<String> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let items = value
            .as_array()
            .map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)));
        let texts: Option<Vec<String>> = items.and_then(Iterator::collect);
        if texts.is_none() {
            self.problem(key, format!("{value} is not a list of texts"));
        }
        texts.unwrap_or_default()
    }

    /// Returns all problems, including every key that was not asked for.
    #[must_use]
    pub fn finish(mut self) -> Vec<Problem> {
        let unknown: Vec<&String> = self
            .table
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()))
            .collect();
        let known = if self.known.is_empty() {
            "none".to_owned()
        } else {
            self.known.join(", ")
        };
        for key in unknown {
            self.problem(key, format!("there is no such setting here; known are: {known}"));
        }
        self.problems
    }
}

/// Reads `cut`: true if a turn that reached its token limit ends its dialogue. Under short prompts
/// a turn is one word and always reaches its limit, so there the default is that the turn counts.
pub(crate) fn cut_ends(params: &mut Params<'_>, short: bool) -> bool {
    let ways = if short { ["heard", "ends"] } else { ["ends", "heard"] };
    params.choice("cut", &ways) == "ends"
}

/// Checks that every role of the workflow has an agent, and that roles and reward parts are known.
/// The profile of a shipped workflow must be known too.
#[must_use]
pub fn check_roles(config: &WorkflowConfig, specs: &[RoleSpec]) -> Vec<Problem> {
    let names = || specs.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut problems: Vec<Problem> = profile::unknown(config).into_iter().collect();
    let mut problem = |path: String, message: String| problems.push(Problem { path, message });
    for spec in specs.iter().filter(|spec| !config.roles.contains_key(&spec.name)) {
        let path = format!("workflow.roles.{}", spec.name);
        problem(path, format!("no agent plays it: write {} = \"NAME\"", spec.name));
    }
    for role in config
        .roles
        .keys()
        .filter(|role| specs.iter().all(|s| &s.name != *role))
    {
        let path = format!("workflow.roles.{role}");
        problem(
            path,
            format!("{} has no such role; its roles are: {}", config.kind, names()),
        );
    }
    for (role, parts) in &config.reward {
        let Some(spec) = specs.iter().find(|s| &s.name == role) else {
            let path = format!("workflow.reward.{role}");
            problem(
                path,
                format!("{} has no such role; its roles are: {}", config.kind, names()),
            );
            continue;
        };
        for (part, weight) in parts {
            let path = format!("workflow.reward.{role}.{part}");
            if !spec.parts.iter().any(|(name, _)| name == part) {
                let known = spec.parts.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                problem(path, format!("{role} earns no such part; its parts are: {known}"));
            } else if !weight.is_finite() {
                problem(path, format!("{weight} is not a weight: write a finite number"));
            }
        }
    }
    problems
}

/// Returns the grader that `workflow.params.grader` names (`correct` if not given), from
/// `[graders]`.
pub fn grader(params: &mut Params<'_>, graders: &BTreeMap<String, GraderConfig>) -> Grading {
    let name = params.text("grader", "correct");
    let Some(config) = graders.get(&name) else {
        let near = nearest(&name, graders.keys().map(String::as_str));
        let message = match near {
            Some(near) => format!("the workflow grades answers with it: rename [graders.{near}]"),
            None => format!(
                "the workflow grades answers with it: add kind = one of {}{OTHER}",
                KINDS.join(", ")
            ),
        };
        params.problems.push(Problem {
            path: format!("graders.{name}"),
            message,
        });
        return Grading::Rule(Grader::Exact);
    };
    Grading::new(config).unwrap_or_else(|message| {
        params.problems.push(Problem {
            path: format!("graders.{name}.kind"),
            message,
        });
        Grading::Rule(Grader::Exact)
    })
}
