//! The events that can happen in a state: steps of agents and coordinators, arrivals, and the
//! remaining faults.

use super::checker::Model;
use super::play::group;
use super::state::{CoordinatorPhase, Message, ModelCoordinator, ModelState, TASK};
use super::{GroupModel, Rules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A coordinator takes a message of the task.
    Take(usize),
    Arrives(Message),
    Claims(usize),
    /// One of a coordinator's commits reaches the store and is answered.
    Commits(usize, usize),
    Beats(usize),
    Decides(usize),
    Sends(usize),
    Finishes(usize),
    Voids(usize),
    /// The agents report their reserved groups to the coordinators.
    Tells,
    /// The same report after a wait of five minutes, when no other event is possible.
    Overdue,
    /// A halted coordinator's heartbeats resume.
    Wakes(usize),
    Fault(ModelFault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelFault {
    CoordinatorDies(usize),
    /// The agent dies before it has handled its messages. It would now sample a different answer;
    /// its memory holds nothing else.
    AgentDies(usize),
    /// The agent dies after it has stored a message, before its ack and its answer.
    StoresAndDies(Message),
    Twice(Message),
    /// The machinery fails a generation, as often as a turn may fail.
    Fails(Message),
    /// A coordinator's heartbeats stop for longer than its lease. It continues as a zombie.
    Halts(usize),
    /// The store returns to its state after this number of changes; after none it is empty.
    GoesBack(usize),
}

impl GroupModel {
    pub(super) fn steps(&self, state: &ModelState) -> Vec<Action> {
        let mut steps: Vec<Action> = state.messages.keys().cloned().map(Action::Arrives).collect();
        // The first coordinator to start is called 0: the two are symmetric.
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

    fn own_step(&self, state: &ModelState, c: usize, coordinator: &ModelCoordinator) -> Option<Action> {
        match &coordinator.phase {
            CoordinatorPhase::Idle | CoordinatorPhase::Admitting { .. } | CoordinatorPhase::Open(_) => None,
            CoordinatorPhase::Claiming { watched } => {
                let waits = watched.is_some() && *watched == standing(state) && owner_beats(state);
                (!waits).then_some(Action::Claims(c))
            }
            CoordinatorPhase::Closing { sending: None, .. } => Some(Action::Decides(c)),
            CoordinatorPhase::Closing {
                open,
                sending: Some(sent),
            } => {
                let all = self.parts(&open.received).len();
                Some(if usize::from(*sent) < all {
                    Action::Sends(c)
                } else {
                    Action::Finishes(c)
                })
            }
            CoordinatorPhase::Voiding { .. } => Some(Action::Voids(c)),
        }
    }

    pub(super) fn faults(&self, state: &ModelState) -> Vec<Action> {
        let mut faults = Vec::new();
        if state.faults == 0 {
            return Vec::new();
        }
        for message in state.messages.keys() {
            if !matches!(message, Message::Part { .. }) || !self.rules.dedupe {
                faults.push(ModelFault::Twice(message.clone()));
            }
            match message {
                Message::Reserve { .. } | Message::Part { .. } => {
                    faults.push(ModelFault::StoresAndDies(message.clone()))
                }
                Message::Request { turn, .. } => {
                    faults.push(ModelFault::Fails(message.clone()));
                    faults.push(ModelFault::AgentDies(usize::from(*turn)));
                }
                _ => {}
            }
        }
        for (c, coordinator) in state.coordinators.iter().enumerate() {
            if coordinator.phase != CoordinatorPhase::Idle {
                faults.push(ModelFault::CoordinatorDies(c));
            }
            if lease(&coordinator.phase).is_some() && !coordinator.silent {
                faults.push(ModelFault::Halts(c));
            }
        }
        faults.extend((0..state.past.len()).map(ModelFault::GoesBack));
        faults.into_iter().map(Action::Fault).collect()
    }
}

fn begun(state: &ModelState) -> bool {
    let idle = |c: &ModelCoordinator| c.phase == CoordinatorPhase::Idle && c.life == 0;
    !state.coordinators.iter().all(idle) || state.agents.iter().any(|agent| !agent.ledger.rows.is_empty())
}

/// The lease that a coordinator has. No lease's time passes between its claim and its void, so a
/// voiding coordinator counts as beating.
pub(super) fn lease(phase: &CoordinatorPhase) -> Option<broker::store::Lease> {
    match phase {
        CoordinatorPhase::Open(open) | CoordinatorPhase::Closing { open, .. } => Some(open.lease),
        CoordinatorPhase::Voiding { lease } => Some(*lease),
        _ => None,
    }
}

/// The (beat, fence) that another coordinator would see now.
fn standing(state: &ModelState) -> Option<(u64, u64)> {
    let (lease, beat) = state.store.groups.standing(group())?;
    Some((beat, lease.fence))
}

fn stands(state: &ModelState, c: usize) -> bool {
    let standing = state.store.groups.standing(group());
    let lease = lease(&state.coordinators[c].phase);
    lease.is_some() && lease == standing.map(|(lease, _)| lease)
}

fn owner_beats(state: &ModelState) -> bool {
    (0..2).any(|c| !state.coordinators[c].silent && stands(state, c))
}

/// Returns true if a coordinator watches this beat, or if the beat's owner would learn that its
/// lease is lost.
fn beat_matters(state: &ModelState, c: usize) -> bool {
    match &state.coordinators[c].phase {
        CoordinatorPhase::Open(_) if !stands(state, c) => true,
        CoordinatorPhase::Open(_) | CoordinatorPhase::Closing { .. } => {
            let seen = standing(state);
            let watches = |other: &ModelCoordinator| matches!(&other.phase, CoordinatorPhase::Claiming { watched } if watched.is_some() && *watched == seen);
            stands(state, c) && state.coordinators.iter().any(watches)
        }
        _ => false,
    }
}

impl Model for GroupModel {
    type State = ModelState;
    type Action = Action;

    fn first(&self) -> ModelState {
        ModelState::new(self.size.messages, self.size.faults)
    }

    fn actions(&self, state: &ModelState) -> Vec<Action> {
        // Every remaining coordinator step could also have happened while the last part was in
        // transit.
        if self.rules.dedupe && self.is_goal(state) {
            return Vec::new();
        }
        let mut actions = self.steps(state);
        actions.extend(self.faults(state));
        actions
    }

    fn next(&self, state: &ModelState, action: &Action) -> ModelState {
        let mut next = state.clone();
        match action {
            Action::Fault(fault) => self.fault(&mut next, fault),
            step => self.step(&mut next, step),
        }
        self.tidy(&mut next);
        next
    }

    fn broken(&self, state: &ModelState) -> Option<String> {
        self.broken_promise(state)
    }

    fn is_fault(&self, action: &Action) -> bool {
        matches!(action, Action::Fault(_))
    }

    fn is_goal(&self, state: &ModelState) -> bool {
        state.agents.iter().all(|agent| agent.ledger.winner(TASK).is_some())
    }
}

impl Rules {
    /// All guards are on.
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
