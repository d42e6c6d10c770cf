//! The coordinator's inputs from the bus: tasks, answers to reservations, results and heartbeats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::bus::letter::{Class, Refusal, Stage, dead_letter};
use broker::bus::{Delivery, verified};
use broker::codec;
use broker::ids::{Digest, GroupId};
use broker::protocol::Kind;
use broker::protocol::reserve::ReserveAnswerFrame;
use broker::protocol::task::{MAX_TASK_ID, Task, TaskError, id_of};
use broker::protocol::turn::ResultFrame;
use broker::seal::{HEADER_ORDER, HEADER_SEAL};
use broker::topology::Queue;

use crate::base::log_scope;
use crate::base::retry;
use crate::coordinator::env::Env;
use crate::coordinator::input::{Input, Mailbox};
use crate::run_folder::crash_marks::{Isolation, OUT, Strikes};
use crate::turn::task_check;
use crate::turn::tasks::Candidate;

/// The most tasks that are taken from the queue and not yet in an agent's custody.
const TASK_PREFETCH: u16 = 64;
const RESULT_PREFETCH: u16 = 256;
const CONTROL_PREFETCH: u16 = 256;

/// Begins to listen on every queue.
pub(crate) async fn listen(env: &Arc<Env>, mailbox: &Mailbox, results: &Queue, control: &Queue) -> anyhow::Result<()> {
    let (tasks, reclaim) = (env.topology.tasks(), env.topology.reclaim());
    let strikes = Arc::new(Mutex::new(Strikes::open(&env.folder, "intake")?));
    for (queue, prefetch, stage, read) in [
        (&tasks, TASK_PREFETCH, Stage::Intake, marked as Read),
        (&reclaim, TASK_PREFETCH, Stage::Reclaim, marked),
        (results, RESULT_PREFETCH, Stage::Result, |env, delivery, _| {
            answer(env, delivery)
        }),
        (control, CONTROL_PREFETCH, Stage::Result, |env, delivery, _| {
            beat(env, delivery)
        }),
    ] {
        pump(env, mailbox, queue, prefetch, (stage, read, strikes.clone())).await?;
    }
    Ok(())
}

/// Reads a delivery, or says why it is no message.
type Read = fn(&Env, &Delivery, &Mutex<Strikes>) -> Result<Input, Refusal>;

async fn pump(
    env: &Arc<Env>,
    mailbox: &Mailbox,
    queue: &Queue,
    prefetch: u16,
    (stage, read, strikes): (Stage, Read, Arc<Mutex<Strikes>>),
) -> anyhow::Result<()> {
    let mut consumer = env.bus.consume(queue, prefetch).await?;
    let (env, mailbox) = (env.clone(), mailbox.clone());
    log_scope::spawn(async move {
        while let Some(delivery) = consumer.next().await {
            match read(&env, &delivery, &strikes) {
                Ok(input) => {
                    if mailbox.send(input).await.is_err() {
                        return;
                    }
                }
                Err(refusal) => {
                    if !refuse(&env, &delivery, stage, &refusal).await {
                        continue;
                    }
                    // Only once it is in the dead letters: a message that comes again must not end
                    // three more processes.
                    lock(&strikes).forget(&mark_of(&delivery));
                    if mailbox.send(Input::Refused).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    Ok(())
}

/// Moves a message to the dead letters. Returns true if it is there.
async fn refuse(env: &Env, delivery: &Delivery, stage: Stage, refusal: &Refusal) -> bool {
    let reason = &refusal.reason;
    tracing::warn!(queue = %delivery.queue, message_id = delivery.message_id, reason, "refused a message");
    // Noted first: a message that is noted and not moved comes again. One that is moved and not
    // noted would look lost once the broker is gone.
    note_refused(env, delivery, reason);
    let moved = dead_letter(env.bus.as_ref(), &env.topology, delivery, stage, refusal).await;
    if let Err(error) = &moved {
        tracing::warn!(%error, "the dead-letter queue did not take it; it goes back to where it was");
        retry::give_back(delivery).await;
    }
    moved.is_ok()
}

/// Returns the id in the body of a rejected task. A body above `cap` bytes is not read.
fn own_id(body: &[u8], cap: usize) -> Option<String> {
    let body: serde_json::Value = (body.len() <= cap).then(|| serde_json::from_slice(body).ok())??;
    id_of(body.get("id")?).filter(|id| id.len() <= MAX_TASK_ID)
}

/// Notes a refused id in the run folder: without the broker an audit would take the message for
/// lost.
fn note_refused(env: &Env, delivery: &Delivery, reason: &str) {
    let unnamed = || broker::ids::Digest::of(&delivery.body).to_string();
    let id = delivery.message_id.clone().unwrap_or_else(unnamed);
    // The task's own id, by which its publisher asks for it.
    let task = own_id(&delivery.body, env.config.run.message_cap.0 as usize);
    let line = format!("{}\n", serde_json::json!({ "id": id, "task": task, "reason": reason }));
    let path = env.folder.refused(&format!("coordinator-{}", env.incarnation));
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
        std::io::Write::write_all(&mut file, line.as_bytes())
    };
    if let Err(error) = write() {
        tracing::warn!(path = %path.display(), %error, "a refused task was not noted in the run folder");
    }
}

/// Reads one task at a time, under a mark. Its author is unknown: if it ends this process, the mark
/// says which message it was.
fn marked(env: &Env, delivery: &Delivery, strikes: &Mutex<Strikes>) -> Result<Input, Refusal> {
    let mark = mark_of(delivery);
    let mut strikes = lock(strikes);
    let standing = strikes.isolation(&mark);
    if standing == Isolation::Out {
        let reason = format!("the coordinator died {OUT} times while it read this message");
        return Err(Refusal::new(Class::Crashed, reason));
    }
    strikes.begin([mark]);
    broker::fail::point_of("task.read", &mark);
    let read = task(env, delivery);
    strikes.end([mark]);
    if standing != Isolation::Free {
        strikes.forget(&mark);
    }
    read
}

/// The mark of a message. It has no group before it is read, so its body is marked.
fn mark_of(delivery: &Delivery) -> GroupId {
    GroupId(Digest::of(&delivery.body).0)
}

fn lock(strikes: &Mutex<Strikes>) -> MutexGuard<'_, Strikes> {
    strikes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn task(env: &Env, delivery: &Delivery) -> Result<Input, Refusal> {
    let held = *delivery.queue == *env.topology.reclaim().name;
    let task = parse_task(env, &delivery.body)?;
    let id = task.resolve_id(delivery.message_id.as_deref(), &delivery.body);
    let mut order = None;
    if held {
        order = delivery.header(HEADER_ORDER).and_then(|text| text.parse().ok());
        believe(env, delivery, &id, order)?;
    }
    let (body, delivery) = (delivery.body.clone(), Some(delivery.clone()));
    Ok(Input::Task(Candidate {
        task: Arc::new(task),
        id,
        order,
        body,
        delivery,
        held,
    }))
}

/// Checks that a task that an agent hands back came from a coordinator.
fn believe(env: &Env, delivery: &Delivery, id: &str, order: Option<u64>) -> Result<(), Refusal> {
    let Some(key) = env.seal.as_ref() else {
        return Ok(());
    };
    let seal = delivery.header(HEADER_SEAL).unwrap_or_default();
    if order.is_some_and(|order| key.is_of(seal, &env.run, id, order, &delivery.body)) {
        return Ok(());
    }
    let reason = "no coordinator of this run gave this task into custody: its seal is missing or of another key. Unless the \
                  coordinators' DYAD_TASK_KEY was changed (then stop all of them and start them with DYAD_TASK_KEY=NEW,OLD), an agent made it up";
    Err(Refusal::new(Class::Forged, reason))
}

/// Reads a task and asks the workflow whether it can be played.
pub(crate) fn parse_task(env: &Env, body: &[u8]) -> Result<Task, TaskError> {
    let limit = usize::try_from(env.config.run.message_cap.0).unwrap_or(usize::MAX);
    let task = Task::parse(body, limit)?;
    let plays = env.workflow.kind();
    match &task.workflow {
        Some(asked) if asked != plays => Err(TaskError::Workflow {
            asked: asked.clone(),
            plays: plays.into(),
        }),
        _ => task_check::check(&env.config, env.workflow.as_ref(), &task)
            .map(|()| task)
            .map_err(TaskError::Content),
    }
}

fn answer(env: &Env, delivery: &Delivery) -> Result<Input, Refusal> {
    let from = |agent: &str| {
        verified::result(&env.topology, delivery, &env.incarnation, agent)
            .map_err(|disbelief| Refusal::new(Class::Forged, disbelief.to_string()))
    };
    match delivery.kind {
        Some(Kind::ReserveAnswer) => {
            let frame = codec::decode::<ReserveAnswerFrame>(&delivery.body)?;
            from(&frame.agent)?;
            Ok(Input::Answers(frame, delivery.clone()))
        }
        Some(Kind::TurnResult) => {
            let frame = codec::decode::<ResultFrame>(&delivery.body)?;
            frame.validate()?;
            from(&frame.agent)?;
            Ok(Input::Results(frame, Some(delivery.clone())))
        }
        other => Err(Refusal::new(
            Class::Misplaced,
            format!(
                "a {} does not belong into the results queue",
                other.map_or("message of unknown type", Kind::as_str)
            ),
        )),
    }
}

fn beat(env: &Env, delivery: &Delivery) -> Result<Input, Refusal> {
    // Heartbeats are not durable: acked when read, newest wins.
    let acker = delivery.acker.clone();
    log_scope::spawn(async move { acker.ack().await });
    match delivery.kind {
        Some(Kind::Command) => verified::command(&env.topology, delivery).map(Input::Command),
        _ => verified::beat(&env.topology, delivery).map(|beat| Input::Beat(Box::new(beat))),
    }
    .or_else(|error| {
        tracing::warn!(%error, "ignored a control message");
        Ok(Input::Nothing)
    })
}
