//! Data for warm starts: chats with a known answer, in the very prompts that the workflow's templates make.

use std::collections::BTreeMap;
use std::path::Path;

use broker::protocol::turn::Message;
use configs::{GraderConfig, TasksConfig, WarmStartConfig, WorkflowConfig};
use serde_json::Value;

use super::arithmetic::{Arithmetic, Problem, Split};
use super::sequential::warm as sequential;
use super::solve_rewrite_select::warm as selecting;
use super::solve_verify::SolveVerify;
use crate::random::Random;
use crate::tasks::keys::messages;
use crate::tasks::{MARK, TasksError, bad_line};

/// A prompt and what the model is to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub messages: Vec<Message>,
    pub answer: String,
}

/// An endless, seeded stream of examples. The generators' params are those of `generator:arithmetic` (else as
/// `tasks.params`) and these parts, from 0 to 1:
///
/// - `generator:arithmetic-solver`: problems of the train split with their answers. `retry` (0.25) show the retry's prompt,
///   with a wrong solution and its rejection; `noise` (0) have a wrong answer; `slip` (0) of the problems with a carry are
///   answered without it. Either makes a middling start. A slip is a habit that greedy decoding shows and rewards unteach.
///   With `answer_first = true` the rejection gives the verifier's own answer, which the retry adopts.
/// - `generator:arithmetic-verifier`: solutions with their verdicts, half of them approved. `noise` (0) turns verdicts;
///   `slip` (0) judge as one who forgets the carry; `solve` (0) are bare problems with their answers. With
///   `answer_first = true` the verifier writes its own answer before its verdict: `85 reject`.
/// - `generator:arithmetic-first`, `generator:arithmetic-second`: problems in the prompts of `sequential`, with their answers;
///   `slip` as above. What the second is shown is right half of the time.
/// - `generator:arithmetic-selecting`: problems in the prompts of `solve-rewrite-select`; `slip` as above, and `roles` (all
///   three) says whose prompts, each as often. Of the solutions that a rewriter or the selector is shown, half are right. The
///   selector writes its own answer, then the number of the first candidate that has it.
/// - `jsonl:PATH`: lines of `{messages: [...]}` whose last message is the answer, shuffled anew in every pass.
pub struct WarmSource {
    source: Source,
    random: Random,
}

enum Source {
    Lines { examples: Vec<Example>, order: Vec<u32> },
    Arithmetic(Box<Generator>),
    Sequential(Box<sequential::Answers>),
    Selecting(Box<selecting::Answers>),
}

struct Generator {
    workflow: SolveVerify,
    problems: Arithmetic,
    verifier: bool,
    habits: Habits,
}

/// How the one errs whom the model is to imitate; parts from 0 to 1.
#[derive(Debug, Default)]
struct Habits {
    retry: f64,
    noise: f64,
    slip: f64,
    solve: f64,
    answer_first: bool,
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
            Some(("generator", kind @ ("arithmetic-first" | "arithmetic-second"))) => {
                let mut params = problem_params(warm, tasks);
                let slip = part(&mut params, "slip", 0.0)?;
                let (problems, second) = (train_split(&params)?, kind == "arithmetic-second");
                let answers = sequential::Answers::new(workflow, graders, problems, second, slip)?;
                Source::Sequential(Box::new(answers))
            }
            Some(("generator", "arithmetic-selecting")) => {
                let mut params = problem_params(warm, tasks);
                let slip = part(&mut params, "slip", 0.0)?;
                let roles = selecting::Role::listed(params.remove("roles"))?;
                let problems = train_split(&params)?;
                Source::Selecting(Box::new(selecting::Answers::new(
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

pub(super) fn problem(key: &str, message: String) -> TasksError {
    TasksError::Config {
        key: format!("warm_start.{key}"),
        message,
    }
}

/// The generator's params: those of the tasks, with the warm start's own laid over them.
fn problem_params(warm: &WarmStartConfig, tasks: &TasksConfig) -> toml::Table {
    let mut params = if tasks.source == "generator:arithmetic" {
        tasks.params.clone()
    } else {
        toml::Table::new()
    };
    params.extend(warm.params.clone());
    params.remove("seed");
    params
}

fn train_split(params: &toml::Table) -> Result<Arithmetic, TasksError> {
    Arithmetic::new(params, Split::Train).map_err(|(key, message)| problem(&format!("params.{key}"), message))
}

/// Takes a part from 0 to 1 out of the params.
fn part(params: &mut toml::Table, key: &str, default: f64) -> Result<f64, TasksError> {
    let Some(value) = params.remove(key) else {
        return Ok(default);
    };
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let wrong = || problem(&format!("params.{key}"), format!("{value} is not a part from 0 to 1"));
    number.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(wrong)
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

impl Generator {
    fn new(
        warm: &WarmStartConfig,
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        tasks: &TasksConfig,
        verifier: bool,
    ) -> Result<Self, TasksError> {
        let mut params = problem_params(warm, tasks);
        let habits = Habits::take(&mut params, verifier)?;
        let problems = train_split(&params)?;
        let workflow = solve_verify(workflow, graders)?;
        Ok(Self {
            workflow,
            problems,
            verifier,
            habits,
        })
    }

    fn example(&self, random: &mut Random) -> Example {
        let item = self.any_problem(random);
        // No draw where there is nothing to choose, so that older data stays as it was.
        let slips = self.habits.slip > 0.0 && random.unit() < self.habits.slip;
        let own = if slips { item.slipped() } else { item.answer() };
        if !self.verifier {
            return self.solution(item, own, random);
        }
        if self.habits.solve > 0.0 && random.unit() < self.habits.solve {
            let messages = self.workflow.solver_prompt(&item.task());
            return Example {
                messages,
                answer: self.workflow.answer_text(own),
            };
        }
        self.verdict(item, own, random)
    }

    fn any_problem(&self, random: &mut Random) -> Problem {
        self.problems.problem(random.below(self.problems.problems()))
    }

    fn solution(&self, item: Problem, own: i64, random: &mut Random) -> Example {
        let task = item.task();
        let (messages, own) = if random.unit() < self.habits.retry {
            self.retry(item, own, random)
        } else {
            (self.workflow.solver_prompt(&task), own)
        };
        let wrong = random.unit() < self.habits.noise;
        let number = if wrong { wrong_answer(item, random) } else { own };
        Example {
            messages,
            answer: self.workflow.answer_text(number),
        }
    }

    /// A rejected solution and what is answered to its critique: `own`, or half of the time what a verifier that answers
    /// first says, which may be any number.
    fn retry(&self, item: Problem, own: i64, random: &mut Random) -> (Vec<Message>, i64) {
        let slipped = item.slipped() != item.answer() && random.unit() < self.habits.slip;
        let shown = if slipped {
            item.slipped()
        } else {
            wrong_answer(item, random)
        };
        let mut critique = self.workflow.verdict_text(false);
        let mut answer = own;
        if self.habits.answer_first {
            if answer == shown || random.below(2) == 0 {
                answer = self.other(item, shown, random);
            }
            critique = format!("{} {critique}", self.workflow.answer_text(answer));
        }
        let shown = self.workflow.answer_text(shown);
        (self.workflow.retry_prompt(&item.task(), &shown, &critique), answer)
    }

    /// `own` is what the verifier takes for the answer.
    fn verdict(&self, item: Problem, own: i64, random: &mut Random) -> Example {
        let agrees = random.below(2) == 0;
        let shown = if agrees { own } else { self.other(item, own, random) };
        let approve = agrees != (random.unit() < self.habits.noise);
        let messages = self
            .workflow
            .verifier_prompt(&item.task(), &self.workflow.answer_text(shown));
        let verdict = self.workflow.verdict_text(approve);
        let answer = if self.habits.answer_first {
            format!("{} {verdict}", self.workflow.answer_text(own))
        } else {
            verdict
        };
        Example { messages, answer }
    }

    /// A solution that differs from `own`: the slip or what it missed, one nearby, or the answer to another problem (which
    /// keeps a verifier from copying what it is shown).
    fn other(&self, item: Problem, own: i64, random: &mut Random) -> i64 {
        let candidate = match random.below(3) {
            0 if own == item.answer() => item.slipped(),
            0 => item.answer(),
            1 if self.habits.answer_first => self.any_problem(random).answer(),
            _ => wrong_answer(item, random),
        };
        if candidate == own { own + 1 } else { candidate }
    }
}

impl Habits {
    fn take(params: &mut toml::Table, verifier: bool) -> Result<Self, TasksError> {
        let mut part = |key: &str, default: f64| part(params, key, default);
        let mut habits = Self {
            noise: part("noise", 0.0)?,
            slip: part("slip", 0.0)?,
            ..Self::default()
        };
        if verifier {
            habits.solve = part("solve", 0.0)?;
        } else {
            habits.retry = part("retry", 0.25)?;
        }
        habits.answer_first = match params.remove("answer_first") {
            None => false,
            Some(toml::Value::Boolean(value)) => value,
            Some(value) => {
                let message = format!("{value} is neither true nor false");
                return Err(problem("params.answer_first", message));
            }
        };
        Ok(habits)
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
    if !["solve-verify", "solo"].contains(&workflow.kind.as_str()) {
        let message = format!(
            "arithmetic warm starts are made for solve-verify and solo, not for {:?}",
            workflow.kind
        );
        return Err(at("workflow.kind", message));
    }
    SolveVerify::without_roles(workflow, graders).map_err(|problems| match problems.into_iter().next() {
        Some(problem) => at(&problem.path, problem.message),
        None => at("workflow", "it cannot be built".into()),
    })
}

/// An answer that is near and wrong: a digit changed, or off by one or ten.
pub(super) fn wrong_answer(item: Problem, random: &mut Random) -> i64 {
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
