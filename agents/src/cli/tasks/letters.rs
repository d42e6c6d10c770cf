//! The dead letters of a run: read, published again, removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::bus::letter::{
    Class, HEADER_ATTEMPTS, HEADER_CLASS, HEADER_FIRST, HEADER_KEY, HEADER_QUEUE, HEADER_REASON, HEADER_STAGE,
    HEADER_TYPE, HEADER_USER, Stage, revived,
};
use broker::bus::{Bus, Delivery, Outgoing};
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::seal::{HEADER_AGENT, HEADER_ORDER, HEADER_SEAL};
use broker::topology::Topology;
use bytes::Bytes;

use super::change::Change;
use crate::cli::publish::sender::Manifest;
use crate::cli::task_rules::Checked;

/// Nothing came for so long: the queue is read.
const QUIET: Duration = Duration::from_millis(700);
/// Letters looked at in one go.
const MOST: u16 = 10_000;

/// What to do with the letters; no ids means all.
pub enum Order {
    List(Vec<String>),
    Requeue(Vec<String>),
    /// Publish something else in the place of one.
    Change(Change),
    Drop(Vec<String>),
}

/// A dead letter and what became of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Letter {
    pub id: String,
    pub kind: String,
    pub reason: String,
    /// What kind of failure it was, and at what it failed.
    pub class: String,
    pub stage: String,
    /// When it failed first, and how often it has; 0 where nobody has said.
    pub first: String,
    pub attempts: u32,
    pub queue: String,
    pub key: String,
    /// Who published it, as whoever put it here says.
    pub user: String,
    /// Who put it here, as the broker knows.
    pub mover: String,
    pub body: Bytes,
    /// `requeued`, `dropped`, `kept`, or why it was kept.
    pub fate: String,
    /// Whether it is still where it was.
    pub kept: bool,
}

/// Reads all dead letters and does as ordered; answers those that the order speaks of. Letters that are kept are given back
/// when the bus is closed.
///
/// # Errors
/// The broker's.
pub async fn handle(bus: &Arc<dyn Bus>, topology: &Topology, order: &Order) -> anyhow::Result<Vec<Letter>> {
    let mut consumer = bus.consume(&topology.dead(), MOST).await?;
    // All are read before anything is done: a task that dies again at once would otherwise be requeued without end.
    let mut deliveries = Vec::new();
    while deliveries.len() < usize::from(MOST)
        && let Ok(Some(delivery)) = tokio::time::timeout(QUIET, consumer.next()).await
    {
        deliveries.push(delivery);
    }
    let ambiguous = ambiguous(&deliveries);
    let mut letters = Vec::with_capacity(deliveries.len());
    let mut changed = false;
    for delivery in deliveries {
        let mut letter = Letter::read(&delivery);
        match order {
            Order::List(ids) if wanted(ids, &letter.id) => letter.keep("kept"),
            Order::Requeue(_) | Order::Change(Change { edited: None, .. })
                if order.names(&letter.id) && ambiguous.contains(&letter.id) =>
            {
                letter.keep(
                    "kept: letters of this id differ; write the task that you mean to a file: --requeue ID --edit FILE",
                );
            }
            Order::Requeue(ids) if wanted(ids, &letter.id) => match letter.unread(topology, ids) {
                Some(why) => letter.keep(&why),
                None => {
                    let same = Checked {
                        id: letter.id.clone(),
                        body: letter.body.clone(),
                    };
                    requeue(bus, topology, &delivery, &mut letter, same, None).await?;
                }
            },
            Order::Change(change) if change.letter == letter.id && !changed => {
                // Judged before anything is sent.
                let task = change.task(&letter)?;
                requeue(bus, topology, &delivery, &mut letter, task, Some(&change.published)).await?;
                changed = !letter.kept;
            }
            Order::Change(change) if change.letter == letter.id => {
                letter.keep("kept: another letter of this id was changed");
            }
            Order::Drop(ids) if wanted(ids, &letter.id) => drop_letter(&delivery, &mut letter).await,
            _ => continue,
        }
        letters.push(letter);
    }
    Ok(letters)
}

/// Ids under which different messages lie there: anybody who may write there can take another's id.
fn ambiguous(deliveries: &[Delivery]) -> BTreeSet<String> {
    let mut bodies: BTreeMap<String, &Bytes> = BTreeMap::new();
    let differs = deliveries.iter().filter_map(|delivery| {
        let id = id_of(delivery);
        let first = *bodies.entry(id.clone()).or_insert(&delivery.body);
        (*first != delivery.body).then_some(id)
    });
    differs.collect()
}

fn id_of(delivery: &Delivery) -> String {
    let unnamed = || Digest::of(&delivery.body).to_string();
    delivery.message_id.clone().unwrap_or_else(unnamed)
}

impl Order {
    /// Whether it speaks of letters of this id.
    fn names(&self, id: &str) -> bool {
        match self {
            Order::List(ids) | Order::Requeue(ids) | Order::Drop(ids) => wanted(ids, id),
            Order::Change(change) => change.letter == id,
        }
    }
}

fn wanted(ids: &[String], id: &str) -> bool {
    ids.is_empty() || ids.iter().any(|wanted| wanted == id)
}

async fn drop_letter(delivery: &Delivery, letter: &mut Letter) {
    if delivery.ack().await {
        letter.fate = "dropped".into();
    } else {
        letter.keep("kept: the connection was lost");
    }
}

impl Letter {
    fn read(delivery: &Delivery) -> Self {
        let header = |name: &str| delivery.header(name).unwrap_or_default().to_owned();
        let or = |text: String, other: &dyn Fn() -> String| if text.is_empty() { other() } else { text };
        Self {
            id: id_of(delivery),
            kind: or(header(HEADER_TYPE), &|| {
                delivery.kind.map_or_else(String::new, |kind| kind.to_string())
            }),
            reason: or(header(HEADER_REASON), &|| {
                "given up by the broker: rejected, or delivered too often".into()
            }),
            class: header(HEADER_CLASS),
            stage: header(HEADER_STAGE),
            first: header(HEADER_FIRST),
            attempts: header(HEADER_ATTEMPTS).parse().unwrap_or(0),
            queue: header(HEADER_QUEUE),
            key: header(HEADER_KEY),
            user: header(HEADER_USER),
            mover: delivery.user.clone().unwrap_or_default(),
            body: delivery.body.clone(),
            fate: String::new(),
            kept: false,
        }
    }

    fn keep(&mut self, why: &str) {
        self.fate = why.to_owned();
        self.kept = true;
    }

    /// Why somebody must have read it before it is published in our name, if its id was not given.
    fn unread(&self, topology: &Topology, ids: &[String]) -> Option<String> {
        // Whoever does not say who he is may be an agent.
        let by_an_agent = self.mover.is_empty() || topology.is_agent(&self.mover) || topology.is_agent(&self.user);
        let made_up = self.class == Class::Forged.as_str() || by_an_agent;
        (made_up && ids.is_empty())
            .then(|| "kept: no coordinator has vouched for it; read it, then requeue it by its id".into())
    }

    /// Why it cannot be published again under this id.
    fn cannot_live(&self, id: &str) -> Option<String> {
        // A letter without a type came from someone else's publisher, who only publishes tasks.
        if !self.kind.is_empty() && self.kind != Kind::Task.as_str() {
            return Some(format!("only tasks can be requeued, this is {}", self.kind));
        }
        // The ledgers have its group as dead: under its id nobody would play it.
        (self.stage == Stage::Play.as_str() && self.id == id).then(|| {
            "it was accepted, and killed what worked on it or came to nothing: its id is done in this run. Give it another with --as NEW-ID".into()
        })
    }
}

/// Publishes this as a task in the letter's place, and takes the letter out when that is confirmed. What was published under
/// another id is noted before the letter goes, since `dyad audit` looks for it under that.
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
    // Its place in the order of admission was that of a task in custody.
    let mut headers = revived(&delivery.headers);
    headers.retain(|(name, _)| ![HEADER_SEAL, HEADER_ORDER, HEADER_AGENT].contains(&name.as_str()));
    bus.publish(Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: task.id.clone(),
        correlation_id: None,
        headers,
        body: task.body,
        durable: true,
    })
    .await?;
    let mut fate = "requeued".to_owned();
    if task.id != letter.id {
        fate = format!("requeued as {}", task.id);
        published.map_or(Ok(()), |path| Manifest::open(path)?.note(&task.id))?;
    }
    letter.fate = match delivery.ack().await {
        true => fate,
        false => format!("{fate}, and still listed: the connection was lost"),
    };
    Ok(())
}
