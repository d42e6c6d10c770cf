//! Tools for the roles of any workflow. The workflow sees only the final answer of each exchange.
//!
//! One turn of such a role, in the workflow's count, is one exchange: the turns that called and the
//! turn that answered. The workflow is asked about conversations that hold only the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::task::Task;

use super::seat_calls::{CallingSeat, Progress, Start};
use super::{ToolProgram, Tools};
use crate::grade::Grader;
use crate::workflow::program::{Program, Question};
use crate::workflow::transcript::{Transcript, ask};
use crate::workflow::{Ask, Event, Need, Outcome, RoleSpec, Step, Workflow};

/// A workflow with roles that may call tools.
pub(crate) struct WithTools {
    inner: Arc<dyn Workflow>,
    tools: Tools,
}

/// One seat's exchanges so far.
#[derive(Default)]
struct Seat {
    /// The turns that answered, in order: the workflow's own turns.
    answers: Vec<u16>,
    /// The start of the exchange after the last answer.
    open: Start,
    failed: u16,
}

impl WithTools {
    pub(crate) fn new(inner: Arc<dyn Workflow>, tools: Tools) -> Self {
        Self { inner, tools }
    }

    fn calling_seat<'w>(&'w self, role: &'w RoleName, seat: u16) -> CallingSeat<'w> {
        CallingSeat {
            limits: self.tools.limits(),
            role,
            seat,
            first_only: false,
        }
    }

    fn seats(&self, task: &Task, events: Transcript<'_>) -> BTreeMap<(RoleName, u16), Seat> {
        let mut seats = BTreeMap::new();
        for role in self.tools.users() {
            let spoke: BTreeSet<u16> = events.0.iter().filter(|e| e.role == *role).map(|e| e.seat).collect();
            for seat in spoke {
                seats.insert((role.clone(), seat), self.seat(task, events, role, seat));
            }
        }
        seats
    }

    fn seat(&self, task: &Task, events: Transcript<'_>, role: &RoleName, number: u16) -> Seat {
        let mut seat = Seat::default();
        loop {
            let mut answer = |count, call: &_| self.tools.answer(task, events, (role, number), (count, call), &[]);
            let first = || ask(role, number, Vec::new());
            match self
                .calling_seat(role, number)
                .follow(events, seat.open, first, &mut answer)
            {
                Progress::Open(_) => return seat,
                Progress::Done(spoken) => {
                    let next = seat.open.turn.saturating_add(spoken.turns.len() as u16);
                    seat.answers.push(next.saturating_sub(1));
                    seat.failed = seat.failed.saturating_add(spoken.failed);
                    seat.open = Start {
                        turn: next,
                        calls: seat.open.calls.saturating_add(spoken.calls),
                    };
                    if next == u16::MAX {
                        return seat;
                    }
                }
            }
        }
    }

    /// Returns the events in the workflow's own count.
    fn answers_only(&self, events: &[Event], seats: &BTreeMap<(RoleName, u16), Seat>) -> Vec<Event> {
        let programs: BTreeSet<RoleName> = self.tools.programs().into_iter().flat_map(|tool| tool.roles).collect();
        let mut seen = BTreeSet::new();
        let own = |event: &Event| -> Option<Event> {
            if programs.contains(&event.role) {
                return None;
            }
            let Some(seat) = seats.get(&(event.role.clone(), event.seat)) else {
                return Some(event.clone());
            };
            let turn = seat.answers.iter().position(|turn| *turn == event.turn)? as u16;
            // The first event of a turn counts.
            seen.insert((event.role.clone(), event.seat, turn))
                .then(|| Event { turn, ..event.clone() })
        };
        events.iter().filter_map(own).collect()
    }

    /// Returns the asks that lead to the answer that the workflow wants of a role.
    fn asks(&self, task: &Task, events: Transcript<'_>, seat: Option<&Seat>, wanted: Ask) -> Vec<Ask> {
        let (role, number) = (wanted.role.clone(), wanted.seat);
        let (answers, open) = seat.map_or((0, Start::default()), |seat| (seat.answers.len(), seat.open));
        if usize::from(wanted.turn) != answers {
            // Out of turn; the group reports it.
            return vec![wanted];
        }
        let first = || {
            let mut first = wanted.clone();
            if answers == 0
                && let Some(list) = self.tools.message(&role, task, &[])
            {
                first.messages.insert(0, list);
            }
            first
        };
        let mut answer = |count, call: &_| self.tools.answer(task, events, (&role, number), (count, call), &[]);
        match self
            .calling_seat(&role, number)
            .follow(events, open, first, &mut answer)
        {
            Progress::Open(asks) => asks,
            // Otherwise it would be among the answers.
            Progress::Done(_) => Vec::new(),
        }
    }
}

/// Adds figures of the calls.
fn counted(mut outcome: Outcome, seats: &BTreeMap<(RoleName, u16), Seat>) -> Step {
    let sum = |of: fn(&Seat) -> u16| seats.values().map(|seat| f64::from(of(seat))).sum::<f64>();
    outcome.metrics.push(("tool_calls", sum(|seat| seat.open.calls)));
    outcome.metrics.push(("tool_errors", sum(|seat| seat.failed)));
    Step::Done(outcome)
}

impl Workflow for WithTools {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn roles(&self) -> Vec<RoleSpec> {
        self.inner.roles()
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.inner.check_task(task)
    }

    fn needs(&self, task: &Task) -> Vec<Need> {
        self.inner.needs(task)
    }

    fn check_tools(&self, task: &Task) -> Result<(), String> {
        self.tools.check(task)
    }

    fn whole_turn(&self, role: &RoleName) -> Option<u32> {
        self.inner.whole_turn(role)
    }

    fn shares_pictures(&self) -> bool {
        self.inner.shares_pictures()
    }

    fn step(&self, task: &Task, seed: u64, events: &[Event]) -> Step {
        let all = Transcript(events);
        let seats = self.seats(task, all);
        let wanted = match self.inner.step(task, seed, &self.answers_only(events, &seats)) {
            Step::Done(outcome) => return counted(outcome, &seats),
            Step::Ask(wanted) => wanted,
            failed @ Step::Fail(_) => return failed,
        };
        let callers: BTreeSet<&RoleName> = self.tools.users().collect();
        let asks = wanted.into_iter().flat_map(|one| {
            if callers.contains(&one.role) {
                self.asks(task, all, seats.get(&(one.role.clone(), one.seat)), one)
            } else {
                vec![one]
            }
        });
        Step::Ask(asks.collect())
    }

    fn answer(&self, task: &Task, events: &[Event]) -> Option<(Grader, String)> {
        let seats = self.seats(task, Transcript(events));
        self.inner.answer(task, &self.answers_only(events, &seats))
    }

    fn goes_on_without(&self, role: &RoleName) -> bool {
        self.inner.goes_on_without(role)
    }

    fn programs(&self) -> Vec<Program> {
        self.inner.programs()
    }

    fn tools(&self) -> Vec<ToolProgram> {
        self.tools.programs()
    }

    fn check_answer(&self, question: &Question, answer: &str) -> Result<(), String> {
        self.inner.check_answer(question, answer)
    }
}
