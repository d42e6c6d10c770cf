//! Tools that agents may call in their turns.
//!
//! A call is an ask to the tool's own role, `ROLE-TOOL`, with a seat for each call. The answer
//! comes from outside the agents. It is committed once, like a generation, before it is used, so
//! workflows stay pure. [`WithTools`] gives tools to the roles of any workflow; `deep-research`
//! follows its seats itself.

pub(crate) mod call;
pub mod corpus;
pub(crate) mod seat_calls;
mod spec;
mod wrap;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use broker::RoleName;
use broker::protocol::task::{Task, TaskTool};
use broker::protocol::turn::Message;
use configs::{PROCESS, Problem, ToolConfig, ToolLimits, WorkflowConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::transcript::{Transcript, ask};
use call::Call;
use seat_calls::CallAnswer;
pub use seat_calls::ERROR;
pub(crate) use spec::Spec;
pub(crate) use wrap::WithTools;

/// The most calls of a seat. They are numbered from 0, and each has its own seat of the tool; every
/// calling seat has this many.
const CALLS: u16 = 256;

/// The place of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolPlace {
    /// A folder of documents, searched in this process.
    Corpus(PathBuf),
    /// A program of the user's own.
    Process(String),
    /// The URL of a server.
    Http(String),
}

/// A tool, and the roles under which its answers are committed.
#[derive(Debug, Clone)]
pub struct ToolProgram {
    pub name: String,
    pub place: ToolPlace,
    pub roles: Vec<RoleName>,
    pub config: ToolConfig,
}

/// A question for a tool: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename = "call")]
pub struct ToolQuestion {
    pub tool: String,
    /// In the form of the tool's schema.
    pub arguments: Value,
    /// The task's metadata. The label is left out.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// The tools of a workflow and the roles that may call them.
#[derive(Debug)]
pub(crate) struct Tools {
    tools: BTreeMap<String, Tool>,
    users: BTreeMap<RoleName, Vec<String>>,
    limits: ToolLimits,
}

#[derive(Debug)]
struct Tool {
    spec: Spec,
    place: ToolPlace,
    config: ToolConfig,
}

impl Tools {
    /// Makes the tools that `workflow.tools` names, or returns everything that is wrong with them.
    pub(crate) fn new(config: &WorkflowConfig, declared: &BTreeMap<String, ToolConfig>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut problem = |path: String, message: String| problems.push(Problem { path, message });
        let mut tools = BTreeMap::new();
        for (name, tool) in declared {
            match Tool::new(name, tool) {
                Ok(made) => drop(tools.insert(name.clone(), made)),
                Err((key, message)) => problem(format!("tools.{name}.{key}"), message),
            }
        }
        let mut owned = BTreeSet::new();
        for (role, names) in &config.tools {
            let path = || format!("workflow.tools.{role}");
            for name in names {
                match own_role(role, name) {
                    _ if !declared.contains_key(name) => problem(path(), format!("there is no [tools.{name}]")),
                    None => problem(
                        path(),
                        format!("{role}-{name} is longer than 32 characters: shorten the tool's name"),
                    ),
                    Some(own) if config.roles.contains_key(&own) => {
                        problem(
                            path(),
                            format!("the calls' own role {own} is one of workflow.roles: rename it"),
                        );
                    }
                    Some(own) if !owned.insert(own.clone()) => problem(
                        path(),
                        format!(
                            "calls would be made as {own} twice: name each tool once, and so that role-tool is unique"
                        ),
                    ),
                    Some(_) => {}
                }
            }
        }
        if problems.is_empty() {
            Ok(Self {
                tools,
                users: config.tools.clone(),
                limits: config.tool_limits.clone(),
            })
        } else {
            Err(problems)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.values().all(Vec::is_empty)
    }

    pub(crate) fn limits(&self) -> &ToolLimits {
        &self.limits
    }

    fn users(&self) -> impl Iterator<Item = &RoleName> {
        self.users
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(role, _)| role)
    }

    fn of(&self, role: &RoleName) -> impl Iterator<Item = &Tool> {
        let names = self.users.get(role).map_or(&[][..], Vec::as_slice);
        names.iter().filter_map(|name| self.tools.get(name))
    }

    /// Checks that some role may call each tool that the task lists, with arguments that the tool
    /// takes.
    pub(crate) fn check(&self, task: &Task) -> Result<(), String> {
        let offered: BTreeSet<&str> = self.users.values().flatten().map(String::as_str).collect();
        known(task, &offered)?;
        let refused = task.tools.iter().flatten().find_map(|one| {
            let tool = self.tools.get(one.name())?;
            tool.spec.refuse_bound(one.bound()?)
        });
        refused.map_or(Ok(()), |why| Err(format!("its tools are not good: {why}")))
    }

    /// Returns the tools that a role's chat template lists: `more`, and those of its tools that the
    /// task offers.
    pub(crate) fn message(&self, role: &RoleName, task: &Task, more: &[&Spec]) -> Option<Message> {
        let own = self
            .of(role)
            .map(|tool| &tool.spec)
            .filter(|spec| task.offers(&spec.name));
        let own = own.map(|spec| spec.listed(task.bound(&spec.name)));
        let list: Vec<Value> = more.iter().map(|spec| spec.listed(None)).chain(own).collect();
        (!list.is_empty()).then(|| Message::new(Message::TOOLS, Value::Array(list).to_string()))
    }

    /// Returns the answer to a call, or the ask for it. `more` are tools that are answered
    /// elsewhere; here they are only named.
    pub(crate) fn answer(
        &self,
        task: &Task,
        events: Transcript<'_>,
        (role, seat): (&RoleName, u16),
        (number, call): (u16, &Call),
        more: &[&Spec],
    ) -> CallAnswer {
        let named = self.of(role).find(|tool| tool.spec.name == call.name);
        let Some(tool) = named.filter(|_| task.offers(&call.name)) else {
            return Ok(self.not_offered(role, task, call, more));
        };
        let arguments = match tool.spec.arguments(&call.arguments, task.bound(&call.name)) {
            Ok(arguments) => arguments,
            Err(why) => return Ok(format!("{ERROR}{why}")),
        };
        let place = seat.checked_mul(CALLS).and_then(|first| first.checked_add(number));
        let (Some(own), Some(place)) = (own_role(role, &call.name), place.filter(|_| number < CALLS)) else {
            return Ok(format!("{ERROR}no more calls can be made"));
        };
        if let Some(said) = events.first(&own, place) {
            return Ok(said.text.clone());
        }
        let question = ToolQuestion {
            tool: call.name.clone(),
            arguments,
            metadata: task.metadata.clone(),
        };
        // A question consists of texts and numbers, so it is always JSON.
        let line = serde_json::to_string(&question).unwrap_or_default();
        Err(vec![ask(&own, place, vec![Message::user(line)])])
    }

    /// Returns the answer to a call of a tool that does not exist, or that this task does not
    /// offer.
    fn not_offered(&self, role: &RoleName, task: &Task, call: &Call, more: &[&Spec]) -> String {
        let own = self.of(role).map(|tool| tool.spec.name.as_str());
        let (offered, withheld): (Vec<&str>, Vec<&str>) = own.partition(|name| task.offers(name));
        let known: Vec<&str> = more.iter().map(|spec| spec.name.as_str()).chain(offered).collect();
        let there = match known.as_slice() {
            [] => "there are none".to_owned(),
            known => format!("there are: {}", known.join(", ")),
        };
        let called: String = call.name.chars().take(64).collect();
        if withheld.contains(&call.name.as_str()) {
            format!("{ERROR}the tool {called:?} is not offered in this task; {there}")
        } else {
            format!("{ERROR}there is no tool {called:?}; {there}")
        }
    }

    /// Returns each tool with the roles of its answers.
    pub(crate) fn programs(&self) -> Vec<ToolProgram> {
        let roles = |name: &String| {
            let callers = self.users.iter().filter(|(_, names)| names.contains(name));
            callers.filter_map(|(role, _)| own_role(role, name)).collect::<Vec<_>>()
        };
        let used = self.tools.iter().map(|(name, tool)| ToolProgram {
            name: name.clone(),
            place: tool.place.clone(),
            roles: roles(name),
            config: tool.config.clone(),
        });
        used.filter(|tool| !tool.roles.is_empty()).collect()
    }
}

impl Tool {
    /// Makes the tool. An error has the key that it is about.
    fn new(name: &str, config: &ToolConfig) -> Result<Self, (&'static str, String)> {
        let place = place(&config.kind).map_err(|message| ("kind", message))?;
        let own = matches!(place, ToolPlace::Corpus(_))
            .then(|| corpus::spec(name))
            .flatten();
        let spec = match own {
            Some(own) => own.map_err(|message| ("kind", message))?,
            None => {
                let parameters = serde_json::to_value(&config.parameters).unwrap_or_default();
                Spec::new(name, &config.description, parameters).map_err(|message| ("parameters", message))?
            }
        };
        Ok(Self {
            spec,
            place,
            config: config.clone(),
        })
    }
}

/// Checks that each tool that the task lists is in `offered`, and is listed once.
pub(super) fn known(task: &Task, offered: &BTreeSet<&str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in task.tools.iter().flatten().map(TaskTool::name) {
        if !offered.contains(name) {
            let there = match offered.len() {
                0 => "its agents may call nothing: see [workflow.tools]".to_owned(),
                _ => format!("there are {}", offered.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            return Err(format!(
                "its tools name {name:?}, which this run does not offer; {there}"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("its tools name {name:?} twice"));
        }
    }
    Ok(())
}

fn place(kind: &str) -> Result<ToolPlace, String> {
    if let Some(folder) = kind.strip_prefix("corpus:") {
        return if Path::new(folder).is_dir() {
            Ok(ToolPlace::Corpus(folder.into()))
        } else {
            Err(format!(
                "there is no folder {folder:?}: paths count from the working directory"
            ))
        };
    }
    if let Some(file) = kind.strip_prefix(PROCESS) {
        return if Path::new(file).is_file() {
            Ok(ToolPlace::Process(file.to_owned()))
        } else {
            Err(format!(
                "there is no file {file:?}: paths count from the working directory"
            ))
        };
    }
    Ok(ToolPlace::Http(kind.to_owned()))
}

/// Returns the role under which the answers to a role's calls of a tool are committed.
fn own_role(role: &RoleName, tool: &str) -> Option<RoleName> {
    RoleName::new(&format!("{role}-{tool}")).ok()
}

#[cfg(test)]
mod tests;
