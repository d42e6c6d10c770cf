//! One verdict on a solution from the task's metadata. It measures a verifier on a frozen pool,
//! outside of training.

use broker::protocol::task::Task;
use serde_json::Value;

use super::SolveVerify;
use crate::workflow::transcript::{Transcript, ask};
use crate::workflow::{Event, Outcome, RoleSpec, Step, Workflow};

/// The key of a task's metadata that holds the solution.
pub(crate) const SOLUTION: &str = "solution";

/// `solve-verify` without its solver: only the verifier speaks, once, in the prompts of the run.
/// There are no rewards. The metric `verifier_balanced` is 1 for a right verdict and 0 for a wrong
/// or unreadable one. Its mean over equal numbers of right and wrong solutions is the balanced
/// accuracy.
pub(crate) struct VerifierCheck(SolveVerify);

impl VerifierCheck {
    pub(crate) fn new(workflow: SolveVerify) -> Self {
        Self(workflow)
    }

    fn solution(task: &Task) -> &str {
        task.metadata.get(SOLUTION).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Workflow for VerifierCheck {
    fn kind(&self) -> &'static str {
        "judge"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let name = self.0.verifier().clone();
        vec![RoleSpec {
            name,
            parts: Vec::new(),
        }]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        if !task.metadata.contains_key(SOLUTION) {
            return Err(format!("there is no text under metadata.{SOLUTION}"));
        }
        self.0.check_task(task)
    }

    /// The solution was made before, so the tools of its makers do not matter to the verifier.
    fn check_tools(&self, _task: &Task) -> Result<(), String> {
        Ok(())
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (verifier, solution) = (self.0.verifier(), Self::solution(task));
        let Some(said) = Transcript(events).first(verifier, 0) else {
            return Step::Ask(vec![ask(verifier, 0, self.0.verifier_prompt(task, solution))]);
        };
        let is_right = self.0.grade(solution, task) > 0.5;
        let judged = self.0.verdict(&said.text) == Some(is_right);
        Step::Done(Outcome {
            rewards: Vec::new(),
            metrics: vec![("verifier_balanced", f64::from(u8::from(judged)))],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{config, event, graders, task};

    fn judge() -> VerifierCheck {
        let config = config("solve-verify", &["solver", "verifier", "retry"], "prompts = \"short\"");
        VerifierCheck::new(SolveVerify::new(&config, &graders("integer")).unwrap())
    }

    fn about(solution: &str) -> Task {
        let mut task = task("2+3=", 5.into());
        task.metadata.insert(SOLUTION.into(), solution.into());
        task
    }

    #[test]
    fn the_verifier_alone_is_asked_in_the_prompts_of_the_run() {
        let Step::Ask(asks) = judge().step(&about("6"), 0, &[event("solver", 0, "5")]) else {
            panic!()
        };
        assert_eq!((asks.len(), asks[0].role.as_str()), (1, "verifier"));
        assert_eq!(asks[0].messages[0].content, "2+3=6?");
    }

    #[test]
    fn only_the_right_verdict_counts() {
        for (solution, said, right) in [
            ("5", "approve", 1.0),
            ("5", "reject", 0.0),
            ("6", "reject", 1.0),
            ("6", "5 reject", 1.0),
            ("6", "approve", 0.0),
            ("6", "hm", 0.0),
            ("5", "hm", 0.0),
        ] {
            let Step::Done(outcome) = judge().step(&about(solution), 0, &[event("verifier", 0, said)]) else {
                panic!()
            };
            assert_eq!(outcome.metrics, [("verifier_balanced", right)], "{solution} {said}");
            assert!(outcome.rewards.is_empty());
        }
        assert!(judge().check_task(&about("5")).is_ok());
        assert!(
            judge()
                .check_task(&task("2+3=", 5.into()))
                .unwrap_err()
                .contains("metadata.solution")
        );
    }
}
