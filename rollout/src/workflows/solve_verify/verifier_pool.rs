//! A frozen pool of solutions, half right and half wrong, that measures a verifier's balanced
//! accuracy.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::protocol::task::Task;
use configs::{GraderConfig, WorkflowConfig};

use super::verifier_check::{SOLUTION, VerifierCheck};
use super::warm::solve_verify;
use crate::random::Random;
use crate::tasks::TasksError;
use crate::workflow::Workflow;

/// Equal numbers of right and wrong solutions, chosen once: tasks with the solution in their
/// metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifierPool {
    tasks: Vec<Task>,
}

impl VerifierPool {
    /// Chooses `size / 2` right solutions and as many wrong ones, by seed, or as many as the rarer
    /// kind has. It fails if there are none of a kind.
    pub fn choose(
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        solutions: impl IntoIterator<Item = (Task, String)>,
        size: usize,
        seed: u64,
    ) -> Result<Self, TasksError> {
        let workflow = solve_verify(workflow, graders)?;
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for (mut task, solution) in solutions {
            let is_right = workflow.grade(&solution, &task) > 0.5;
            task.metadata.insert(SOLUTION.into(), solution.into());
            if is_right { right.push(task) } else { wrong.push(task) }
        }
        let half = (size / 2).min(right.len()).min(wrong.len());
        if half == 0 {
            let message = format!(
                "{} right and {} wrong solutions make no balanced pool",
                right.len(),
                wrong.len()
            );
            return Err(TasksError::Config {
                key: "eval.pool".into(),
                message,
            });
        }
        let mut random = Random::new("dyad verifier pool v1", seed, &[]);
        let mut tasks = Vec::with_capacity(2 * half);
        for kind in [right, wrong] {
            let chosen = random.permutation(kind.len());
            tasks.extend(
                chosen
                    .into_iter()
                    .take(half)
                    .filter_map(|i| kind.get(i as usize).cloned()),
            );
        }
        Ok(Self { tasks })
    }

    /// Returns the right solutions, then the wrong ones.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the stored form of a pool: one JSON object per line.
    #[must_use]
    pub fn lines(&self) -> String {
        // A task consists of text, numbers and maps of text, so it is always JSON.
        let line = |task| serde_json::to_string(task).unwrap_or_default() + "\n";
        self.tasks.iter().map(line).collect()
    }

    /// Reads a stored pool. The error is the first bad line's number, from 1, and what is wrong
    /// there.
    pub fn from_lines(text: &str) -> Result<Self, (usize, String)> {
        let read = |(i, line): (usize, &str)| serde_json::from_str(line).map_err(|error| (i + 1, error.to_string()));
        let tasks = text.lines().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { tasks })
    }
}

/// Returns the workflow that plays a pool's tasks: the verifier gives one verdict, and there are no
/// rewards. The mean of its metric `verifier_balanced` over a pool is the balanced accuracy; always
/// approving gives 0.5.
pub fn judge(
    workflow: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
) -> Result<Arc<dyn Workflow>, TasksError> {
    let workflow = solve_verify(workflow, graders)?;
    if workflow.grading().rule().is_none() {
        return Err(TasksError::Config {
            key: "eval.pool".into(),
            message: "a pool needs a shipped grader, and here a program grades: remove it".into(),
        });
    }
    Ok(Arc::new(VerifierCheck::new(workflow)))
}
