//! `dyad tasks dead`: what could not be handled, with the reason; requeued or dropped by a person.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Delivery, HEADER_QUEUE, HEADER_REASON, HEADER_TYPE, HEADER_USER, Outgoing};
use broker::ids::Digest;
use broker::protocol::Kind;
use broker::topology::Topology;
use clap::{Args, Subcommand};

use super::select::{self, RunArg};
use crate::logs::one_line;

/// Nothing came for so long: the queue is read.
const QUIET: Duration = Duration::from_millis(700);
/// Letters looked at in one go.
const MOST: u16 = 10_000;

/// Look after a run's tasks
#[derive(Debug, Args)]
pub struct TasksArgs {
    #[command(subcommand)]
    command: TasksCommand,
}

#[derive(Debug, Subcommand)]
enum TasksCommand {
    /// List, requeue or drop what could not be handled
    Dead(DeadArgs),
}

#[derive(Debug, Args)]
pub struct DeadArgs {
    /// Publish them again as tasks: those with these ids, or all
    #[arg(long, num_args = 0.., value_name = "ID", conflicts_with = "drop")]
    pub requeue: Option<Vec<String>>,
    /// Remove them: those with these ids, or all
    #[arg(long, num_args = 0.., value_name = "ID")]
    pub drop: Option<Vec<String>>,
    /// Print the bodies too
    #[arg(long)]
    pub bodies: bool,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let TasksCommand::Dead(args) = &args.command;
    let folder = args.run.folder()?;
    let url = select::broker_url(args.broker.as_deref(), Some(&folder))?;
    let topology = Topology::new(folder.run().clone());
    let order = match (&args.requeue, &args.drop) {
        (Some(ids), _) => Order::Requeue(ids.clone()),
        (_, Some(ids)) => Order::Drop(ids.clone()),
        _ => Order::List,
    };
    select::block_on(async {
        let bus = select::connect(&url, "tasks dead").await?;
        let letters = handle(&bus, &topology, &order).await;
        // What was not taken goes back to its place.
        bus.close().await;
        print!("{}", render(&letters?, args.bodies));
        Ok(())
    })
}

/// What to do with the letters; no ids means all.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    List,
    Requeue(Vec<String>),
    Drop(Vec<String>),
}

/// A dead letter and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    pub id: String,
    pub kind: String,
    pub reason: String,
    pub queue: String,
    /// Who published it, as whoever put it here says.
    pub user: String,
    /// Who put it here, as the broker knows.
    pub mover: String,
    pub body: bytes::Bytes,
    /// `requeued`, `dropped`, `kept`, or why it was kept.
    pub fate: String,
}

/// Reads all dead letters and does as ordered. Letters that are kept are given back when the bus is closed.
pub async fn handle(bus: &Arc<dyn Bus>, topology: &Topology, order: &Order) -> anyhow::Result<Vec<Letter>> {
    let mut consumer = bus.consume(&topology.dead(), MOST).await?;
    // All are read before anything is done: a task that dies again at once would otherwise be requeued without end.
    let mut deliveries = Vec::new();
    while deliveries.len() < usize::from(MOST)
        && let Ok(Some(delivery)) = tokio::time::timeout(QUIET, consumer.next()).await
    {
        deliveries.push(delivery);
    }
    let mut letters = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let mut letter = read(&delivery);
        letter.fate = match order {
            Order::Requeue(ids) if wanted(ids, &letter.id) => requeue(bus, topology, &delivery, &letter).await?,
            Order::Drop(ids) if wanted(ids, &letter.id) => {
                let dropped = delivery.ack().await;
                if dropped {
                    "dropped"
                } else {
                    "kept: the connection was lost"
                }
                .into()
            }
            _ => "kept".into(),
        };
        letters.push(letter);
    }
    Ok(letters)
}

fn wanted(ids: &[String], id: &str) -> bool {
    ids.is_empty() || ids.iter().any(|wanted| wanted == id)
}

fn read(delivery: &Delivery) -> Letter {
    let header = |name: &str| delivery.header(name).unwrap_or_default().to_owned();
    let kind = match header(HEADER_TYPE) {
        empty if empty.is_empty() => delivery.kind.map_or_else(String::new, |kind| kind.to_string()),
        kind => kind,
    };
    let reason = match header(HEADER_REASON) {
        empty if empty.is_empty() => "given up by the broker: rejected, or delivered too often".into(),
        reason => reason,
    };
    Letter {
        id: delivery
            .message_id
            .clone()
            .unwrap_or_else(|| Digest::of(&delivery.body).to_string()),
        kind,
        reason,
        queue: header(HEADER_QUEUE),
        user: header(HEADER_USER),
        mover: delivery.user.clone().unwrap_or_default(),
        body: delivery.body.clone(),
        fate: String::new(),
    }
}

/// Publishes the letter as a task again, and takes it out when that is confirmed.
async fn requeue(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    delivery: &Delivery,
    letter: &Letter,
) -> anyhow::Result<String> {
    // A letter without a type came from someone else's publisher, who only publishes tasks.
    if !letter.kind.is_empty() && letter.kind != Kind::Task.as_str() {
        return Ok(format!("kept: only tasks can be requeued, this is {}", letter.kind));
    }
    let ours = [HEADER_REASON, HEADER_QUEUE, HEADER_TYPE, HEADER_USER];
    let mut headers = delivery.headers.clone();
    headers.retain(|(name, _)| !ours.contains(&name.as_str()));
    bus.publish(Outgoing {
        to: topology.to(&topology.tasks()),
        kind: Kind::Task,
        message_id: letter.id.clone(),
        correlation_id: delivery.correlation_id.clone(),
        headers,
        body: delivery.body.clone(),
        durable: true,
    })
    .await?;
    let taken = delivery.ack().await;
    Ok(if taken {
        "requeued"
    } else {
        "requeued, and still listed: the connection was lost"
    }
    .into())
}

/// A block for each letter, and the sum.
#[must_use]
pub fn render(letters: &[Letter], bodies: bool) -> String {
    use std::fmt::Write;
    if letters.is_empty() {
        return "no dead letters\n".into();
    }
    let mut text = String::new();
    for letter in letters {
        let kind = if letter.kind.is_empty() {
            "no type"
        } else {
            &letter.kind
        };
        let _ = writeln!(
            text,
            "{}  ({}, {} bytes)  {}",
            one_line(&letter.id),
            one_line(kind),
            letter.body.len(),
            letter.fate
        );
        let _ = writeln!(text, "    {}", one_line(&letter.reason));
        if !letter.queue.is_empty() {
            let _ = writeln!(text, "    from {}", one_line(&letter.queue));
        }
        for (what, who) in [("published by", &letter.user), ("put here by", &letter.mover)] {
            if !who.is_empty() {
                let _ = writeln!(text, "    {what} {}", one_line(who));
            }
        }
        if bodies {
            let _ = writeln!(
                text,
                "    {}",
                one_line(&String::from_utf8_lossy(&letter.body).escape_debug().to_string())
            );
        }
    }
    let _ = writeln!(text, "{} dead letters", letters.len());
    text
}

#[cfg(test)]
mod tests {
    use broker::bus::dead_letter;
    use broker::bus::memory::MemoryBus;
    use broker::ids::RunId;

    use super::*;

    async fn bury(bus: &Arc<dyn Bus>, topology: &Topology, id: &str, kind: Kind, body: &'static [u8]) {
        let message = Outgoing {
            to: topology.to(&topology.tasks()),
            kind,
            message_id: id.into(),
            correlation_id: None,
            headers: vec![("who".into(), "me".into())],
            body: bytes::Bytes::from_static(body),
            durable: true,
        };
        bus.publish(message).await.unwrap();
        let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
        let delivery = tasks.next().await.unwrap();
        dead_letter(bus.as_ref(), topology, &delivery, "the body is not a task")
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn letters_are_listed_requeued_by_id_and_dropped() {
        let first = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let bus: Arc<dyn Bus> = first.clone();
        bus.declare(&topology, &[]).await.unwrap();
        bury(&bus, &topology, "t1", Kind::Task, b"{").await;
        bury(&bus, &topology, "t2", Kind::Task, b"}").await;
        bury(&bus, &topology, "b1", Kind::Bundle, b"\x01").await;
        let visit = |order: Order| {
            let (peer, topology) = (first.peer(), topology.clone());
            async move {
                let peer: Arc<dyn Bus> = peer;
                let letters = handle(&peer, &topology, &order).await.unwrap();
                peer.close().await;
                letters.into_iter().map(|l| (l.id, l.fate)).collect::<Vec<_>>()
            }
        };
        let pair = |id: &str, fate: &str| (id.to_owned(), fate.to_owned());
        let all = visit(Order::List).await;
        assert_eq!(all, [pair("t1", "kept"), pair("t2", "kept"), pair("b1", "kept")]);
        let some = visit(Order::Requeue(vec!["t2".into()])).await;
        assert_eq!(some, [pair("t1", "kept"), pair("t2", "requeued"), pair("b1", "kept")]);
        let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
        let back = tasks.next().await.unwrap();
        assert_eq!(
            (back.body.as_ref(), back.message_id.as_deref()),
            (b"}".as_slice(), Some("t2"))
        );
        assert_eq!(back.header(HEADER_REASON), None);
        assert_eq!(back.header("who"), Some("me"));
        back.ack().await;
        let refused = visit(Order::Requeue(vec!["b1".into()])).await;
        assert!(refused[1].1.starts_with("kept: only tasks"), "{refused:?}");
        visit(Order::Drop(vec![])).await;
        assert!(visit(Order::List).await.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_dies_again_is_requeued_once() {
        let first = MemoryBus::new();
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let bus: Arc<dyn Bus> = first.clone();
        bus.declare(&topology, &[]).await.unwrap();
        bury(&bus, &topology, "t1", Kind::Task, b"{").await;
        let (dying, names) = (bus.clone(), topology.clone());
        let killer = tokio::spawn(async move {
            let mut tasks = dying.consume(&names.tasks(), 8).await.unwrap();
            while let Some(delivery) = tasks.next().await {
                dead_letter(dying.as_ref(), &names, &delivery, "again").await.unwrap();
            }
        });
        let peer: Arc<dyn Bus> = first.peer();
        let letters = handle(&peer, &topology, &Order::Requeue(vec![])).await.unwrap();
        killer.abort();
        assert_eq!(
            letters.iter().map(|l| l.fate.as_str()).collect::<Vec<_>>(),
            ["requeued"]
        );
    }

    #[test]
    fn a_letter_is_shown_with_its_reason() {
        let letter = Letter {
            id: "t1".into(),
            kind: "task.v1".into(),
            reason: "the body is not UTF-8".into(),
            queue: "dyad.r-1.tasks.v1".into(),
            user: "r-1.publisher".into(),
            mover: "r-1.coordinator".into(),
            body: bytes::Bytes::from_static(b"{\n"),
            fate: "kept".into(),
        };
        let expected = "t1  (task.v1, 2 bytes)  kept\n    the body is not UTF-8\n    from dyad.r-1.tasks.v1\n    \
                        published by r-1.publisher\n    put here by r-1.coordinator\n    {\\n\n1 dead letters\n";
        assert_eq!(render(&[letter], true), expected);
        assert_eq!(render(&[], true), "no dead letters\n");
    }

    #[test]
    fn a_letter_is_no_command_to_the_terminal_and_no_line_of_ours() {
        let hostile = "t1\u{1b}[2J\u{9b}6n\n0 dead letters\u{202e}".to_owned();
        let letter = Letter {
            id: hostile.clone(),
            kind: hostile.clone(),
            reason: hostile.clone(),
            queue: hostile.clone(),
            user: hostile.clone(),
            mover: hostile.clone(),
            body: hostile.into(),
            fate: "kept".into(),
        };
        let shown = render(&[letter], true);
        assert!(
            !shown.chars().any(|c| c == '\u{202e}' || (c.is_control() && c != '\n')),
            "{shown:?}"
        );
        assert_eq!(
            shown.lines().filter(|line| line.ends_with("dead letters")).count(),
            1,
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 7);
    }
}
