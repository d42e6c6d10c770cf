//! `solve-rewrite-select`: n solvers in parallel, n rewriters over their solutions, one selector
//! (the multi-agent example of slime and Miles).
//!
//! With r = 1 for a right answer of a seat's own, else 0:
//!
//! | outcome | solver | rewriter | selector |
//! |---|---|---|---|
//! | no solver has an answer | r x 0.8 | - | - |
//! | no rewriter has an answer | r x 0.8 | r x 0.8 | - |
//! | the selector names no candidate | r x 0.8 | r x 0.8 | 0 |
//! | it selects a wrong rewrite | r x 0.8 | r x 0.8 | 0 |
//! | it selects a right rewrite | r x 1.2 | r x 1.2 | 1.2 |
//!
//! If the prompt of a rewriter or the selector leaves no room for an answer
//! (`sampling.max_context`), there is no sample of it. The conversation ends at that stage, as if
//! no seat there had an answer, and the others are paid as in the first lines.
//!
//! A text that is all reasoning is trained on but not passed on. Profile `dyad` takes the last
//! `Judgment: N`, as the prompt asks; profile `miles` the first. Under short prompts the last word
//! is the number.

pub(crate) mod warm;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::{Value, context};

use crate::workflow::grading::{Grades, Grading, share};
use crate::workflow::params::{Params, check_roles, grader};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::transcript::{Transcript, reward, role};
use crate::workflow::unanswered::says_nothing;
use crate::workflow::{Event, Outcome, RoleSpec, SeatReward, Step, Workflow};

const FULL: [(&str, &str); 3] = templates!("solve-rewrite-select/full", "solver", "rewriter", "selector");
const SHORT: [(&str, &str); 3] = templates!("solve-rewrite-select/short", "solver", "rewriter", "selector");

pub(crate) struct SolveRewriteSelect {
    solver: RoleName,
    rewriter: RoleName,
    selector: RoleName,
    seats: u16,
    failed: f32,
    succeeded: f32,
    judgment: Judgment,
    grader: Grading,
    prompts: Prompts,
}

/// Where a selector's text has the number of its candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgment {
    /// After the first `Judgment:` that has a number.
    First,
    /// After the last `Judgment:` that has a number.
    Last,
    /// In the last word, which has nothing else.
    Word,
}

/// The stages of a conversation so far.
struct Stages<'a> {
    solvers: Vec<&'a Event>,
    rewriters: Vec<&'a Event>,
    selector: Option<&'a Event>,
    /// The rewrite that was selected.
    picked: Option<&'a Event>,
    /// True if a prompt of some stage left no room for its answer.
    no_room: bool,
}

impl<'a> Stages<'a> {
    /// Returns the seats of a stage that had room for an answer.
    fn with_room(&mut self, stage: Vec<&'a Event>) -> Vec<&'a Event> {
        self.no_room |= stage.iter().any(|event| says_nothing(event));
        stage.into_iter().filter(|event| !says_nothing(event)).collect()
    }
}

impl SolveRewriteSelect {
    pub(crate) fn new(config: &WorkflowConfig, graders: &BTreeMap<String, GraderConfig>) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let sample = context! { prompt => "?", attempts => ["?"], candidates => ["?"] };
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let judgment = match (short, config.profile.as_str()) {
            (true, _) => Judgment::Word,
            (false, "miles") => Judgment::First,
            (false, _) => Judgment::Last,
        };
        let solver = role("solver")?;
        let rewriter = role("rewriter")?;
        let workflow = Self {
            seats: params.integer("num_parallel", 5, 1..=64) as u16,
            failed: params.number("incorrect_weight", 0.8, 0.0..=100.0) as f32,
            succeeded: params.number("correct_weight", 1.2, 0.0..=100.0) as f32,
            judgment,
            grader: grader(&mut params, graders).of_roles(&[&solver, &rewriter]),
            solver,
            rewriter,
            selector: role("selector")?,
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    /// Returns the number of parallel solvers and rewriters.
    pub(crate) fn seats(&self) -> u16 {
        self.seats
    }

    /// Returns the messages of a solver.
    pub(crate) fn solver_prompt(&self, task: &Task) -> Vec<Message> {
        self.messages(task, "solver", context! { prompt => task.prompt.text() })
    }

    /// Returns the messages of a rewriter over these solutions.
    pub(crate) fn rewriter_prompt(&self, task: &Task, attempts: &[String]) -> Vec<Message> {
        self.messages(task, "rewriter", context! { prompt => task.prompt.text(), attempts })
    }

    /// Returns the messages of the selector among these rewrites.
    pub(crate) fn selector_prompt(&self, task: &Task, candidates: &[String]) -> Vec<Message> {
        self.messages(task, "selector", context! { prompt => task.prompt.text(), candidates })
    }

    /// Returns the form in which a solver or rewriter writes its answer under these prompts.
    pub(crate) fn answer_text(&self, answer: i64) -> String {
        if self.judgment == Judgment::Word {
            answer.to_string()
        } else {
            format!("\\boxed{{{answer}}}")
        }
    }

    /// Returns the form in which the selector names a candidate, counted from 1, together with its
    /// own answer.
    pub(crate) fn selection_text(&self, own: i64, candidate: usize) -> String {
        if self.judgment == Judgment::Word {
            format!("{own} {candidate}")
        } else {
            format!("The answer is {own}.\nJudgment: {candidate}")
        }
    }

    fn messages(&self, task: &Task, template: &str, context: Value) -> Vec<Message> {
        with_preamble(task, self.prompts.text(template, task, context))
    }

    fn done(&self, task: &Task, events: Transcript<'_>, stages: &Stages<'_>) -> Step {
        let grades = self.grader.grades(task, events);
        let outcome = self.outcome(&grades, stages);
        grades.settle(outcome)
    }

    fn outcome(&self, grades: &Grades<'_>, stages: &Stages<'_>) -> Outcome {
        let right = |event: &Event| grades.of(event);
        let success = stages.picked.map_or(0.0, right);
        let weight = if success > 0.5 { self.succeeded } else { self.failed };
        let own = |event: &&Event| seat(event, right(event), right(event) * weight);
        let mut rewards: Vec<SeatReward> = stages.solvers.iter().chain(&stages.rewriters).map(own).collect();
        rewards.extend(
            stages
                .selector
                .map(|event| seat(event, success, success * self.succeeded)),
        );
        let mean = |events: &[&Event]| {
            let sum: f64 = events.iter().map(|event| share(right(event))).sum();
            sum / events.len().max(1) as f64
        };
        let any = stages.solvers.iter().any(|event| right(event) > 0.5);
        let flag = |on: bool| f64::from(u8::from(on));
        let mut metrics = vec![
            ("success", share(success)),
            ("solver_mean", mean(&stages.solvers)),
            ("solver_any", flag(any)),
            ("no_solver_answer", flag(answers(&stages.solvers).is_empty())),
            ("no_room", flag(stages.no_room)),
        ];
        if !stages.rewriters.is_empty() {
            metrics.push(("rewriter_mean", mean(&stages.rewriters)));
            metrics.push(("no_rewriter_answer", flag(answers(&stages.rewriters).is_empty())));
        }
        if stages.selector.is_some() {
            metrics.push(("selector_unparsed", flag(stages.picked.is_none())));
            // The selector's own skill: only where a right rewrite was there to select.
            if stages.rewriters.iter().any(|event| right(event) > 0.5) {
                metrics.push(("selector_right", share(success)));
            }
        }
        Outcome { rewards, metrics }
    }
}

fn seat(event: &Event, correct: f32, team: f32) -> SeatReward {
    reward(&event.role, event.seat, &[("team", team), ("correct", correct)])
}

/// Returns the seats that have a text to pass on, in order.
fn answers<'a>(events: &[&'a Event]) -> Vec<&'a Event> {
    events
        .iter()
        .copied()
        .filter(|event| !event.text.trim().is_empty())
        .collect()
}

fn texts(events: &[&Event]) -> Vec<String> {
    events.iter().map(|event| event.text.trim().to_owned()).collect()
}

/// Returns the number of the selected candidate, counted from 1.
fn judgment(text: &str, place: Judgment) -> Option<usize> {
    const WORD: &str = "Judgment:";
    let number = |(at, _): (usize, &str)| {
        let rest = text[at + WORD.len()..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        // A number too long for a candidate names none.
        (end > 0).then(|| rest[..end].parse().unwrap_or(usize::MAX))
    };
    let mut numbers = text.match_indices(WORD).filter_map(number);
    match place {
        Judgment::First => numbers.next(),
        Judgment::Last => numbers.last(),
        Judgment::Word => text.split_whitespace().last().and_then(|word| word.parse().ok()),
    }
}

impl Workflow for SolveRewriteSelect {
    fn kind(&self) -> &'static str {
        "solve-rewrite-select"
    }

    /// Returns the reward of a seat. `team` is the table's value; `correct` is r alone, for the
    /// metrics, and has weight 0 unless the configuration gives one.
    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName| RoleSpec {
            name: name.clone(),
            parts: vec![("team", 1.0), ("correct", 0.0)],
        };
        vec![spec(&self.solver), spec(&self.rewriter), spec(&self.selector)]
    }

    fn most_turns(&self) -> Option<usize> {
        Some(2 * usize::from(self.seats) + 1)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        self.grader.check_label(&task.label)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    /// Returns the failure of a problem that leaves its solvers no room, because there is no answer
    /// at all.
    fn goes_on_without(&self, role: &RoleName) -> bool {
        [&self.rewriter, &self.selector].contains(&role)
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        let solve = || self.solver_prompt(task);
        let solvers = match events.stage(&self.solver, self.seats, solve) {
            Ok(solvers) => solvers,
            Err(asks) => return Step::Ask(asks),
        };
        let attempts = answers(&solvers);
        let mut stages = Stages {
            solvers,
            rewriters: Vec::new(),
            selector: None,
            picked: None,
            no_room: false,
        };
        if attempts.is_empty() {
            return self.done(task, events, &stages);
        }
        let rewrite = || self.rewriter_prompt(task, &texts(&attempts));
        stages.rewriters = match events.stage(&self.rewriter, self.seats, rewrite) {
            Ok(rewriters) => stages.with_room(rewriters),
            Err(asks) => return Step::Ask(asks),
        };
        let candidates = answers(&stages.rewriters);
        if candidates.is_empty() {
            return self.done(task, events, &stages);
        }
        let select = || self.selector_prompt(task, &texts(&candidates));
        let selector = match events.stage(&self.selector, 1, select) {
            Ok(selector) => stages.with_room(selector),
            Err(asks) => return Step::Ask(asks),
        };
        stages.selector = selector.first().copied();
        let number = stages.selector.and_then(|event| judgment(&event.text, self.judgment));
        stages.picked = number.and_then(|n| candidates.get(n.checked_sub(1)?)).copied();
        self.done(task, events, &stages)
    }

    fn programs(&self) -> Vec<Program> {
        self.grader.programs()
    }
}

#[cfg(test)]
mod tests;
