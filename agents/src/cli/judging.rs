//! Whether lines are tasks of a run: judged before they are sent, and what is wrong named line by line.

use std::collections::HashMap;
use std::sync::Arc;

use broker::protocol::task::Task;
use bytes::Bytes;
use rollout::workflow::Workflow;

use super::failure::Usage;

/// Problems printed at most.
const SHOWN: usize = 20;

/// What a task must be.
pub struct Rules {
    pub limit: usize,
    /// The run's workflow by name, if known.
    pub kind: Option<String>,
    pub workflow: Option<Arc<dyn Workflow>>,
    /// The run's configuration, if known: who sees images.
    pub config: Option<Box<configs::RunConfig>>,
}

/// Of a run of which nothing is known.
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
    #[must_use]
    pub fn of(config: &configs::RunConfig) -> Self {
        Self {
            limit: usize::try_from(config.run.message_cap.0).unwrap_or(usize::MAX),
            kind: Some(config.workflow.kind.clone()),
            workflow: rollout::workflow::build(&config.workflow, &config.graders, &config.tools).ok(),
            config: Some(Box::new(config.clone())),
        }
    }
}

/// A line that is a task, with its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub id: String,
    pub body: Bytes,
}

/// Every line as a task, or every line that is none, by number. Blank lines are passed over.
pub fn validate(text: &[u8], rules: &Rules) -> anyhow::Result<Vec<Checked>> {
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
                "it has the id {:?} of line {first}: an id is done once",
                task.id
            )),
        });
        match checked {
            Ok(task) => tasks.push(task),
            Err(problem) => problems.push(format!("line {number}: {problem}")),
        }
    }
    if problems.is_empty() && !tasks.is_empty() {
        return Ok(tasks);
    }
    if problems.is_empty() {
        return Err(Usage::new("there is no task in it")
            .hint("one JSON object per line")
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
    Err(Usage::new(format!("{wrong} of {all} lines are no task for this run; nothing was sent\n  {list}{more}"))
        .hint("a task is {\"prompt\": \"...\", \"label\": ..., \"id\": \"...\"}; label and id may be left out if the workflow allows it")
        .into())
}

/// Judges a task; `message_id` names it if it does not name itself.
pub(super) fn check(line: &[u8], rules: &Rules, message_id: Option<&str>) -> Result<Checked, String> {
    let task = Task::parse(line, rules.limit).map_err(|e| e.to_string())?;
    if let (Some(asked), Some(plays)) = (&task.workflow, &rules.kind)
        && asked != plays
    {
        return Err(format!("it asks for workflow {asked:?} and this run plays {plays:?}"));
    }
    if let Some(workflow) = &rules.workflow {
        rollout::workflow::check_task(workflow.as_ref(), &task)?;
    }
    if let Some(config) = &rules.config {
        crate::sight::check(config, &task)?;
    }
    Ok(Checked {
        id: task.resolve_id(message_id, line),
        body: Bytes::copy_from_slice(line),
    })
}

#[cfg(test)]
impl Rules {
    /// Of a run of `signal` that takes small tasks.
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
    use crate::cli::failure::{code, render};

    #[test]
    fn tools_that_the_run_does_not_offer_are_named() {
        let config = include_str!("../../../configs/deep-research.toml");
        let config: configs::RunConfig = configs::RunConfig::parse(config, std::path::Path::new("x.toml")).unwrap();
        let declared = std::collections::BTreeMap::new();
        let plain = configs::WorkflowConfig {
            tools: declared,
            ..config.workflow
        };
        let workflow = rollout::workflow::build(&plain, &config.graders, &Default::default()).ok();
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

    #[test]
    fn every_wrong_line_is_named_and_none_is_sent() {
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
        assert!(text.starts_with("error: 6 of 7 lines are no task"), "{text}");
        for part in [
            "line 2: ",
            "line 4: ",
            "line 5: it asks for workflow \"chess\"",
            "of line 1",
            "line 7: ",
            "`lable`",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
