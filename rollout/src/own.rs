//! The user's own workflows and graders, as Rust types of another crate. `use rollout::own::*`
//! imports everything that they need.
//!
//! A program puts them into a [`Registry`] and passes it to `agents::cli::main_with`. That installs
//! it once, before any configuration is read. From then on configurations may name its kinds like
//! the shipped ones, and [`crate::workflows::build`] makes them. The registry is process-wide
//! because the kinds belong to the program: every place that reads a configuration, and every
//! process that a command starts, must know the same kinds.
//!
//! ```
//! use rollout::own::*;
//!
//! /// One turn; a long answer earns more.
//! struct Chatty(RoleName);
//!
//! impl Workflow for Chatty {
//!     fn kind(&self) -> &'static str {
//!         "chatty"
//!     }
//!     fn roles(&self) -> Vec<RoleSpec> {
//!         vec![RoleSpec { name: self.0.clone(), parts: vec![("length", 1.0)] }]
//!     }
//!     fn check_task(&self, _: &Task) -> Result<(), String> {
//!         Ok(())
//!     }
//!     fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
//!         let Some(said) = Transcript(events).first(&self.0, 0) else {
//!             return Step::Ask(vec![ask(&self.0, 0, vec![Message::user(task.prompt.text())])]);
//!         };
//!         let length = said.text.len() as f32 / 100.0;
//!         Step::Done(Outcome {
//!             rewards: vec![reward(&self.0, 0, &[("length", length)])],
//!             metrics: vec![("success", length.into())],
//!         })
//!     }
//! }
//!
//! let registry = Registry::new().workflow("chatty", |_, _| {
//!     Ok(std::sync::Arc::new(Chatty(role("speaker")?)))
//! });
//! registry.install()?; // agents::cli::main_with(registry) does this, and all that `dyad` does
//!
//! let task = Task::parse(br#"{"prompt": "Tell me more."}"#, 1000)?;
//! contract::check(&Chatty(role("speaker").unwrap()), &task)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use broker::RoleName;
pub use broker::protocol::task::{Prompt, Task};
pub use broker::protocol::turn::{Finish, Message};
pub use configs::{GraderConfig, OwnKindError, Problem, WorkflowConfig};
pub use serde_json::Value;

pub use crate::grade::{Grader, OwnGrader};
pub use crate::workflow::program::Program;
pub use crate::workflow::{
    Ask, Event, Grades, Grading, Outcome, Params, Part, RoleSpec, SeatReward, Step, Transcript, Workflow, ask,
    contract, grader, reward, role, share,
};

use crate::grade::{self, Own};
use crate::workflow::check_roles;

/// The `[graders]` table of a configuration.
pub type Graders = BTreeMap<String, GraderConfig>;

/// A workflow made from `[workflow]`, or every problem of that section.
pub type Made = Result<Arc<dyn Workflow>, Vec<Problem>>;

type Make = Box<dyn Fn(&WorkflowConfig, &Graders) -> Made + Send + Sync>;

/// The workflows and graders of one program.
#[derive(Default)]
pub struct Registry {
    workflows: Vec<(&'static str, Make)>,
    graders: Vec<Own>,
}

static INSTALLED: OnceLock<Registry> = OnceLock::new();

impl Registry {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow: `make` makes it for `workflow.kind = "KIND"`, and its `kind()` must be
    /// KIND. The registry checks that its roles are played and that `[workflow.reward]` names parts
    /// of theirs. Tools, shaping and credit apply to it as to any other workflow.
    #[must_use]
    pub fn workflow(
        mut self,
        kind: &'static str,
        make: impl Fn(&WorkflowConfig, &Graders) -> Made + Send + Sync + 'static,
    ) -> Self {
        self.workflows.push((kind, Box::new(make)));
        self
    }

    /// Adds a grader for `graders.NAME.kind = "KIND"`; shipped workflows may use it too.
    #[must_use]
    pub fn grader(mut self, kind: &'static str, grader: impl OwnGrader + 'static) -> Self {
        self.graders.push(Own::keep(kind, grader));
        self
    }

    /// Registers these kinds in this process. Call it once, before a configuration is read.
    ///
    /// # Errors
    /// A kind that is not a legal name, is shipped, or is there twice; a second registry.
    pub fn install(self) -> Result<(), OwnKindError> {
        let kinds = configs::OwnKinds {
            workflows: self.workflows.iter().map(|(kind, _)| (*kind).to_owned()).collect(),
            graders: self.graders.iter().map(|own| own.kind().to_owned()).collect(),
        };
        kinds.install()?;
        let graders = self.graders.clone();
        match INSTALLED.set(self) {
            Ok(()) if grade::install(graders) => Ok(()),
            _ => Err(OwnKindError::Installed),
        }
    }

    /// Returns the workflow of this configuration, if this registry has its kind.
    fn made(&self, config: &WorkflowConfig, graders: &Graders) -> Option<Made> {
        let (_, make) = self.workflows.iter().find(|(kind, _)| *kind == config.kind)?;
        Some(make(config, graders).and_then(|workflow| {
            let mut problems = check_roles(config, &workflow.roles());
            problems.extend(other_kind(config, workflow.kind()));
            if problems.is_empty() {
                Ok(workflow)
            } else {
                Err(problems)
            }
        }))
    }
}

/// Reports a workflow if its `kind()` differs from its registered kind. Tasks are marked with the
/// workflow's own kind, so none of them would be played.
fn other_kind(config: &WorkflowConfig, own: &str) -> Option<Problem> {
    (own != config.kind).then(|| Problem {
        path: "workflow.kind".into(),
        message: format!(
            "is {:?}, under which a workflow is registered that calls itself {own:?}: let its kind() be the registered one",
            config.kind
        ),
    })
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflows: Vec<&str> = self.workflows.iter().map(|(kind, _)| *kind).collect();
        f.debug_struct("Registry")
            .field("workflows", &workflows)
            .field("graders", &self.graders)
            .finish()
    }
}

/// Returns the workflow of this configuration, if this program has registered its kind.
pub(crate) fn workflow(config: &WorkflowConfig, graders: &Graders) -> Option<Made> {
    INSTALLED.get()?.made(config, graders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{config, problems};

    /// A speaker that says one word.
    struct Word(RoleName);

    impl Workflow for Word {
        fn kind(&self) -> &'static str {
            "word"
        }
        fn roles(&self) -> Vec<RoleSpec> {
            vec![RoleSpec {
                name: self.0.clone(),
                parts: vec![("said", 1.0)],
            }]
        }
        fn check_task(&self, _: &Task) -> Result<(), String> {
            Ok(())
        }
        fn step(&self, _: &Task, _: u64, events: &[Event]) -> Step {
            match Transcript(events).first(&self.0, 0) {
                None => Step::Ask(vec![ask(&self.0, 0, vec![Message::user("go")])]),
                Some(_) => Step::Done(Outcome {
                    rewards: vec![reward(&self.0, 0, &[("said", 1.0)])],
                    metrics: vec![("success", 1.0)],
                }),
            }
        }
    }

    fn registry() -> Registry {
        Registry::new().workflow("word", |config, _| {
            let mut params = Params::new(&config.params, "workflow.params");
            params.integer("letters", 3, 1..=9);
            let problems = params.finish();
            if problems.is_empty() {
                Ok(Arc::new(Word(role("speaker")?)))
            } else {
                Err(problems)
            }
        })
    }

    fn made(roles: &[&str], params: &str) -> Made {
        registry()
            .made(&config("word", roles, params), &Graders::new())
            .expect("it is registered")
    }

    #[test]
    fn only_a_registered_kind_is_made_of_its_configuration() {
        assert_eq!(made(&["speaker"], "letters = 4").unwrap().kind(), "word");
        assert!(
            registry()
                .made(&config("signal", &["speaker"], ""), &Graders::new())
                .is_none()
        );
        assert_eq!(
            problems(made(&["speaker"], "letters = 40\nwords = 1").map(drop)),
            ["workflow.params.letters", "workflow.params.words"]
        );
    }

    #[test]
    fn its_roles_are_checked_for_it() {
        assert_eq!(
            problems(made(&["listener"], "").map(drop)),
            ["workflow.roles.listener", "workflow.roles.speaker"]
        );
    }

    #[test]
    fn a_workflow_is_of_the_kind_that_it_is_registered_as() {
        let twisted = Registry::new().workflow("term", |_, _| Ok(Arc::new(Word(role("speaker")?))));
        let made = twisted.made(&config("term", &["speaker"], ""), &Graders::new());
        let problems = made.expect("it is registered").map(drop).unwrap_err();
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}")
        };
        assert_eq!(problem.path, "workflow.kind");
        assert!(
            problem.message.contains("\"term\"") && problem.message.contains("\"word\""),
            "{}",
            problem.message
        );
    }

    /// The only test that asks for the installed registry, because the process has one.
    #[test]
    fn what_is_installed_is_built_and_a_second_registry_is_refused() {
        let shipped = Registry::new().workflow("signal", |_, _| Ok(Arc::new(Word(role("speaker")?))));
        assert!(matches!(shipped.install(), Err(OwnKindError::Shipped { .. })));
        registry().install().unwrap();
        let (config, none) = (config("word", &["speaker"], ""), BTreeMap::new());
        let built = crate::workflows::build(&config, &none, &BTreeMap::new()).unwrap();
        assert_eq!(built.kind(), "word");
        assert_eq!(Registry::new().install(), Err(OwnKindError::Installed));
    }
}
