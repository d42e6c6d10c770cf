//! `attack`: a thinker answers, an adversary argues against the answer, the defender (the thinker
//! again) answers a second time.
//!
//! With s1 and s2 the grades of the first and of the last answer:
//!
//! | s1 | s2 | thinker `correct`, `survived` | adversary `broken` | defender `survived` |
//! |---|---|---|---|---|
//! | 1 | 1 | 1, 1 | 0 | 1 |
//! | 1 | 0 | 1, 0 | 1 | 0 |
//! | 0 | 1 | 0, 1 | -1 | 1 |
//! | 0 | 0 | 0, 0 | 0 | 0 |
//!
//! `broken` = s1 - s2 is the adversary's gain. s1 is settled before the adversary speaks, so
//! subtracting s2 from it leaves a constant-sum game: the defender's gain by the last answer is the
//! adversary's loss. An attack on a wrong answer earns nothing, and costs the help it gives.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem};
use minijinja::{Value, context};

use super::opponents::Opponents;
use super::seats::{seat, spec};
use crate::workflow::grading::{Grading, share};
use crate::workflow::params::{Params, grader};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, ask, role};
use crate::workflow::{Event, Outcome, RoleSpec, Step, Workflow};

const FULL: [(&str, &str); 3] = templates!("adversarial/full", "thinker", "adversary", "defender");
const SHORT: [(&str, &str); 3] = templates!("adversarial/short", "thinker", "adversary", "defender");

pub(super) struct Attack {
    thinker: RoleName,
    adversary: RoleName,
    defender: RoleName,
    opponents: Opponents,
    grader: Grading,
    prompts: Prompts,
}

impl Attack {
    pub(super) fn new(
        mut params: Params<'_>,
        graders: &BTreeMap<String, GraderConfig>,
    ) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        let (thinker, adversary, defender) = (role("thinker")?, role("adversary")?, role("defender")?);
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { prompt => "?", answer => "?", attack => "?" };
        let game = Self {
            opponents: Opponents::take(&mut params, &[&adversary], &[&thinker, &adversary, &defender]),
            grader: grader(&mut params, graders).of_roles(&[&thinker, &defender]),
            thinker,
            adversary,
            defender,
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
        };
        Ok((game, params.finish()))
    }

    fn messages(&self, task: &Task, template: &str, context: Value) -> Vec<Message> {
        with_preamble(task, self.prompts.text(template, task, context))
    }

    fn done(&self, task: &Task, events: Transcript<'_>, said: (&Event, &RoleName, &Event)) -> Step {
        let (first, adversary, last) = said;
        let grades = self.grader.grades(task, events);
        let (s1, s2) = (grades.of(first), grades.of(last));
        let rewards = vec![
            seat(&self.thinker, 0, "", &[("correct", s1), ("survived", s2)]),
            seat(adversary, 0, "", &[("broken", s1 - s2)]),
            seat(&self.defender, 0, "", &[("survived", s2)]),
        ];
        let mut metrics = vec![
            ("success", share(s2)),
            ("first", share(s1)),
            ("broken", (share(s1) - share(s2)).max(0.0)),
            ("helped", (share(s2) - share(s1)).max(0.0)),
        ];
        if adversary != &self.adversary {
            metrics.push((self.opponents.won(adversary)[0], share(s2)));
        }
        grades.settle(Outcome { rewards, metrics })
    }
}

impl Workflow for Attack {
    fn kind(&self) -> &'static str {
        "adversarial"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let mut roles = vec![spec(&self.thinker, &[("correct", 0.0), ("survived", 1.0)])];
        roles.extend(self.opponents.specs(&self.adversary, &[("broken", 1.0)]));
        roles.push(spec(&self.defender, &[("survived", 1.0)]));
        roles
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        self.grader.check_label(&task.label)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let (events, prompt) = (Transcript(events), task.prompt.text());
        let Some(first) = events.first(&self.thinker, 0) else {
            let messages = self.messages(task, "thinker", context! { prompt });
            return Step::Ask(vec![ask(&self.thinker, 0, messages)]);
        };
        let (adversary, answer) = (self.opponents.drawn(&self.adversary, task), first.text.trim());
        let Some(attack) = events.first(adversary, 0) else {
            let messages = self.messages(task, "adversary", context! { prompt, answer });
            return Step::Ask(vec![ask(adversary, 0, messages)]);
        };
        let Some(last) = events.first(&self.defender, 0) else {
            let attack = attack.text.trim();
            let messages = self.messages(task, "defender", context! { prompt, answer, attack });
            return Step::Ask(vec![ask(&self.defender, 0, messages)]);
        };
        self.done(task, events, (first, adversary, last))
    }

    fn programs(&self) -> Vec<Program> {
        self.grader.programs()
    }
}
