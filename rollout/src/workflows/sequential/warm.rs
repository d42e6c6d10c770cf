//! Warm starts for `sequential`: sums and differences in the prompts of its two roles.

use std::collections::BTreeMap;

use configs::{GraderConfig, WorkflowConfig};

use super::Sequential;
use crate::random::Random;
use crate::tasks::TasksError;
use crate::workflows::arithmetic::{Arithmetic, ArithmeticProblem};
use crate::workflows::warm::{Example, wrong_answer};

/// Examples of one role.
pub(crate) struct SequentialExamples {
    workflow: Sequential,
    problems: Arithmetic,
    /// True for the second's prompts, which show an answer of the first.
    second: bool,
    /// The share of the problems with answers that forget the carry.
    slip: f64,
}

impl SequentialExamples {
    pub(crate) fn new(
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        problems: Arithmetic,
        second: bool,
        slip: f64,
    ) -> Result<Self, TasksError> {
        let error = |key: String, message: String| TasksError::Config { key, message };
        if workflow.kind != "sequential" {
            let message = format!(
                "arithmetic-first and arithmetic-second are made for sequential, not for {:?}",
                workflow.kind
            );
            return Err(error("workflow.kind".into(), message));
        }
        let workflow = Sequential::new(workflow, graders).map_err(|problems| match problems.into_iter().next() {
            Some(problem) => error(problem.path, problem.message),
            None => error("workflow".into(), "it cannot be built".into()),
        })?;
        Ok(Self {
            workflow,
            problems,
            second,
            slip,
        })
    }

    /// Returns one example. The answer shown to the second is right half of the time, independent
    /// of its own answer, so it learns neither to copy nor to differ.
    pub(crate) fn example(&self, random: &mut Random) -> Example {
        let item = self.problems.problem(random.below(self.problems.problems()));
        let slips = random.unit() < self.slip;
        let answer = if slips { item.slipped() } else { item.answer() };
        let messages = if self.second {
            let shown = shown(item, random).to_string();
            self.workflow.second_prompt(&item.task(), &shown)
        } else {
            self.workflow.first_prompt(&item.task())
        };
        Example {
            messages,
            answer: answer.to_string(),
        }
    }
}

fn shown(item: ArithmeticProblem, random: &mut Random) -> i64 {
    match random.below(4) {
        0 | 1 => item.answer(),
        2 if item.slipped() != item.answer() => item.slipped(),
        _ => wrong_answer(item, random),
    }
}
