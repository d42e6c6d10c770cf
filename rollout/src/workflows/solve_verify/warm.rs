//! Warm starts for `solve-verify` and `solo`: solutions and verdicts in the prompts of their roles.

use std::collections::BTreeMap;

use broker::protocol::turn::Message;
use configs::{GraderConfig, TasksConfig, WarmStartConfig, WorkflowConfig};

use super::SolveVerify;
use crate::random::Random;
use crate::tasks::TasksError;
use crate::workflows::arithmetic::{Arithmetic, ArithmeticProblem};
use crate::workflows::warm::{Example, part, problem, problem_params, train_split, wrong_answer};

/// Examples of the solver, or of the verifier.
pub(crate) struct SolvingExamples {
    workflow: SolveVerify,
    problems: Arithmetic,
    verifier: bool,
    habits: Habits,
}

/// The errors in the examples that the model imitates; shares from 0 to 1.
#[derive(Debug, Default)]
struct Habits {
    retry: f64,
    noise: f64,
    slip: f64,
    solve: f64,
    answer_first: bool,
}

impl SolvingExamples {
    pub(crate) fn new(
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

    pub(crate) fn example(&self, random: &mut Random) -> Example {
        let item = self.any_problem(random);
        // No random draw where there is no choice, so that older data stays the same.
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

    fn any_problem(&self, random: &mut Random) -> ArithmeticProblem {
        self.problems.problem(random.below(self.problems.problems()))
    }

    fn solution(&self, item: ArithmeticProblem, own: i64, random: &mut Random) -> Example {
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

    /// Returns the prompt with a rejected solution, and the answer to its critique. The answer is
    /// `own`, or half of the time the answer of a verifier that answers first, which may be any
    /// number.
    fn retry(&self, item: ArithmeticProblem, own: i64, random: &mut Random) -> (Vec<Message>, i64) {
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

    /// Returns a verdict. `own` is the verifier's own answer.
    fn verdict(&self, item: ArithmeticProblem, own: i64, random: &mut Random) -> Example {
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

    /// Returns a solution that differs from `own`: the slip or the right answer, a near one, or the
    /// answer to a different problem (which keeps a verifier from copying the solution it is
    /// shown).
    fn other(&self, item: ArithmeticProblem, own: i64, random: &mut Random) -> i64 {
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

/// Returns the workflow of the arithmetic examples.
pub(crate) fn solve_verify(
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
