//! Data for warm starts: chats with a known answer, in the very prompts that the workflow's templates make.

use std::collections::BTreeMap;
use std::path::Path;

use broker::protocol::turn::Message;
use configs::{GraderConfig, TasksConfig, WarmStartConfig, WorkflowConfig};
use serde_json::Value;

use super::arithmetic::{Arithmetic, Problem, Split};
use super::jsonl::messages;
use super::random::Random;
use super::{TasksError, bad_line};
use crate::workflow::solve_verify::SolveVerify;

/// A prompt and what the model is to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub messages: Vec<Message>,
    pub answer: String,
}

/// An endless, seeded stream of examples.
///
/// - `generator:arithmetic-solver`: problems of the train split with their answers. Params: those of
///   `generator:arithmetic` (else as `tasks.params`), `retry` (0.25: the part that shows the retry's prompt, with a wrong
///   solution and its rejection), `noise` (0: the part with a wrong answer, for a middling start).
/// - `generator:arithmetic-verifier`: half right and half wrong solutions with their verdicts. `noise` turns verdicts.
/// - `jsonl:PATH`: lines of `{messages: [...]}` whose last message is the answer, shuffled anew in every pass.
pub struct WarmSource {
    source: Source,
    random: Random,
}

enum Source {
    Lines { examples: Vec<Example>, order: Vec<u32> },
    Arithmetic(Box<Generator>),
}

struct Generator {
    workflow: SolveVerify,
    problems: Arithmetic,
    verifier: bool,
    retry: f64,
    noise: f64,
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
                Source::Arithmetic(Box::new(Generator::new(warm, workflow, graders, tasks, verifier)?))
            }
            _ => {
                let known = "jsonl:PATH, generator:arithmetic-solver or generator:arithmetic-verifier";
                return Err(problem(
                    "source",
                    format!("{:?} is no warm start: write {known}", warm.source),
                ));
            }
        };
        Ok(Self { source, random })
    }
}

fn problem(key: &str, message: String) -> TasksError {
    TasksError::Config {
        key: format!("warm_start.{key}"),
        message,
    }
}

impl Iterator for WarmSource {
    type Item = Example;

    fn next(&mut self) -> Option<Example> {
        match &mut self.source {
            Source::Arithmetic(generator) => Some(generator.example(&mut self.random)),
            Source::Lines { examples, order } => {
                if order.is_empty() {
                    *order = self.random.permutation(examples.len());
                }
                order.pop().and_then(|item| examples.get(item as usize)).cloned()
            }
        }
    }
}

impl Generator {
    fn new(
        warm: &WarmStartConfig,
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        tasks: &TasksConfig,
        verifier: bool,
    ) -> Result<Self, TasksError> {
        let mut params = if tasks.source == "generator:arithmetic" {
            tasks.params.clone()
        } else {
            toml::Table::new()
        };
        params.extend(warm.params.clone());
        params.remove("seed");
        let mut part = |key: &str, default: f64| match params.remove(key) {
            None => Ok(default),
            Some(value) => {
                let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
                let wrong = || problem(&format!("params.{key}"), format!("{value} is not a part from 0 to 1"));
                number.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(wrong)
            }
        };
        let (retry, noise) = (part("retry", 0.25)?, part("noise", 0.0)?);
        let problems = Arithmetic::new(&params, Split::Train)
            .map_err(|(key, message)| problem(&format!("params.{key}"), message))?;
        Ok(Self {
            workflow: solve_verify(workflow, graders)?,
            problems,
            verifier,
            retry,
            noise,
        })
    }

    fn example(&self, random: &mut Random) -> Example {
        let item = self.problems.problem(random.below(self.problems.problems()));
        if self.verifier {
            self.verdict(item, random)
        } else {
            self.solution(item, random)
        }
    }

    fn solution(&self, item: Problem, random: &mut Random) -> Example {
        let task = item.task();
        let messages = if random.unit() < self.retry {
            let solution = self.workflow.answer_text(wrong_answer(item, random));
            self.workflow
                .retry_prompt(&task, &solution, &self.workflow.verdict_text(false))
        } else {
            self.workflow.solver_prompt(&task)
        };
        let wrong = random.unit() < self.noise;
        let number = if wrong {
            wrong_answer(item, random)
        } else {
            item.answer()
        };
        Example {
            messages,
            answer: self.workflow.answer_text(number),
        }
    }

    fn verdict(&self, item: Problem, random: &mut Random) -> Example {
        let right = random.below(2) == 0;
        let number = if right {
            item.answer()
        } else {
            wrong_answer(item, random)
        };
        let solution = self.workflow.answer_text(number);
        let approve = right != (random.unit() < self.noise);
        let messages = self.workflow.verifier_prompt(&item.task(), &solution);
        Example {
            messages,
            answer: self.workflow.verdict_text(approve),
        }
    }
}

/// The workflow that the arithmetic examples are for.
pub(super) fn solve_verify(
    workflow: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
) -> Result<SolveVerify, TasksError> {
    let at = |path: &str, message: String| TasksError::Config {
        key: path.to_owned(),
        message,
    };
    if workflow.kind != "solve-verify" {
        let message = format!(
            "arithmetic warm starts are made for solve-verify, not for {:?}",
            workflow.kind
        );
        return Err(at("workflow.kind", message));
    }
    SolveVerify::new(workflow, graders).map_err(|problems| match problems.into_iter().next() {
        Some(problem) => at(&problem.path, problem.message),
        None => at("workflow", "it cannot be built".into()),
    })
}

/// An answer that is near and wrong: a digit changed, or off by one or ten.
fn wrong_answer(item: Problem, random: &mut Random) -> i64 {
    let right = item.answer();
    if random.below(3) == 0 {
        let step = [1, -1, 10, -10][random.below(4) as usize];
        return right + step;
    }
    let digits = right.unsigned_abs().max(1).ilog10();
    let unit = 10i64.pow(random.below(u64::from(digits) + 1) as u32);
    let digit = right.abs() / unit % 10;
    let other = (digit + 1 + random.below(9) as i64) % 10;
    let changed = right.abs() + (other - digit) * unit;
    // Without a leading zero: that would be another length.
    if changed < unit && digits > 0 {
        right + unit
    } else {
        changed * if right < 0 { -1 } else { 1 }
    }
}

fn lines(path: &Path) -> Result<Vec<Example>, TasksError> {
    let read = |source| TasksError::Read {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(read)?;
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
    let mut messages = messages(list)?;
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
