//! One queue in memory: its ready messages, its unacknowledged ones, and its consumers ("takers").

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::protocol::Kind;
use crate::topology::{Address, DELIVERY_LIMIT, Queue, QueueKind};

/// A message in a queue. Copies share the body.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) kind: Option<Kind>,
    pub(super) message_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) routing_key: String,
    pub(super) body: Bytes,
}

#[derive(Debug)]
struct Entry {
    /// Place in the queue; kept through a requeue.
    place: u64,
    /// The number of times it was delivered and returned.
    returns: i64,
    message: Stored,
}

#[derive(Debug)]
struct Taker {
    id: u64,
    /// The bus handle of this taker.
    handle: u64,
    prefetch: usize,
    out: usize,
    wake: Arc<Notify>,
}

/// The error of a full queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IsFull;

/// The result of a taker's look into the queue.
#[derive(Debug)]
pub(super) enum Taken {
    Message {
        tag: u64,
        message: Stored,
        redelivered: bool,
    },
    /// No message for this taker now: wait to be woken.
    Nothing,
    /// The taker was removed or the queue has ended.
    Gone,
}

/// The result of a reject.
#[derive(Debug)]
pub(super) enum Rejected {
    Unknown,
    Requeued,
    /// The queue gave the message up for this reason: it belongs to the dead letters.
    Dead(Stored, &'static str),
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Entry>,
    ready_bytes: u64,
    unacked: HashMap<u64, (u64, Entry)>,
    takers: Vec<Taker>,
    next_place: u64,
    next_tag: u64,
    gone: bool,
}

#[derive(Debug)]
pub(super) struct QueueCell {
    pub(super) name: Arc<str>,
    pub(super) kind: QueueKind,
    /// The handle that declared it; matters for exclusive queues.
    pub(super) owner: u64,
    pub(super) dead_letters: Option<Address>,
    max_bytes: u64,
    state: Mutex<State>,
}

impl QueueCell {
    pub(super) fn new(queue: &Queue, owner: u64) -> Self {
        Self {
            name: Arc::from(queue.name.as_str()),
            kind: queue.kind,
            owner,
            dead_letters: queue.dead_letters(),
            max_bytes: queue.max_bytes,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code inside the sections can panic half-way through a change that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.kind == QueueKind::Exclusive
    }

    fn single_active(&self) -> bool {
        matches!(
            self.kind,
            QueueKind::Durable {
                single_active_consumer: true,
                ..
            }
        )
    }

    /// Appends a message. `force` ignores the limit, because dead-lettering must not lose messages.
    pub(super) fn push(&self, message: Stored, force: bool) -> Result<(), IsFull> {
        let size = message.body.len() as u64;
        let mut state = self.lock();
        if state.ready_bytes > 0 && state.ready_bytes + size > self.max_bytes && !force {
            if !self.is_exclusive() {
                return Err(IsFull);
            }
            state.drop_head(self.max_bytes.saturating_sub(size));
        }
        let place = state.next_place;
        state.next_place += 1;
        state.ready_bytes += size;
        state.ready.push_back(Entry {
            place,
            returns: 0,
            message,
        });
        state.wake(self.single_active());
        Ok(())
    }

    pub(super) fn add_taker(&self, id: u64, handle: u64, prefetch: u16) -> Arc<Notify> {
        let wake = Arc::new(Notify::new());
        self.lock().takers.push(Taker {
            id,
            handle,
            prefetch: usize::from(prefetch.max(1)),
            out: 0,
            wake: wake.clone(),
        });
        wake
    }

    /// Removes takers and returns their messages to their old places. Returns the messages beyond
    /// the delivery limit.
    pub(super) fn remove_takers(&self, leaving: impl Fn(u64, u64) -> bool) -> Vec<Stored> {
        let mut state = self.lock();
        let ids: Vec<u64> = state
            .takers
            .iter()
            .filter(|taker| leaving(taker.id, taker.handle))
            .map(|taker| taker.id)
            .collect();
        if ids.is_empty() {
            return Vec::new();
        }
        state.takers.retain(|taker| {
            let leaves = ids.contains(&taker.id);
            if leaves {
                taker.wake.notify_one();
            }
            !leaves
        });
        let tags: Vec<u64> = state
            .unacked
            .iter()
            .filter(|(_, (taker, _))| ids.contains(taker))
            .map(|(tag, _)| *tag)
            .collect();
        let mut dead = Vec::new();
        for tag in tags {
            if let Some((_, entry)) = state.unacked.remove(&tag) {
                dead.extend(state.put_back(entry));
            }
        }
        state.wake(self.single_active());
        dead
    }

    pub(super) fn take(&self, id: u64) -> Taken {
        let single = self.single_active();
        let mut state = self.lock();
        let Some(at) = state.takers.iter().position(|taker| taker.id == id) else {
            return Taken::Gone;
        };
        if state.gone {
            return Taken::Gone;
        }
        let taker = &state.takers[at];
        if (single && at != 0) || taker.out >= taker.prefetch {
            return Taken::Nothing;
        }
        let Some(entry) = state.ready.pop_front() else {
            return Taken::Nothing;
        };
        state.takers[at].out += 1;
        state.ready_bytes -= entry.message.body.len() as u64;
        let tag = state.next_tag;
        state.next_tag += 1;
        let (message, redelivered) = (entry.message.clone(), entry.returns > 0);
        state.unacked.insert(tag, (id, entry));
        Taken::Message {
            tag,
            message,
            redelivered,
        }
    }

    /// Returns false if the delivery was answered or returned before.
    pub(super) fn ack(&self, tag: u64) -> bool {
        let mut state = self.lock();
        let Some((taker, _)) = state.unacked.remove(&tag) else {
            return false;
        };
        state.returned(taker);
        state.wake(self.single_active());
        true
    }

    pub(super) fn reject(&self, tag: u64, requeue: bool) -> Rejected {
        let mut state = self.lock();
        let Some((taker, entry)) = state.unacked.remove(&tag) else {
            return Rejected::Unknown;
        };
        state.returned(taker);
        let outcome = if requeue || self.dead_letters.is_none() {
            match state.put_back(entry) {
                Some(message) => Rejected::Dead(message, "delivery_limit"),
                None => Rejected::Requeued,
            }
        } else {
            Rejected::Dead(entry.message, "rejected")
        };
        state.wake(self.single_active());
        outcome
    }

    pub(super) fn ready(&self) -> u64 {
        self.lock().ready.len() as u64
    }

    /// Ends the queue: its takers receive [`Taken::Gone`].
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.gone = true;
        for taker in &state.takers {
            taker.wake.notify_one();
        }
    }
}

impl State {
    fn drop_head(&mut self, keep: u64) {
        while self.ready_bytes > keep {
            let Some(oldest) = self.ready.pop_front() else {
                return;
            };
            self.ready_bytes -= oldest.message.body.len() as u64;
        }
    }

    fn returned(&mut self, taker: u64) {
        if let Some(taker) = self.takers.iter_mut().find(|t| t.id == taker) {
            taker.out -= 1;
        }
    }

    /// Puts a message back into its old place. Returns the message instead if it exceeds the
    /// delivery limit.
    fn put_back(&mut self, mut entry: Entry) -> Option<Stored> {
        entry.returns += 1;
        if entry.returns > DELIVERY_LIMIT {
            return Some(entry.message);
        }
        self.ready_bytes += entry.message.body.len() as u64;
        let at = self.ready.partition_point(|other| other.place < entry.place);
        self.ready.insert(at, entry);
        None
    }

    /// Wakes every taker that could take a message now. A woken taker that finds nothing waits
    /// again, so no wake-up is lost when a taker's future is dropped.
    fn wake(&self, single: bool) {
        if self.ready.is_empty() {
            return;
        }
        let candidates = if single { 1 } else { self.takers.len() };
        for taker in self.takers.iter().take(candidates) {
            if taker.out < taker.prefetch {
                taker.wake.notify_one();
            }
        }
    }
}
