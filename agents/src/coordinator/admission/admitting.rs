//! One group on its way through the agents' ledgers and the store.

use broker::AgentName;
use broker::bus::Delivery;
use broker::ids::GroupId;
use broker::protocol::reserve::Reserve;
use tokio::time::Instant;

use crate::coordinator::env::Env;
use crate::coordinator::play::Open;
use crate::turn::tasks::Candidate;

/// A group that is being reserved or claimed.
pub(crate) struct Admitting {
    candidate: Candidate,
    order: u64,
    /// More deliveries of the same task that came before any ledger had it. If this process dies
    /// now, one of them must come again.
    copies: Vec<Delivery>,
    /// Index into the trainers: the agent that is asked now.
    at: usize,
    /// Some ledger holds the group open, so that there is work left.
    is_open: bool,
    ask_at: Instant,
    /// (beat, fence) of another coordinator's claim when this coordinator looked at it.
    watched: Option<(u64, u64)>,
}

impl Admitting {
    pub(super) fn new(candidate: Candidate, order: u64) -> Self {
        Self {
            candidate,
            order,
            copies: Vec::new(),
            at: 0,
            is_open: false,
            ask_at: Instant::now(),
            watched: None,
        }
    }

    /// A group that was open, with its rows reserved already.
    #[must_use]
    pub(crate) fn reserved(open: Open) -> Self {
        let order = open.order;
        let candidate = Candidate {
            task: open.task,
            id: open.task_id,
            order: Some(order),
            body: open.body,
            delivery: None,
            held: true,
        };
        Self {
            is_open: true,
            ..Self::new(candidate, order)
        }
    }

    #[must_use]
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The task and its order of admission.
    #[must_use]
    pub(crate) fn into_task(self) -> (Candidate, u64) {
        (self.candidate, self.order)
    }

    /// Takes another delivery of the task. Returns it if its queue need not keep it.
    pub(super) fn add_copy(&mut self, delivery: Option<Delivery>) -> Option<Delivery> {
        if self.candidate.delivery.is_none() {
            return delivery;
        }
        self.copies.extend(delivery);
        None
    }

    /// A ledger has the task, or the task is dead. Returns the deliveries to ack.
    pub(super) fn leave_the_queue(&mut self) -> Vec<Delivery> {
        let first = self.candidate.delivery.take();
        first.into_iter().chain(self.copies.drain(..)).collect()
    }

    pub(super) fn next_agent<'a>(&self, trainers: &'a [AgentName]) -> Option<&'a AgentName> {
        trainers.get(self.at)
    }

    /// Goes on to the next agent. Returns false after the last of `agents`.
    pub(super) fn advance(&mut self, agents: usize) -> bool {
        self.at += 1;
        self.at < agents
    }

    pub(super) fn grant(&mut self) {
        self.is_open = true;
    }

    pub(super) fn is_open_anywhere(&self) -> bool {
        self.is_open
    }

    pub(super) fn ask_at(&mut self, at: Instant) {
        self.ask_at = at;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.ask_at <= now
    }

    pub(super) fn watched(&self) -> Option<(u64, u64)> {
        self.watched
    }

    /// Notes another coordinator's claim. Returns true if it is to be watched on: its beat has not
    /// moved yet, or has gone back. A beat that has gone back says that the store has been set
    /// back, and says nothing about the owner.
    pub(super) fn watch(&mut self, beat: u64, fence: u64) -> bool {
        let stands = self.watched.is_none_or(|(seen, owned)| (fence, beat) < (owned, seen));
        if stands {
            self.watched = Some((beat, fence));
        }
        stands
    }

    pub(super) fn request(&self, group: GroupId, env: &Env) -> Reserve {
        let candidate = &self.candidate;
        let seal = env.seal.as_ref();
        Reserve {
            group,
            task: candidate.id.clone(),
            order: self.order,
            body: candidate.body.to_vec(),
            seal: seal.map(|key| key.seal(&env.run, &candidate.id, self.order, &candidate.body)),
        }
    }
}
