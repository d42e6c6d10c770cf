//! Warm starts for `solve-rewrite-select`: examples of solvers, rewriters and selectors in the
//! prompts of their roles.

use std::collections::BTreeMap;

use configs::{GraderConfig, WorkflowConfig};

use super::SolveRewriteSelect;
use crate::random::Random;
use crate::tasks::TasksError;
use crate::workflows::arithmetic::{Arithmetic, ArithmeticProblem};
use crate::workflows::warm::{Example, problem, wrong_answer};

/// The role that an example's prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Solver,
    Rewriter,
    Selector,
}

impl Role {
    const ALL: [(&str, Self); 3] = [
        ("solver", Self::Solver),
        ("rewriter", Self::Rewriter),
        ("selector", Self::Selector),
    ];

    /// Reads the param `roles`; all roles, if it is not given.
    pub(crate) fn listed(value: Option<toml::Value>) -> Result<Vec<Self>, TasksError> {
        let Some(value) = value else {
            return Ok(Self::ALL.map(|(_, role)| role).to_vec());
        };
        let known = |name: &toml::Value| {
            let found = Self::ALL.iter().find(|(known, _)| name.as_str() == Some(known));
            found.map(|(_, role)| *role)
        };
        let roles: Option<Vec<Self>> = value.as_array().and_then(|names| names.iter().map(known).collect());
        roles.filter(|roles| !roles.is_empty()).ok_or_else(|| {
            let message = format!("{value} is no list of \"solver\", \"rewriter\" and \"selector\"");
            problem("params.roles", message)
        })
    }
}

/// Examples of one role or several.
pub(crate) struct SelectingExamples {
    workflow: SolveRewriteSelect,
    problems: Arithmetic,
    roles: Vec<Role>,
    /// The share of the problems with answers that forget the carry.
    slip: f64,
}

impl SelectingExamples {
    pub(crate) fn new(
        workflow: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        problems: Arithmetic,
        roles: Vec<Role>,
        slip: f64,
    ) -> Result<Self, TasksError> {
        let error = |key: &str, message: String| TasksError::Config {
            key: key.to_owned(),
            message,
        };
        if workflow.kind != "solve-rewrite-select" {
            let message = format!(
                "arithmetic-selecting is made for solve-rewrite-select, not for {:?}",
                workflow.kind
            );
            return Err(error("workflow.kind", message));
        }
        let workflow =
            SolveRewriteSelect::new(workflow, graders).map_err(|problems| match problems.into_iter().next() {
                Some(problem) => error(&problem.path, problem.message),
                None => error("workflow", "it cannot be built".into()),
            })?;
        Ok(Self {
            workflow,
            problems,
            roles,
            slip,
        })
    }

    pub(crate) fn example(&self, random: &mut Random) -> Example {
        let item = self.problems.problem(random.below(self.problems.problems()));
        let own = if random.unit() < self.slip {
            item.slipped()
        } else {
            item.answer()
        };
        let role = self.roles[random.below(self.roles.len() as u64) as usize];
        let (task, answer) = (item.task(), self.workflow.answer_text(own));
        match role {
            Role::Solver => Example {
                messages: self.workflow.solver_prompt(&task),
                answer,
            },
            Role::Rewriter => Example {
                messages: self
                    .workflow
                    .rewriter_prompt(&task, &self.texts(&self.shown(item, random))),
                answer,
            },
            Role::Selector => self.selection(item, own, random),
        }
    }

    /// A selector that agrees with no candidate selects any of them.
    fn selection(&self, item: ArithmeticProblem, own: i64, random: &mut Random) -> Example {
        let shown = self.shown(item, random);
        let agreeing = shown.iter().position(|candidate| *candidate == own);
        let candidate = agreeing.unwrap_or_else(|| random.below(shown.len() as u64) as usize);
        Example {
            messages: self.workflow.selector_prompt(&item.task(), &self.texts(&shown)),
            answer: self.workflow.selection_text(own, candidate + 1),
        }
    }

    fn shown(&self, item: ArithmeticProblem, random: &mut Random) -> Vec<i64> {
        let one = |random: &mut Random| match random.below(4) {
            0 | 1 => item.answer(),
            2 if item.slipped() != item.answer() => item.slipped(),
            _ => wrong_answer(item, random),
        };
        (0..self.workflow.seats()).map(|_| one(random)).collect()
    }

    fn texts(&self, answers: &[i64]) -> Vec<String> {
        answers
            .iter()
            .map(|answer| self.workflow.answer_text(*answer))
            .collect()
    }
}
