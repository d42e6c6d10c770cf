//! One conversation of a group: its events, its turns, and the requests it waits for.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::ids::{TurnKey, conversation_seed};
use broker::protocol::failure::Failure;
use broker::protocol::turn::Generation;

use super::wanted::RunSpec;
use crate::workflow::{Ask, Event, Outcome, Step};

/// A conversation and its state.
pub(super) struct Member {
    pub(super) seed: u64,
    pub(super) events: Vec<Event>,
    pub(super) turns: Vec<(TurnKey, Generation)>,
    pub(super) state: State,
}

pub(super) enum State {
    /// The requests it waits for, by key.
    Open(BTreeMap<TurnKey, Ask>),
    Ended(Outcome),
    Failed(Failure),
}

impl Member {
    pub(super) fn new(spec: &RunSpec, member: u16) -> Self {
        let seed = conversation_seed(spec.run_seed, &spec.task_id, member);
        let mut new = Self {
            seed,
            events: Vec::new(),
            turns: Vec::new(),
            state: State::Open(BTreeMap::new()),
        };
        new.step(spec, member);
        new
    }

    pub(super) fn take(&mut self, spec: &RunSpec, key: TurnKey, generation: Generation) {
        self.events.push(Event::of(&key, &generation));
        let member = key.member;
        self.turns.push((key, generation));
        self.step(spec, member);
    }

    fn step(&mut self, spec: &RunSpec, member: u16) {
        self.state = match spec.workflow.step(&spec.task, self.seed, &self.events) {
            Step::Done(outcome) => State::Ended(outcome),
            Step::Ask(asks) => self.open(asks, member),
            Step::Fail(reason) => State::Failed(Failure::other(reason)),
        };
    }

    /// Returns the asks that have no event yet. A workflow that asks for nothing, or out of turn,
    /// would never end.
    fn open(&self, asks: Vec<Ask>, member: u16) -> State {
        let mut open = BTreeMap::new();
        for ask in asks {
            let spoken = self.spoken(&ask.role, ask.seat);
            match usize::from(ask.turn) {
                turn if turn < spoken => {}
                turn if turn == spoken => {
                    let key = TurnKey {
                        member,
                        role: ask.role.clone(),
                        seat: ask.seat,
                        turn: ask.turn,
                    };
                    open.insert(key, ask);
                }
                turn => {
                    let (role, seat) = (&ask.role, ask.seat);
                    return State::Failed(Failure::other(format_args!(
                        "the workflow asks for turn {turn} of {role}/{seat}, which has spoken {spoken} times"
                    )));
                }
            }
        }
        if open.is_empty() {
            return State::Failed(Failure::other("the workflow asks for nothing and has not ended"));
        }
        State::Open(open)
    }

    fn spoken(&self, role: &RoleName, seat: u16) -> usize {
        self.events.iter().filter(|e| e.role == *role && e.seat == seat).count()
    }

    /// Returns the prompt and output ids of the turn before `key` of its seat.
    pub(super) fn held(&self, key: &TurnKey) -> Vec<u32> {
        self.before(key)
            .map_or_else(Vec::new, |g| [&g.prompt_ids[..], &g.output_ids[..]].concat())
    }

    /// Returns the number of output ids of the turn before `key` of its seat.
    pub(super) fn sampled(&self, key: &TurnKey) -> u32 {
        self.before(key).map_or(0, |g| g.output_ids.len() as u32)
    }

    pub(super) fn held_len(&self, key: &TurnKey) -> usize {
        self.before(key).map_or(0, |g| g.prompt_ids.len() + g.output_ids.len())
    }

    /// Returns the generation before `key` of its seat.
    fn before(&self, key: &TurnKey) -> Option<&Generation> {
        let same = |(k, _): &&(TurnKey, Generation)| k.role == key.role && k.seat == key.seat;
        self.turns.iter().rev().find(same).map(|(_, generation)| generation)
    }
}
