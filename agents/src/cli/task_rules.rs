//! Checks that lines are tasks of a run before they are sent, and lists the problems by line.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use broker::codec::excerpt;
use broker::protocol::task::Task;
use bytes::Bytes;
use configs::{Problem, RunConfig};
use rollout::tasks::TaskSource;
use rollout::workflow::Workflow;

use crate::base::fault::Usage;
use crate::turn::task_check;

/// Largest number of problems printed.
const SHOWN: usize = 20;

/// The rules that a task must satisfy.
pub struct Rules {
    pub limit: usize,
    /// Name of the run's workflow, if known.
    pub kind: Option<String>,
    /// The workflow, which knows its tasks and the tools of its roles.
    pub workflow: Option<Arc<dyn Workflow>>,
    /// The run's configuration, if known; it says which agents see images.
    pub config: Option<Box<RunConfig>>,
}

/// The rules for a run without a known configuration.
impl Default for Rules {
    fn default() -> Self {
        Self {
            limit: 1 << 20,
            kind: None,
            workflow: None,
            config: None,
        }
    }
}

impl Rules {
    /// Returns the rules of the run with this configuration, which its coordinator applies too.
    ///
    /// # Errors
    /// Returns an error if the workflow cannot be built here, because no task can be checked then.
    pub fn of(config: &RunConfig) -> anyhow::Result<Self> {
        let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools)
            .map_err(|problems| unbuilt(&problems))?;
        Ok(Self {
            limit: usize::try_from(config.run.message_cap.0).unwrap_or(usize::MAX),
            kind: Some(workflow.kind().to_owned()),
            workflow: Some(workflow),
            config: Some(Box::new(config.clone())),
        })
    }

    /// Returns a note for the case that only the form of tasks could be checked.
    #[must_use]
    pub fn unjudged(&self) -> &'static str {
        match self.workflow {
            Some(_) => "",
            None => {
                "\nonly their form was checked, because no configuration is known: give --config FILE or the run's folder \
                 (--run, --runs), and the workflow checks prompts, labels and tools"
            }
        }
    }
}

/// Explains that a workflow cannot be built. The configuration comes from a run, so the working
/// directory is most likely not the one of the run.
fn unbuilt(problems: &[Problem]) -> anyhow::Error {
    let lines: String = problems
        .iter()
        .map(|problem| format!("\n  {}: {}", problem.path, problem.message))
        .collect();
    let here = std::env::current_dir().unwrap_or_default();
    let here = here.display();
    Usage::new(format!(
        "no task can be checked, because the run's workflow cannot be built in {here}:{lines}"
    ))
    .hint(format!(
        "relative paths of templates, programs and documents count from the working directory, {here}: start in \
         the working directory of the run, or write absolute paths into the configuration"
    ))
    .into()
}

/// A valid task with its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub id: String,
    pub body: Bytes,
}

/// The origin of lines, which errors name.
pub struct Origin<'a> {
    /// The whole, such as `lines of tasks.jsonl`.
    pub all: String,
    /// Returns the name of a line by its number from 1, such as `line 3`.
    pub line: Box<dyn Fn(usize) -> String + 'a>,
}

impl Default for Origin<'_> {
    fn default() -> Self {
        Self {
            all: "lines".into(),
            line: Box::new(|number| format!("line {number}")),
        }
    }
}

impl<'a> Origin<'a> {
    /// The lines of a file, or of standard input.
    pub fn of_file(file: &Path) -> Self {
        let name = if file.as_os_str() == "-" {
            "standard input".into()
        } else {
            file.display().to_string()
        };
        Self {
            all: format!("lines of {name}"),
            ..Self::default()
        }
    }

    /// The rows of a data set, which are the lines in their order.
    pub fn of_rows(source: &str, rows: &'a TaskSource) -> Self {
        let line = |number: usize| {
            let row = rows.row_place(number as u64 - 1);
            row.unwrap_or_else(|| format!("task {number}"))
        };
        Self {
            all: format!("rows of {source}"),
            line: Box::new(line),
        }
    }
}

/// Returns all lines as tasks, or an error that lists every wrong line by number. Blank lines are
/// skipped.
pub fn validate(text: &[u8], rules: &Rules) -> anyhow::Result<Vec<Checked>> {
    validate_from(&Origin::default(), text, rules)
}

/// Does the same, with errors that name the lines by their origin.
pub fn validate_from(origin: &Origin<'_>, text: &[u8], rules: &Rules) -> anyhow::Result<Vec<Checked>> {
    let mut problems = Vec::new();
    let mut tasks = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let number = index + 1;
        let checked = check(line, rules, None).and_then(|task| match seen.insert(task.id.clone(), number) {
            None => Ok(task),
            Some(first) => Err(format!(
                "id is {:?}, as in {}: a run handles an id once; write another",
                task.id,
                (origin.line)(first)
            )),
        });
        match checked {
            Ok(task) => tasks.push(task),
            Err(problem) => problems.push(format!("{}: {problem}", (origin.line)(number))),
        }
    }
    if problems.is_empty() && !tasks.is_empty() {
        return Ok(tasks);
    }
    if problems.is_empty() {
        return Err(Usage::new(format!("there is no task in the {}", origin.all))
            .hint("write one JSON object per line")
            .into());
    }
    let (wrong, all) = (problems.len(), problems.len() + tasks.len());
    problems.truncate(SHOWN);
    let more = if wrong > SHOWN {
        format!("\n  ... and {} more", wrong - SHOWN)
    } else {
        String::new()
    };
    let list = problems.join("\n  ");
    let lines = &origin.all;
    Err(Usage::new(format!("{wrong} of {all} {lines} are not tasks for this run; nothing was sent\n  {list}{more}"))
        .hint("a task is {\"prompt\": \"...\", \"label\": ..., \"id\": \"...\"}; label and id may be left out if the workflow allows it")
        .into())
}

/// Checks a task. `message_id` is its id if the task has none.
pub(super) fn check(line: &[u8], rules: &Rules, message_id: Option<&str>) -> Result<Checked, String> {
    let task = Task::parse(line, rules.limit).map_err(|e| e.to_string())?;
    if let (Some(asked), Some(plays)) = (&task.workflow, &rules.kind)
        && asked != plays
    {
        let asked = excerpt(&asked.as_str().into());
        return Err(format!(
            "workflow is {asked}, but this run plays {plays:?}: leave it out, or publish to another run"
        ));
    }
    match (&rules.workflow, &rules.config) {
        (Some(workflow), Some(config)) => task_check::check(config, workflow.as_ref(), &task)?,
        (Some(workflow), None) => rollout::workflow::check_task(workflow.as_ref(), &task)?,
        (None, _) => {}
    }
    Ok(Checked {
        id: task.resolve_id(message_id, line),
        body: Bytes::copy_from_slice(line),
    })
}

#[cfg(test)]
impl Rules {
    /// Returns the rules of a `signal` run with small tasks.
    pub(super) fn of_signal() -> Self {
        Self {
            limit: 200,
            kind: Some("signal".into()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::{code, render};

    #[test]
    fn tools_that_the_run_does_not_offer_are_named() {
        let config = include_str!("../../../configs/deep-research.toml");
        let config: configs::RunConfig = configs::RunConfig::parse(config, std::path::Path::new("x.toml")).unwrap();
        let declared = std::collections::BTreeMap::new();
        let plain = configs::WorkflowConfig {
            tools: declared,
            ..config.workflow
        };
        let workflow = rollout::workflows::build(&plain, &config.graders, &Default::default()).ok();
        let rules = Rules {
            workflow,
            ..Rules::default()
        };
        let line = br#"{"prompt": "Which stone?", "label": "amber", "tools": ["fly"]}"#;
        let error = render(&validate(line, &rules).unwrap_err());
        assert!(error.contains("line 1: its tools name \"fly\""), "{error}");
        assert_eq!(
            validate(br#"{"prompt": "Which stone?", "label": "amber"}"#, &rules)
                .unwrap()
                .len(),
            1
        );
    }

    /// A workflow that cannot be built must not switch the checks off.
    #[test]
    fn workflow_that_cannot_be_built_is_an_error() {
        let text = include_str!("../../../configs/doctor-patient-8b.toml");
        let config = |template: &str| {
            let text = text.replace("configs/programs/patient_judge.jinja", template);
            RunConfig::parse(&text, std::path::Path::new("x.toml")).unwrap()
        };
        let error = Rules::of(&config("nowhere/judge.jinja")).err().unwrap();
        assert_eq!(code(&error), 2);
        let text = render(&error);
        let here = std::env::current_dir().unwrap();
        for part in [
            "no task can be checked",
            "nowhere/judge.jinja",
            "count from the working directory",
            here.to_str().unwrap(),
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let whole = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/programs/patient_judge.jinja");
        let rules = Rules::of(&config(whole.to_str().unwrap())).unwrap();
        assert_eq!(rules.unjudged(), "");
        let text = render(&validate(br#"{"prompt": "cough", "label": 5}"#, &rules).unwrap_err());
        assert!(text.contains("line 1: the label is 5"), "{text}");
        assert!(Rules::default().unjudged().contains("only their form was checked"));
    }

    /// The coordinator compares the workflow's own name.
    #[test]
    fn task_may_name_the_kind_of_its_workflow() {
        let text = include_str!("../../../configs/programs.toml");
        let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/programs/solve_verify.py");
        let text = text.replace("configs/programs/solve_verify.py", program.to_str().unwrap());
        let rules = Rules::of(&RunConfig::parse(&text, std::path::Path::new("x.toml")).unwrap()).unwrap();
        assert!(validate(br#"{"prompt": "1", "workflow": "process"}"#, &rules).is_ok());
        let text = render(&validate(br#"{"prompt": "1", "workflow": "signal"}"#, &rules).unwrap_err());
        assert!(text.contains("this run plays \"process\""), "{text}");
        // The agents of this workflow have no tools.
        let text = render(&validate(br#"{"prompt": "1", "tools": ["fly"]}"#, &rules).unwrap_err());
        assert!(text.contains("line 1: its tools name \"fly\""), "{text}");
    }

    #[test]
    fn every_wrong_line_is_named_and_no_line_is_sent() {
        let text = [
            r#"{"prompt": "o1", "id": "x"}"#.to_owned(),
            r#"{"prompt": "o1""#.into(),
            String::new(),
            r#"{"prompt": 7}"#.into(),
            r#"{"prompt": "o2", "workflow": "chess"}"#.into(),
            r#"{"prompt": "o3", "id": "x"}"#.into(),
            format!(r#"{{"prompt": "{}"}}"#, "o".repeat(300)),
            r#"{"prompt": "o1", "lable": 3}"#.into(),
        ]
        .join("\n");
        let error = validate(text.as_bytes(), &Rules::of_signal()).unwrap_err();
        assert_eq!(code(&error), 2);
        let text = render(&error);
        assert!(text.starts_with("error: 6 of 7 lines are not tasks"), "{text}");
        for part in [
            "line 2: ",
            "line 4: the body is not a task: prompt is 7, neither a text nor a list",
            "line 5: workflow is \"chess\", but this run plays \"signal\"",
            "line 6: id is \"x\", as in line 1",
            "line 7: ",
            "`lable`",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
