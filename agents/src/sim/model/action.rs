//! What can happen in a state: steps of agents and coordinators, arrivals, and the faults that are left.

use super::checker::Model;
use super::play::group;
use super::state::{Coordinator, Message, Phase, State, TASK};
use super::{GroupModel, Rules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A coordinator takes a message of the task.
    Take(usize),
    Arrives(Message),
    Claims(usize),
    /// One of its commits reaches the store and is answered.
    Commits(usize, usize),
    Beats(usize),
    Decides(usize),
    Sends(usize),
    Finishes(usize),
    Voids(usize),
    /// The agents tell what is reserved to the coordinators.
    Tells,
    /// The same, because it has waited for five minutes: nothing else can happen.
    Overdue,
    /// A halted coordinator's beats come again.
    Wakes(usize),
    Fault(Fault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    CoordinatorDies(usize),
    /// Before it has made anything of what has come. What it would have sampled is another answer now; nothing else is in its memory.
    AgentDies(usize),
    /// After it has stored what came, before its ack and its answer.
    StoresAndDies(Message),
    Twice(Message),
    /// The machinery fails a generation, as often as it may.
    Fails(Message),
    /// A coordinator's beats stay out for longer than its lease. It goes on as a zombie.
    Halts(usize),
    /// The store is again as it was after so many of its changes; after none it is empty.
    GoesBack(usize),
}

impl GroupModel {
    pub(super) fn steps(&self, state: &State) -> Vec<Action> {
        let mut steps: Vec<Action> = state.messages.keys().cloned().map(Action::Arrives).collect();
        // The first is called 0: which of the two it is makes no difference.
        let takers = if begun(state) { 2 } else { 1 };
        if state.queue > 0 {
            steps.extend((0..takers).map(Action::Take));
        }
        for (c, coordinator) in state.coordinators.iter().enumerate() {
            steps.extend((0..coordinator.commits.len()).map(|n| Action::Commits(c, n)));
            steps.extend(self.own_step(state, c, coordinator));
            if coordinator.silent {
                steps.push(Action::Wakes(c));
            } else if beat_matters(state, c) {
                steps.push(Action::Beats(c));
            }
        }
        if state.tells {
            steps.push(Action::Tells);
        }
        if steps.is_empty() && state.is_reserved() && self.rules.overdue {
            steps.push(Action::Overdue);
        }
        steps
    }

    fn own_step(&self, state: &State, c: usize, coordinator: &Coordinator) -> Option<Action> {
        match &coordinator.phase {
            Phase::Idle | Phase::Admitting { .. } | Phase::Open(_) => None,
            Phase::Claiming { watched } => {
                let waits = watched.is_some() && *watched == standing(state) && owner_beats(state);
                (!waits).then_some(Action::Claims(c))
            }
            Phase::Closing { sending: None, .. } => Some(Action::Decides(c)),
            Phase::Closing {
                open,
                sending: Some(sent),
            } => {
                let all = self.parts(&open.heard).len();
                Some(if usize::from(*sent) < all {
                    Action::Sends(c)
                } else {
                    Action::Finishes(c)
                })
            }
            Phase::Voiding { .. } => Some(Action::Voids(c)),
        }
    }

    pub(super) fn faults(&self, state: &State) -> Vec<Action> {
        let mut faults = Vec::new();
        if state.faults == 0 {
            return Vec::new();
        }
        for message in state.messages.keys() {
            if !matches!(message, Message::Part { .. }) || !self.rules.dedupe {
                faults.push(Fault::Twice(message.clone()));
            }
            match message {
                Message::Reserve { .. } | Message::Part { .. } => faults.push(Fault::StoresAndDies(message.clone())),
                Message::Request { turn, .. } => {
                    faults.push(Fault::Fails(message.clone()));
                    faults.push(Fault::AgentDies(usize::from(*turn)));
                }
                _ => {}
            }
        }
        for (c, coordinator) in state.coordinators.iter().enumerate() {
            if coordinator.phase != Phase::Idle {
                faults.push(Fault::CoordinatorDies(c));
            }
            if lease(&coordinator.phase).is_some() && !coordinator.silent {
                faults.push(Fault::Halts(c));
            }
        }
        faults.extend((0..state.past.len()).map(Fault::GoesBack));
        faults.into_iter().map(Action::Fault).collect()
    }
}

fn begun(state: &State) -> bool {
    let idle = |c: &Coordinator| c.phase == Phase::Idle && c.life == 0;
    !state.coordinators.iter().all(idle) || state.agents.iter().any(|agent| !agent.ledger.rows.is_empty())
}

/// The lease that a coordinator has. Between its claim and its void no lease's time passes, so that too counts as beating.
pub(super) fn lease(phase: &Phase) -> Option<broker::store::Lease> {
    match phase {
        Phase::Open(open) | Phase::Closing { open, .. } => Some(open.lease),
        Phase::Voiding { lease } => Some(*lease),
        _ => None,
    }
}

/// The (beat, fence) that another would see now.
fn standing(state: &State) -> Option<(u64, u64)> {
    let (lease, beat) = state.store.groups.standing(group())?;
    Some((beat, lease.fence))
}

fn stands(state: &State, c: usize) -> bool {
    let standing = state.store.groups.standing(group());
    let lease = lease(&state.coordinators[c].phase);
    lease.is_some() && lease == standing.map(|(lease, _)| lease)
}

fn owner_beats(state: &State) -> bool {
    (0..2).any(|c| !state.coordinators[c].silent && stands(state, c))
}

/// Whether somebody looks at this beat, or its owner would learn that the lease is lost.
fn beat_matters(state: &State, c: usize) -> bool {
    match &state.coordinators[c].phase {
        Phase::Open(_) if !stands(state, c) => true,
        Phase::Open(_) | Phase::Closing { .. } => {
            let seen = standing(state);
            let watches = |other: &Coordinator| matches!(&other.phase, Phase::Claiming { watched } if watched.is_some() && *watched == seen);
            stands(state, c) && state.coordinators.iter().any(watches)
        }
        _ => false,
    }
}

impl Model for GroupModel {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State::new(self.size.messages, self.size.faults)
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        // What coordinators still do then they could have done while the last part was on its way.
        if self.rules.dedupe && self.is_goal(state) {
            return Vec::new();
        }
        let mut actions = self.steps(state);
        actions.extend(self.faults(state));
        actions
    }

    fn next(&self, state: &State, action: &Action) -> State {
        let mut next = state.clone();
        match action {
            Action::Fault(fault) => self.fault(&mut next, fault),
            step => self.step(&mut next, step),
        }
        self.tidy(&mut next);
        next
    }

    fn broken(&self, state: &State) -> Option<String> {
        self.broken_promise(state)
    }

    fn is_fault(&self, action: &Action) -> bool {
        matches!(action, Action::Fault(_))
    }

    fn is_goal(&self, state: &State) -> bool {
        state.agents.iter().all(|agent| agent.ledger.winner(TASK).is_some())
    }
}

impl Rules {
    /// Every guard in its place.
    pub(super) const ALL: Self = Self {
        custody: true,
        dedupe: true,
        whole: true,
        fence: true,
        set_once: true,
        decide_once: true,
        adopts: true,
        tells: true,
        overdue: true,
    };
}
