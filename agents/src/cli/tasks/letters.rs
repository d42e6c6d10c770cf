//! The dead letters of a run: read, requeued or dropped.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::bus::letter::{
    Class, HEADER_ATTEMPTS, HEADER_CLASS, HEADER_FIRST, HEADER_KEY, HEADER_QUEUE, HEADER_REASON, HEADER_STAGE,
    HEADER_TYPE, HEADER_USER, Stage, revived,
};
use broker::bus::{Bus, Consumer, Delivery};
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::seal::{HEADER_AGENT, HEADER_ORDER, HEADER_SEAL};
use broker::topology::Topology;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::reading::{MOST, SharedIds, each, each_of};
use super::saved;
use crate::base::outgoing::{self, Addressed};
use crate::cli::publish::sender::PublishedTasks;
use crate::cli::task_rules::Checked;
use crate::dashboard::LetterFacts;

/// RabbitMQ loses acknowledgements above this number that a quorum queue has not applied when their
/// channel closes: those letters come back.
const SETTLED_AT_ONCE: usize = 32;
/// The time for which the channel stays open after more of them, with some for each.
const SETTLING: Duration = Duration::from_millis(300);
const SETTLING_EACH: Duration = Duration::from_millis(2);
/// The number of looks for letters that came back.
const LOOKS: u32 = 5;

/// The operation on the letters; no ids means all letters.
pub enum Order {
    List(Vec<String>),
    Requeue(Vec<String>),
    /// Publishes a changed task instead of one letter.
    Change(Change),
    Drop(Vec<String>),
}

/// A dead letter and the result of the operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    #[serde(flatten)]
    pub facts: LetterFacts,
    #[serde(serialize_with = "saved::write_body", deserialize_with = "saved::read_body")]
    pub body: Bytes,
    /// The result: `requeued`, `dropped`, `kept`, or why it was kept.
    #[serde(skip)]
    pub fate: String,
    /// True if the letter is still in its queue.
    #[serde(skip)]
    pub kept: bool,
}

/// Reads all dead letters, applies the order, and returns the letters that it names. Kept letters
/// return to the queue when the bus is closed.
///
/// # Errors
/// Returns the broker's errors.
pub async fn handle(bus: &Arc<dyn Bus>, topology: &Topology, order: &Order) -> anyhow::Result<Vec<Letter>> {
    // All letters are read before any is changed: a task that dies again at once would otherwise be
    // requeued without end. Only those that the order names are kept.
    let (mut deliveries, mut shared) = (Vec::new(), SharedIds::default());
    let consumer = each(bus, topology, |delivery| {
        let letter = Letter::read(&delivery);
        shared.note(&letter);
        if order.names(&letter) {
            deliveries.push(delivery);
        }
    })
    .await?;
    let mut letters = Vec::with_capacity(deliveries.len());
    let applied = apply(bus, topology, order, &deliveries, &shared, &mut letters).await;
    settle(bus, topology, consumer, &mut letters).await?;
    applied.map(|()| letters)
}

/// Applies the order to letters, and adds them with their results to `letters`.
async fn apply(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    order: &Order,
    deliveries: &[Delivery],
    shared: &SharedIds,
    letters: &mut Vec<Letter>,
) -> anyhow::Result<()> {
    let mut changed = false;
    for delivery in deliveries {
        let mut letter = Letter::read(delivery);
        match order {
            Order::List(ids) if letter.is_wanted(ids) => letter.keep("kept"),
            Order::Requeue(_) | Order::Change(Change { edited: None, .. })
                if order.names(&letter) && shared.is_ambiguous(&letter) =>
            {
                letter.keep(
                    "kept: letters with this id differ; write the right task to a file: --requeue ID --edit FILE",
                );
            }
            Order::Requeue(ids) if letter.is_wanted(ids) => match letter.unread(topology, ids) {
                Some(why) => letter.keep(&why),
                None => {
                    let same = Checked {
                        id: letter.facts.id.clone(),
                        body: letter.body.clone(),
                    };
                    requeue(bus, topology, delivery, &mut letter, same, None).await?;
                }
            },
            Order::Change(change) if letter.is_named(&change.letter) && !changed => {
                // Checked before anything is sent.
                let task = change.task(&letter)?;
                requeue(bus, topology, delivery, &mut letter, task, Some(&change.published)).await?;
                changed = !letter.kept;
            }
            Order::Change(change) if letter.is_named(&change.letter) => {
                letter.keep("kept: another letter with this id was changed");
            }
            Order::Drop(ids) if letter.is_wanted(ids) => drop_letter(delivery, &mut letter).await,
            _ => continue,
        }
        letters.push(letter);
    }
    Ok(())
}

/// Tells a letter that came back from one of the same task that failed once more.
type Mark = (String, Digest, String, u32);

/// Ends the reading, and looks for letters that are done and came back. Notes those that the broker
/// still lists at the end.
async fn settle(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    consumer: Box<dyn Consumer>,
    letters: &mut [Letter],
) -> anyhow::Result<()> {
    let done = letters.iter().filter(|letter| !letter.kept);
    let (mut acked, marks): (usize, BTreeSet<Mark>) = (done.clone().count(), done.map(Letter::mark).collect());
    if acked <= SETTLED_AT_ONCE {
        return Ok(());
    }
    let (mut consumer, mut listed) = (consumer, BTreeSet::new());
    for _ in 0..LOOKS {
        tokio::time::sleep(SETTLING + SETTLING_EACH * u32::try_from(acked)?).await;
        drop(consumer);
        let mut back = Vec::new();
        // The broker's count is some seconds old, so it says nothing about the letters now.
        consumer = each_of(bus, topology, None, |delivery| {
            let mark = Letter::read(&delivery).mark();
            if marks.contains(&mark) {
                back.push((delivery, mark));
            }
        })
        .await?;
        acked = back.len();
        listed.clear();
        for (delivery, mark) in back {
            delivery.ack().await;
            listed.insert(mark);
        }
        if acked == 0 {
            break;
        }
    }
    let is_listed = |letter: &&mut Letter| !letter.kept && listed.contains(&letter.mark());
    for letter in letters.iter_mut().filter(is_listed) {
        letter.fate.push_str(", and perhaps still listed: look again");
    }
    Ok(())
}

/// Reads all dead letters and shows each to `visit`, which keeps what it needs. All return to the
/// queue when the bus is closed. Returns how many letters there are.
///
/// # Errors
/// Returns the broker's errors.
pub async fn look(bus: &Arc<dyn Bus>, topology: &Topology, mut visit: impl FnMut(&Letter)) -> anyhow::Result<u64> {
    let waiting = bus.depth(&topology.dead()).await.unwrap_or(0);
    let mut seen = 0;
    each(bus, topology, |delivery| {
        seen += 1;
        visit(&Letter::read(&delivery));
    })
    .await?;
    // The broker's count is some seconds old: it decides only where not all letters were read.
    Ok(if seen < u64::from(MOST) {
        seen
    } else {
        waiting.max(seen)
    })
}

fn id_of(delivery: &Delivery) -> String {
    let unnamed = || Digest::of(&delivery.body).to_string();
    delivery.message_id.clone().unwrap_or_else(unnamed)
}

/// Returns the id in the body of a task.
fn own_id(body: &Bytes) -> Option<String> {
    let task: serde_json::Value = serde_json::from_slice(body).ok()?;
    broker::protocol::task::id_of(task.get("id")?)
}

impl Order {
    /// Returns true if the order includes the letter.
    fn names(&self, letter: &Letter) -> bool {
        match self {
            Order::List(ids) | Order::Requeue(ids) | Order::Drop(ids) => letter.is_wanted(ids),
            Order::Change(change) => letter.is_named(&change.letter),
        }
    }
}

async fn drop_letter(delivery: &Delivery, letter: &mut Letter) {
    if delivery.ack().await {
        letter.fate = "dropped".into();
    } else {
        letter.keep("kept: the connection was lost");
    }
}

impl Letter {
    pub(super) fn read(delivery: &Delivery) -> Self {
        let header = |name: &str| delivery.header(name).unwrap_or_default().to_owned();
        let or = |text: String, other: &dyn Fn() -> String| if text.is_empty() { other() } else { text };
        let id = id_of(delivery);
        let facts = LetterFacts {
            own: own_id(&delivery.body).filter(|own| *own != id),
            id,
            kind: or(header(HEADER_TYPE), &|| {
                delivery.kind.map_or_else(String::new, |kind| kind.to_string())
            }),
            reason: or(header(HEADER_REASON), &|| {
                "dead-lettered by the broker: rejected, or delivered too often".into()
            }),
            class: header(HEADER_CLASS),
            stage: header(HEADER_STAGE),
            first: header(HEADER_FIRST),
            attempts: header(HEADER_ATTEMPTS).parse().unwrap_or(0),
            queue: header(HEADER_QUEUE),
            key: header(HEADER_KEY),
            user: header(HEADER_USER),
            mover: delivery.user.clone().unwrap_or_default(),
        };
        Self {
            facts,
            body: delivery.body.clone(),
            fate: String::new(),
            kept: false,
        }
    }

    fn mark(&self) -> Mark {
        (
            self.facts.id.clone(),
            Digest::of(&self.body),
            self.facts.first.clone(),
            self.facts.attempts,
        )
    }

    /// The names of the letter: its id, and the task's own.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.facts.id).chain(&self.facts.own)
    }

    /// Returns true if this is the id of the letter or of its task.
    pub(super) fn is_named(&self, id: &str) -> bool {
        self.names().any(|name| name == id)
    }

    pub(super) fn is_wanted(&self, ids: &[String]) -> bool {
        ids.is_empty() || ids.iter().any(|id| self.is_named(id))
    }

    fn keep(&mut self, why: &str) {
        self.fate = why.to_owned();
        self.kept = true;
    }

    /// Returns why a person must read the letter and name its id before it is published with our
    /// rights.
    fn unread(&self, topology: &Topology, ids: &[String]) -> Option<String> {
        // A letter without a user may come from an agent.
        let by_an_agent =
            self.facts.mover.is_empty() || topology.is_agent(&self.facts.mover) || topology.is_agent(&self.facts.user);
        let made_up = self.facts.class == Class::Forged.as_str() || by_an_agent;
        (made_up && ids.is_empty())
            .then(|| "kept: no coordinator has verified it; read it, then requeue it by its id".into())
    }

    /// Returns why the letter cannot be published again under this id.
    fn cannot_live(&self, id: &str) -> Option<String> {
        // A letter without a type came from a foreign publisher, which publishes only tasks.
        if !self.facts.kind.is_empty() && self.facts.kind != Kind::Task.as_str() {
            return Some(format!("only tasks can be requeued, this is {}", self.facts.kind));
        }
        // The ledgers count its group as dead: a coordinator ignores tasks with its id.
        (self.facts.stage == Stage::Play.as_str() && self.facts.id == id).then(|| {
            "it was accepted and then failed, so its id is done in this run: give it a new id with --as NEW-ID".into()
        })
    }
}

/// Publishes the task, and removes the letter after the confirm. A new id is noted first, because
/// `dyad audit` looks for the task under that id.
async fn requeue(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    delivery: &Delivery,
    letter: &mut Letter,
    task: Checked,
    published: Option<&Path>,
) -> anyhow::Result<()> {
    if let Some(why) = letter.cannot_live(&task.id) {
        letter.keep(&format!("kept: {why}"));
        return Ok(());
    }
    // Its order of admission belonged to a task in custody.
    let mut headers = revived(&delivery.headers);
    headers.retain(|(name, _)| ![HEADER_SEAL, HEADER_ORDER, HEADER_AGENT].contains(&name.as_str()));
    let message = outgoing::durable(topology.to(&topology.tasks()), Kind::Task, task.body);
    bus.publish(message.with_id(task.id.clone()).with_headers(headers))
        .await?;
    let mut fate = "requeued".to_owned();
    if task.id != letter.facts.id {
        fate = format!("requeued as {}", task.id);
        published.map_or(Ok(()), |path| PublishedTasks::open(path)?.note(&task.id))?;
    }
    letter.fate = match delivery.ack().await {
        true => fate,
        false => format!("{fate}, and still listed: the connection was lost"),
    };
    Ok(())
}
