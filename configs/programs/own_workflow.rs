//! solve-verify as your own workflow in Rust with your own grader, the twin of solve_verify.py.
//!
//!     cargo run -p tests --bin own-workflow -- run configs/programs/own_workflow.toml
//!
//! A crate with such a `main` is the whole of dyad plus two kinds: `workflow.kind = "double-check"`
//! and `graders.NAME.kind = "last-number"`.

use std::sync::Arc;

use rollout::own::*;

/// Grades 1 if the last whole number of an answer is the label.
struct LastNumber;

impl OwnGrader for LastNumber {
    fn grade(&self, text: &str, label: &Value) -> f32 {
        let label = label.as_str().map_or_else(|| label.to_string(), str::to_owned);
        f32::from(last_number(text) == Some(label.as_str()))
    }
}

fn last_number(text: &str) -> Option<&str> {
    let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
    let before = text[..end].trim_end_matches(|c: char| c.is_ascii_digit());
    Some(&text[before.strip_suffix('-').unwrap_or(before).len()..end])
}

/// A solver, a verifier, and a retry after a rejection.
struct DoubleCheck {
    solver: RoleName,
    verifier: RoleName,
    retry: RoleName,
    grading: Grading,
}

impl DoubleCheck {
    fn new(config: &WorkflowConfig, graders: &Graders) -> Result<Self, Vec<Problem>> {
        let (solver, verifier, retry) = (role("solver")?, role("verifier")?, role("retry")?);
        let mut params = Params::new(&config.params, "workflow.params");
        // `workflow.params.grader`, else `[graders.correct]`: a rule, a program or a judge.
        let grading = grader(&mut params, graders).of_roles(&[&solver, &retry]);
        let problems = params.finish();
        if problems.is_empty() {
            Ok(Self {
                solver,
                verifier,
                retry,
                grading,
            })
        } else {
            Err(problems)
        }
    }
}

/// Returns true if the verifier rejects, and `None` if it says both words or neither.
fn rejects(text: &str) -> Option<bool> {
    let text = text.to_lowercase();
    let says = |word: &str| text.split(|c: char| !c.is_alphanumeric()).any(|one| one == word);
    (says("approve") != says("reject")).then(|| says("reject"))
}

impl Workflow for DoubleCheck {
    fn kind(&self) -> &'static str {
        "double-check"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts| RoleSpec {
            name: name.clone(),
            parts,
        };
        vec![
            spec(&self.solver, vec![("correct", 1.0)]),
            spec(&self.verifier, vec![("verdict", 1.0), ("gain", 0.5)]),
            spec(&self.retry, vec![("correct", 1.0), ("gain", 0.0)]),
        ]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.grading.check_label(&task.label)
    }

    fn programs(&self) -> Vec<Program> {
        self.grading.programs()
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (said, prompt) = (Transcript(events), task.prompt.text());
        let wants = |role, text: String| Step::Ask(vec![ask(role, 0, vec![Message::user(text)])]);
        let Some(first) = said.first(&self.solver, 0) else {
            return wants(&self.solver, prompt.to_owned());
        };
        let Some(check) = said.first(&self.verifier, 0) else {
            return wants(&self.verifier, format!("{prompt}{}?", first.text));
        };
        let (rejects, grades) = (rejects(&check.text), self.grading.grades(task, said));
        let (s1, mut rewards) = (grades.of(first), Vec::new());
        let mut s2 = s1;
        if rejects == Some(true) {
            let Some(second) = said.first(&self.retry, 0) else {
                return wants(&self.retry, format!("{prompt}{}!{}", first.text, check.text));
            };
            s2 = grades.of(second);
            rewards.push(reward(&self.retry, 0, &[("correct", s2), ("gain", s2 - s1)]));
        }
        let verdict = f32::from(rejects.is_some_and(|rejects| rejects == (s1 < 0.5)));
        rewards.push(reward(&self.solver, 0, &[("correct", s1)]));
        rewards.push(reward(&self.verifier, 0, &[("verdict", verdict), ("gain", s2 - s1)]));
        let metrics = vec![("success", share(s2)), ("solver_first", share(s1))];
        grades.settle(Outcome { rewards, metrics })
    }
}

fn main() {
    let own = Registry::new()
        .grader("last-number", LastNumber)
        .workflow("double-check", |config, graders| {
            Ok(Arc::new(DoubleCheck::new(config, graders)?))
        });
    agents::cli::main_with(own)
}
