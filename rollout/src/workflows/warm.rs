//! Data for warm starts: chats with a known answer, in the exact prompts of the workflow's
//! templates.

mod example;

use std::collections::BTreeMap;
use std::path::Path;

use broker::protocol::turn::Message;
use configs::{GraderConfig, TasksConfig, WarmStartConfig, WorkflowConfig};
use serde_json::Value;

use super::sequential::warm::SequentialExamples;
use super::solve_rewrite_select::warm::{Role, SelectingExamples};
use super::solve_verify::warm::SolvingExamples;
use crate::random::Random;
use crate::tasks::{MARK, TasksError, bad_line};
pub use example::Example;
pub(super) use example::{part, problem, problem_params, train_split, wrong_answer};

/// An endless, seeded stream of examples. The generators' params are those of
/// `generator:arithmetic` (by default those of `tasks.params`) and these shares, from 0 to 1:
///
/// - `generator:arithmetic-solver`: problems of the train split with their answers. A share `retry`
///   (0.25) shows the retry's prompt, with a wrong solution and its rejection. A share `noise` (0)
///   has a wrong answer. A share `slip` (0) of the problems with a carry is answered without the
///   carry. Both give a mediocre start. A slip is a habit that greedy decoding shows and rewards
///   unlearn. With `answer_first = true` the rejection gives the verifier's own answer, which the
///   retry adopts.
/// - `generator:arithmetic-verifier`: solutions with their verdicts, half of them approved. A share
///   `noise` (0) has the opposite verdict. A share `slip` (0) is judged without the carry. A share
///   `solve` (0) is bare problems with their answers. With `answer_first = true` the verifier
///   writes its own answer before its verdict: `85 reject`.
/// - `generator:arithmetic-first`, `generator:arithmetic-second`: problems in the prompts of
///   `sequential`, with their answers; `slip` as above. The answer shown to the second is right
///   half of the time.
/// - `generator:arithmetic-selecting`: problems in the prompts of `solve-rewrite-select`; `slip` as
///   above. `roles` (all three) lists the roles that get prompts, in equal shares. Half of the
///   solutions shown to a rewriter or the selector are right. The selector writes its own answer,
///   then the number of the first candidate that has it.
/// - `jsonl:PATH`: lines of `{messages: [...]}`; the last message is the answer. They are shuffled
///   again in every pass.
pub struct WarmSource {
    source: Source,
    random: Random,
}

enum Source {
    Lines { examples: Vec<Example>, order: Vec<u32> },
    Arithmetic(Box<SolvingExamples>),
    Sequential(Box<SequentialExamples>),
    Selecting(Box<SelectingExamples>),
}

impl WarmSource {
    /// Opens `train.warm_start.source` of an agent; a file is read whole.
    pub fn open(
        warm: &WarmStartConfig,
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        tasks: &TasksConfig,
        seed: u64,
    ) -> Result<Self, TasksError> {
        let random = Random::new("dyad warm start v1", seed, &[]);
        let source = match warm.source.split_once(':') {
            Some(("jsonl", path)) => Source::Lines {
                examples: lines(path.as_ref())?,
                order: Vec::new(),
            },
            Some(("generator", kind @ ("arithmetic-solver" | "arithmetic-verifier"))) => {
                let verifier = kind == "arithmetic-verifier";
                Source::Arithmetic(Box::new(SolvingExamples::new(
                    warm, workflow, graders, tasks, verifier,
                )?))
            }
            Some(("generator", kind @ ("arithmetic-first" | "arithmetic-second"))) => {
                let mut params = problem_params(warm, tasks);
                let slip = part(&mut params, "slip", 0.0)?;
                let (problems, second) = (train_split(&params)?, kind == "arithmetic-second");
                let answers = SequentialExamples::new(workflow, graders, problems, second, slip)?;
                Source::Sequential(Box::new(answers))
            }
            Some(("generator", "arithmetic-selecting")) => {
                let mut params = problem_params(warm, tasks);
                let slip = part(&mut params, "slip", 0.0)?;
                let roles = Role::listed(params.remove("roles"))?;
                let problems = train_split(&params)?;
                Source::Selecting(Box::new(SelectingExamples::new(
                    workflow, graders, problems, roles, slip,
                )?))
            }
            _ => {
                let known = "jsonl:PATH, generator:arithmetic-solver, -verifier, -first, -second or -selecting";
                return Err(problem(
                    "source",
                    format!("{:?} is no warm start: write {known}", warm.source),
                ));
            }
        };
        Ok(Self { source, random })
    }
}

impl Iterator for WarmSource {
    type Item = Example;

    fn next(&mut self) -> Option<Example> {
        match &mut self.source {
            Source::Arithmetic(generator) => Some(generator.example(&mut self.random)),
            Source::Sequential(answers) => Some(answers.example(&mut self.random)),
            Source::Selecting(answers) => Some(answers.example(&mut self.random)),
            Source::Lines { examples, order } => {
                if order.is_empty() {
                    *order = self.random.permutation(examples.len());
                }
                order.pop().and_then(|item| examples.get(item as usize)).cloned()
            }
        }
    }
}

fn lines(path: &Path) -> Result<Vec<Example>, TasksError> {
    let read = |source| TasksError::Read {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(read)?;
    let text = text.strip_prefix(MARK).unwrap_or(&text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let examples = lines.map(|(i, line)| example(line).map_err(|message| bad_line(path, i as u64 + 1, message)));
    let examples: Vec<Example> = examples.collect::<Result<_, _>>()?;
    if examples.is_empty() {
        Err(TasksError::Empty { path: path.to_owned() })
    } else {
        Ok(examples)
    }
}

fn example(line: &str) -> Result<Example, String> {
    let line: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    let list = line
        .get("messages")
        .and_then(Value::as_array)
        .ok_or("there is no list under \"messages\"")?;
    let read = Message::read_chat(list);
    let mut messages = read.map_err(|fault| fault.within("messages").to_string())?;
    match messages.pop() {
        Some(last) if last.role == "assistant" && !messages.is_empty() => Ok(Example {
            messages,
            answer: last.content,
        }),
        _ => Err("the last of at least two messages must be the assistant's: it is the answer".into()),
    }
}

#[cfg(test)]
mod tests;
