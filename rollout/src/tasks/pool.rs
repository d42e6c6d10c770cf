//! A frozen pool of solutions, half right and half wrong, on which a verifier's balanced accuracy is measured.

use std::collections::BTreeMap;

use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, WorkflowConfig};

use super::TasksError;
use super::random::Random;
use super::warm::solve_verify;
use crate::workflow::solve_verify::SolveVerify;

/// A solution that a verifier is asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolItem {
    /// The verifier's prompt.
    pub messages: Vec<Message>,
    pub solution: String,
    /// Whether the solution is right.
    pub right: bool,
}

/// Equally many right and wrong solutions, chosen once.
pub struct VerifierPool {
    workflow: SolveVerify,
    items: Vec<PoolItem>,
}

impl VerifierPool {
    /// Chooses `size / 2` right and as many wrong ones, by seed, or as many as there are of the rarer kind. An error if
    /// there is none of a kind.
    pub fn choose(
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        solutions: impl IntoIterator<Item = (Task, String)>,
        size: usize,
        seed: u64,
    ) -> Result<Self, TasksError> {
        let workflow = solve_verify(workflow, graders)?;
        let item = |(task, solution): (Task, String)| PoolItem {
            messages: workflow.verifier_prompt(&task, &solution),
            right: workflow.grade(&solution, &task) > 0.5,
            solution,
        };
        let (right, wrong): (Vec<_>, Vec<_>) = solutions.into_iter().map(item).partition(|item| item.right);
        let half = (size / 2).min(right.len()).min(wrong.len());
        if half == 0 {
            let message = format!(
                "{} right and {} wrong solutions make no balanced pool",
                right.len(),
                wrong.len()
            );
            return Err(TasksError::Config {
                key: "eval".into(),
                message,
            });
        }
        let mut random = Random::new("dyad verifier pool v1", seed, &[]);
        let mut items = Vec::with_capacity(2 * half);
        for kind in [right, wrong] {
            let chosen = random.permutation(kind.len());
            items.extend(
                chosen
                    .into_iter()
                    .take(half)
                    .filter_map(|i| kind.get(i as usize).cloned()),
            );
        }
        Ok(Self { workflow, items })
    }

    #[must_use]
    pub fn items(&self) -> &[PoolItem] {
        &self.items
    }

    /// Whether each answer's verdict is right; one that cannot be read is wrong. Answers stand in the items' order; missing
    /// ones are wrong.
    #[must_use]
    pub fn judge(&self, answers: &[String]) -> Vec<bool> {
        let verdict = |i: usize| answers.get(i).and_then(|text| self.workflow.verdict(text));
        self.items
            .iter()
            .enumerate()
            .map(|(i, item)| verdict(i) == Some(item.right))
            .collect()
    }

    /// The mean of the accuracy on right and on wrong solutions, 0 to 1. Always approving gives 0.5.
    #[must_use]
    pub fn balanced_accuracy(&self, answers: &[String]) -> f64 {
        // Both halves are equally large.
        let right = self.judge(answers).into_iter().filter(|right| *right).count();
        right as f64 / self.items.len().max(1) as f64
    }
}
