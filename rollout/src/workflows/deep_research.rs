//! `deep-research`: a main agent answers a question with the help of a sub agent that it calls as a
//! tool (MrlX's DeepResearch).
//!
//! Each call of `research` is a separate conversation with its own seat. The sub agent gets the
//! task, searches and reads with its tools, and ends with `<result>..</result>`. Main reads that
//! result, or the summary of the whole conversation if there is a summariser. Main ends with
//! `<answer>..</answer>`.
//!
//! Main earns 1 for a right answer, 0.1 for a wrong one in good form, 0 otherwise. Each call earns
//! `team`, which is main's reward if the call's own form is good. It also earns `found` (weight 0),
//! which gives credit to the single call: whether its own result has the answer.
//!
//! Profile `mrlx` differs in three ways. It pays a call 0.1 whether main was wrong or without form.
//! It treats a call that was hurried as one without form. It reads only the first call of a turn.

mod form;

use std::collections::BTreeMap;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{GraderConfig, Problem, WorkflowConfig};
use minijinja::context;
use serde_json::{Value, json};

use crate::workflow::grading::{Grades, Grading};
use crate::workflow::params::{Params, check_roles, grader};
use crate::workflow::program::Program;
use crate::workflow::prompts::{Prompts, templates, with_preamble};
use crate::workflow::tools::call::Call;
use crate::workflow::tools::seat_calls::{CallAnswer, CallingSeat, Progress, SeatTurns, Start};
use crate::workflow::tools::{ERROR, Spec, ToolProgram, Tools};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Ask, Event, Outcome, RoleSpec, Step, Workflow};
use form::{between, has_form, has_label};

const FULL: [(&str, &str); 3] = templates!("deep-research/full", "main", "sub", "summariser");
const SHORT: [(&str, &str); 3] = templates!("deep-research/short", "main", "sub", "summariser");

/// The tool by which main calls a sub agent.
const RESEARCH: &str = "research";
/// The reward of a wrong answer in good form.
const FORM: f32 = 0.1;

pub(super) struct DeepResearch {
    main: RoleName,
    sub: RoleName,
    /// The role that summarises a call for main; without it, main reads the sub agent's result.
    summariser: Option<RoleName>,
    mrlx: bool,
    grader: Grading,
    /// A program that is asked about answers that the grader finds wrong.
    judge: Option<Grading>,
    research: Spec,
    tools: Tools,
    prompts: Prompts,
}

/// One call of a sub agent that has ended.
struct Child<'a> {
    seat: u16,
    spoken: SeatTurns<'a>,
}

impl DeepResearch {
    pub(super) fn new(
        config: &WorkflowConfig,
        graders: &BTreeMap<String, GraderConfig>,
        tools: Tools,
    ) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let short = params.choice("prompts", &["full", "short"]) == "short";
        let sample = context! { prompt => "?", task => "?", context => "?", transcript => "?" };
        let (main, summariser) = (role("main")?, role("summariser")?);
        let grading = grader(&mut params, graders).of_roles(&[&main]);
        let workflow = Self {
            judge: judge(&mut params, graders, &grading, &main),
            grader: grading,
            sub: role("sub")?,
            summariser: config.roles.contains_key(&summariser).then_some(summariser),
            mrlx: config.profile == "mrlx",
            research: research().map_err(|message| vec![problem("workflow.kind", message)])?,
            prompts: Prompts::new(if short { &SHORT } else { &FULL }, &mut params, &sample),
            main,
            tools,
        };
        let mut problems = params.finish();
        let may_call = [&workflow.main, &workflow.sub];
        for other in config.tools.keys().filter(|role| !may_call.contains(role)) {
            let message = "only main and sub call tools here: remove it";
            problems.push(problem(&format!("workflow.tools.{other}"), message));
        }
        problems.extend(check_roles(config, &workflow.roles()));
        if problems.is_empty() {
            Ok(workflow)
        } else {
            Err(problems)
        }
    }

    fn calling_seat<'w>(&'w self, role: &'w RoleName, seat: u16) -> CallingSeat<'w> {
        CallingSeat {
            limits: self.tools.limits(),
            role,
            seat,
            first_only: self.mrlx,
        }
    }

    /// Returns the messages of a seat's first turn: its tools and its task.
    fn first(&self, task: &Task, role: &RoleName, more: &[&Spec], messages: Vec<Message>) -> Vec<Message> {
        self.tools
            .message(role, task, more)
            .into_iter()
            .chain(messages)
            .collect()
    }

    /// Returns the result of main's call.
    fn called<'a>(
        &self,
        task: &Task,
        events: Transcript<'a>,
        (number, call): (u16, &Call),
        children: &mut Vec<Child<'a>>,
    ) -> CallAnswer {
        if call.name != RESEARCH {
            let known = [&self.research];
            return self.tools.answer(task, events, (&self.main, 0), (number, call), &known);
        }
        if let Some(why) = self.research.refuse(&call.arguments) {
            return Ok(format!("{ERROR}{why}"));
        }
        let spoken = self.child(task, events, number, &call.arguments)?;
        let text = self.result_for_main(task, events, (number, &call.arguments), &spoken)?;
        children.push(Child { seat: number, spoken });
        Ok(text)
    }

    /// Returns the turns of the sub agent's conversation.
    fn child<'a>(
        &self,
        task: &Task,
        events: Transcript<'a>,
        seat: u16,
        arguments: &Value,
    ) -> Result<SeatTurns<'a>, Vec<Ask>> {
        let first = || {
            let (wanted, context) = (text(arguments, "task"), text(arguments, "context"));
            let prompt = self.prompts.text("sub", task, context! { task => wanted, context });
            ask(
                &self.sub,
                seat,
                self.first(task, &self.sub, &[], vec![Message::user(prompt)]),
            )
        };
        let mut answer = |count, call: &_| self.tools.answer(task, events, (&self.sub, seat), (count, call), &[]);
        match self
            .calling_seat(&self.sub, seat)
            .follow(events, Start::default(), first, &mut answer)
        {
            Progress::Open(asks) => Err(asks),
            Progress::Done(spoken) => Ok(spoken),
        }
    }

    /// Returns the text of a call's result for main.
    fn result_for_main(
        &self,
        task: &Task,
        events: Transcript<'_>,
        (seat, arguments): (u16, &Value),
        spoken: &SeatTurns<'_>,
    ) -> CallAnswer {
        let last = spoken.turns.last().map_or("", |event| event.text.as_str());
        let text = match &self.summariser {
            None => between(last, "result").unwrap_or(last),
            Some(summariser) => match events.first(summariser, seat) {
                Some(said) => between(&said.text, "summary").unwrap_or(&said.text),
                None => {
                    let said: Vec<&str> = spoken.turns.iter().map(|event| event.text.as_str()).collect();
                    let transcript = said.join("\n");
                    let context = context! { task => text(arguments, "task"), transcript };
                    let prompt = self.prompts.text("summariser", task, context);
                    return Err(vec![ask(summariser, seat, vec![Message::user(prompt)])]);
                }
            },
        };
        Ok(match text.trim() {
            "" => format!("{ERROR}the research came to nothing"),
            text => text.to_owned(),
        })
    }

    fn done(&self, task: &Task, events: Transcript<'_>, main: &SeatTurns<'_>, children: &[Child<'_>]) -> Step {
        let grades = self.grader.grades(task, events);
        let judge = self.judge.as_ref().map(|judge| judge.grades(task, events));
        let good = has_form(&main.turns, "answer");
        let right = good && self.is_right(main, &grades, judge.as_ref());
        let earned = match (good, right) {
            (_, true) => 1.0,
            (true, false) => FORM,
            (false, false) => 0.0,
        };
        let mut rewards = vec![reward(&self.main, 0, &[("answer", earned)])];
        let (mut forms, mut found) = (0.0, 0.0);
        for child in children {
            let good = has_form(&child.spoken.turns, "result") && !(self.mrlx && child.spoken.hurried);
            let last = child.spoken.turns.last().map_or("", |event| event.text.as_str());
            let has = good && has_label(between(last, "result").unwrap_or_default(), &task.label);
            let team = match (good, self.mrlx) {
                (false, _) => 0.0,
                (true, true) => earned.max(FORM),
                (true, false) => earned,
            };
            forms += f64::from(u8::from(good));
            found += f64::from(u8::from(has));
            let parts = [("team", team), ("found", f32::from(u8::from(has)))];
            rewards.push(reward(&self.sub, child.seat, &parts));
        }
        let sum =
            |of: fn(&SeatTurns<'_>) -> u16| children.iter().map(|child| f64::from(of(&child.spoken))).sum::<f64>();
        let mut metrics = vec![
            ("success", f64::from(u8::from(right))),
            ("main_form", f64::from(u8::from(good))),
            ("main_turns", main.turns.len() as f64),
            ("main_hurried", f64::from(u8::from(main.hurried))),
            ("research_calls", children.len() as f64),
            ("tool_calls", sum(|spoken| spoken.calls) + f64::from(main.calls)),
            ("tool_errors", sum(|spoken| spoken.failed) + f64::from(main.failed)),
        ];
        if !children.is_empty() {
            let calls = children.len() as f64;
            metrics.extend([("sub_form", forms / calls), ("sub_found", found / calls)]);
        }
        let outcome = Outcome { rewards, metrics };
        match judge {
            Some(judge) => judge.settle(outcome),
            None => grades.settle(outcome),
        }
    }

    /// Returns the verdict of the grader, or the judge's where the grader says no.
    fn is_right(&self, main: &SeatTurns<'_>, grades: &Grades<'_>, judge: Option<&Grades<'_>>) -> bool {
        let Some(last) = main.turns.last() else { return false };
        let by = |grades: &Grades<'_>| grades.of_text(&self.main, 0, &last.text) > 0.5;
        by(grades) || judge.is_some_and(by)
    }
}

fn problem(path: &str, message: impl Into<String>) -> Problem {
    Problem {
        path: path.into(),
        message: message.into(),
    }
}

/// Returns the tool by which main calls a sub agent.
fn research() -> Result<Spec, String> {
    let parameters = json!({"type": "object", "additionalProperties": false, "required": ["task"], "properties": {
        "task": {"type": "string", "minLength": 1, "description": "What is to be found out, complete in itself."},
        "context": {"type": "string", "description": "What is known already and helps."},
    }});
    let description =
        "Has an assistant look something up. It searches and reads documents and answers with what it found.";
    Spec::new(RESEARCH, description, parameters)
}

/// Returns the program that `workflow.params.judge` names.
fn judge(
    params: &mut Params<'_>,
    graders: &BTreeMap<String, GraderConfig>,
    grader: &Grading,
    main: &RoleName,
) -> Option<Grading> {
    let name = params.text("judge", "none");
    if name == "none" {
        return None;
    }
    let found = graders
        .get(&name)
        .ok_or_else(|| format!("there is no [graders.{name}]"));
    let made = found.and_then(Grading::new).and_then(|judge| match judge {
        Grading::Rule(_) => Err("is a shipped grader: name a program, or leave it out".to_owned()),
        _ if grader.rule().is_none() => Err("needs a shipped grader before it: that one is a program too".to_owned()),
        program => Ok(program.of_roles(&[main])),
    });
    made.map_err(|message| params.problem("judge", message)).ok()
}

fn text<'a>(arguments: &'a Value, key: &str) -> &'a str {
    arguments.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Workflow for DeepResearch {
    fn kind(&self) -> &'static str {
        "deep-research"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts| RoleSpec {
            name: name.clone(),
            parts,
        };
        let mut roles = vec![
            spec(&self.main, vec![("answer", 1.0)]),
            spec(&self.sub, vec![("team", 1.0), ("found", 0.0)]),
        ];
        roles.extend(self.summariser.as_ref().map(|role| spec(role, Vec::new())));
        roles
    }

    /// Returns the number of turns: main's and each call's own, including the summariser's. Tool
    /// results are no turns.
    fn most_turns(&self) -> Option<usize> {
        let limits = self.tools.limits();
        let turns = usize::from(limits.turns) + 1;
        let calls = match limits.turns {
            0 => 0,
            turns if self.mrlx => limits.calls.min(turns),
            _ => limits.calls,
        };
        let child = turns + usize::from(self.summariser.is_some());
        Some(turns + usize::from(calls) * child)
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        self.grader.check_label(&task.label)
    }

    fn check_tools(&self, task: &Task) -> Result<(), String> {
        self.tools.check(task)
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        let first = || {
            let prompt = self
                .prompts
                .text("main", task, context! { prompt => task.prompt.text() });
            let messages = self.first(task, &self.main, &[&self.research], with_preamble(task, prompt));
            ask(&self.main, 0, messages)
        };
        let mut children = Vec::new();
        let mut answer = |number, call: &Call| self.called(task, events, (number, call), &mut children);
        match self
            .calling_seat(&self.main, 0)
            .follow(events, Start::default(), first, &mut answer)
        {
            Progress::Open(asks) => Step::Ask(asks),
            Progress::Done(main) => self.done(task, events, &main, &children),
        }
    }

    fn programs(&self) -> Vec<Program> {
        let graders = [Some(&self.grader), self.judge.as_ref()];
        graders.into_iter().flatten().flat_map(Grading::programs).collect()
    }

    fn tools(&self) -> Vec<ToolProgram> {
        self.tools.programs()
    }
}

#[cfg(test)]
mod tests;
