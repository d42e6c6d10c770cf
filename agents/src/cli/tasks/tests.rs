use std::sync::Arc;

use broker::bus::letter::{self, Class, HEADER_ATTEMPTS, HEADER_FIRST, HEADER_REASON, Refusal, Stage, dead_letter};
use broker::bus::memory::MemoryBus;
use broker::bus::{Bus, Delivery, Outgoing};
use broker::ids::RunId;
use broker::protocol::Kind;
use broker::seal::HEADER_ORDER;

use super::*;
use crate::cli::exit_code::render as error_text;
use crate::cli::task_rules::Rules;
use crate::dashboard::LetterFacts;

async fn add_letter(bus: &Arc<dyn Bus>, topology: &Topology, id: &str, kind: Kind, body: &'static [u8]) {
    die(bus, topology, id, kind, body, Stage::Intake).await;
}

async fn die(bus: &Arc<dyn Bus>, topology: &Topology, id: &str, kind: Kind, body: &'static [u8], stage: Stage) {
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
    let refusal = Refusal::new(Class::Malformed, "the body is not a task");
    dead_letter(bus.as_ref(), topology, &delivery, stage, &refusal)
        .await
        .unwrap();
}

#[tokio::test]
async fn letters_are_listed_requeued_by_id_and_dropped() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    add_letter(&bus, &topology, "t1", Kind::Task, b"{").await;
    add_letter(&bus, &topology, "t2", Kind::Task, b"}").await;
    add_letter(&bus, &topology, "b1", Kind::Bundle, b"\x01").await;
    let visit = |order: Order| {
        let (peer, topology) = (first.peer(), topology.clone());
        async move {
            let peer: Arc<dyn Bus> = peer;
            let letters = handle(&peer, &topology, &order).await.unwrap();
            peer.close().await;
            letters.into_iter().map(|l| (l.facts.id, l.fate)).collect::<Vec<_>>()
        }
    };
    let pair = |id: &str, fate: &str| (id.to_owned(), fate.to_owned());
    let all = visit(Order::List(vec![])).await;
    assert_eq!(all, [pair("t1", "kept"), pair("t2", "kept"), pair("b1", "kept")]);
    let some = visit(Order::Requeue(vec!["t2".into()])).await;
    assert_eq!(some, [pair("t2", "requeued")]);
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
    assert!(refused[0].1.starts_with("kept: only tasks"), "{refused:?}");
    let one = visit(Order::List(vec!["t1".into()])).await;
    assert_eq!(one, [pair("t1", "kept")]);
    visit(Order::Drop(vec![])).await;
    assert!(visit(Order::List(vec![])).await.is_empty());
}

#[tokio::test]
async fn a_task_that_dies_again_is_requeued_once() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    add_letter(&bus, &topology, "t1", Kind::Task, b"{").await;
    let (dying, names) = (bus.clone(), topology.clone());
    let killer = tokio::spawn(async move {
        let mut tasks = dying.consume(&names.tasks(), 8).await.unwrap();
        while let Some(delivery) = tasks.next().await {
            let again = Refusal::new(Class::Content, "again");
            dead_letter(dying.as_ref(), &names, &delivery, Stage::Intake, &again)
                .await
                .unwrap();
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

/// Applies a change to this task's letter. Returns the queued task and the number of dead letters
/// left.
async fn change(
    stage: Stage,
    body: &'static [u8],
    mut change: Change,
) -> (anyhow::Result<Vec<Letter>>, Option<Delivery>) {
    let folder = tempfile::tempdir().unwrap();
    change.published = folder.path().join("published.jsonl");
    let (published, id) = (change.published.clone(), change.as_id.clone());
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    die(&bus, &topology, "t1", Kind::Task, body, stage).await;
    let peer: Arc<dyn Bus> = first.peer();
    let done = handle(&peer, &topology, &Order::Change(change)).await;
    peer.close().await;
    let left = bus.depth(&topology.dead()).await.unwrap();
    let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
    // A requeued task must arrive, however long it takes.
    let patience = std::time::Duration::from_millis(if left == 0 { 30_000 } else { 100 });
    let task = tokio::time::timeout(patience, tasks.next()).await.ok().flatten();
    assert_eq!(left, u64::from(task.is_none()), "a letter is in one place");
    let noted = std::fs::read_to_string(published).unwrap_or_default();
    let new = id.filter(|_| task.is_some()).map(|id| format!("{{\"id\":\"{id}\"}}\n"));
    assert_eq!(noted, new.unwrap_or_default(), "only a new id is in the manifest");
    (done, task)
}

fn replace(edited: Option<&str>, as_id: Option<&str>) -> Change {
    Change {
        published: std::path::PathBuf::new(),
        letter: "t1".into(),
        edited: edited.map(|text| text.as_bytes().to_vec()),
        as_id: as_id.map(str::to_owned),
        rules: Rules::default(),
    }
}

#[tokio::test]
async fn edited_letter_keeps_the_history_of_its_failures() {
    let (done, task) = change(Stage::Intake, b"{", replace(Some("{\"prompt\": \"o1\"}\n"), None)).await;
    let (done, task) = (done.unwrap(), task.unwrap());
    assert_eq!(done[0].fate, "requeued");
    assert_eq!(task.body.as_ref(), b"{\"prompt\": \"o1\"}");
    assert_eq!(task.header(HEADER_ATTEMPTS), Some("1"));
    assert!(task.header(HEADER_FIRST).is_some());
    assert_eq!(task.header(HEADER_REASON), None);
}

#[tokio::test]
async fn invalid_edit_changes_nothing() {
    let (done, task) = change(Stage::Intake, b"{", replace(Some("{\"prompt\": 7}"), None)).await;
    let text = error_text(&done.unwrap_err());
    assert!(text.contains("the edited task is not a task for this run"), "{text}");
    assert!(task.is_none());
}

/// A letter that an agent wrote, or claims to have received, is never published unread.
#[tokio::test]
async fn agent_written_letter_is_requeued_only_by_id() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    let order = [(HEADER_ORDER.to_owned(), "3".to_owned())];
    let refusal = Refusal::new(Class::Forged, "no coordinator gave it");
    let letter = Outgoing {
        to: topology.to(&topology.dead()),
        kind: Kind::Task,
        message_id: "t1".into(),
        correlation_id: None,
        headers: letter::headers(&order, Stage::Reclaim, &refusal, "q"),
        body: bytes::Bytes::from_static(b"{}"),
        durable: true,
    };
    bus.publish(letter).await.unwrap();
    for (ids, fate) in [
        (vec![], "kept: no coordinator has verified"),
        (vec!["t1".to_owned()], "requeued"),
    ] {
        let peer: Arc<dyn Bus> = first.peer();
        let done = handle(&peer, &topology, &Order::Requeue(ids)).await.unwrap();
        peer.close().await;
        assert!(done[0].fate.starts_with(fate), "{}", done[0].fate);
    }
    let mut tasks = bus.consume(&topology.tasks(), 1).await.unwrap();
    let task = tasks.next().await.unwrap();
    assert_eq!(task.header(HEADER_ORDER), None, "it has no order of its own");
    assert!(
        topology.is_agent("r-1.agent-a") && !topology.is_agent("r-1.publisher") && !topology.is_agent("r-2.agent-a")
    );
}

/// A coordinator ignores a task with the id of a dead group.
#[tokio::test]
async fn task_that_died_in_play_is_requeued_only_under_a_new_id() {
    let body = b"{\"prompt\": \"o1\", \"id\": \"t1\"}";
    let (done, task) = change(Stage::Play, body, replace(Some("{\"prompt\": \"o2\"}"), None)).await;
    let fate = &done.unwrap()[0].fate;
    assert!(fate.contains("--as NEW-ID") && task.is_none(), "{fate}");
    let (done, task) = change(Stage::Play, body, replace(None, Some("t2"))).await;
    let done = done.unwrap();
    assert_eq!(done[0].fate, "requeued as t2");
    let task = task.unwrap();
    assert_eq!(task.message_id.as_deref(), Some("t2"));
    assert_eq!(task.body.as_ref(), b"{\"prompt\":\"o1\",\"id\":\"t2\"}");
}

#[tokio::test]
async fn letter_that_is_no_object_cannot_get_an_id() {
    let (done, task) = change(Stage::Intake, b"\xff", replace(None, Some("t2"))).await;
    let text = error_text(&done.unwrap_err());
    assert!(text.contains("--edit FILE") && task.is_none(), "{text}");
}

/// Every user with write access can take the id of another task.
#[tokio::test]
async fn different_letters_with_one_id_are_not_requeued() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    for body in [b"{}".as_slice(), b"[]"] {
        add_letter(&bus, &topology, "t1", Kind::Task, body).await;
    }
    let unsure = replace(None, Some("t2"));
    for order in [
        Order::Requeue(vec!["t1".into()]),
        Order::Requeue(vec![]),
        Order::Change(unsure),
    ] {
        let peer: Arc<dyn Bus> = first.peer();
        let done = handle(&peer, &topology, &order).await.unwrap();
        peer.close().await;
        assert_eq!(done.len(), 2);
        assert!(
            done.iter()
                .all(|letter| letter.kept && letter.fate.contains("--edit FILE"))
        );
    }
    let peer: Arc<dyn Bus> = first.peer();
    let sure = Order::Change(replace(Some("{\"prompt\": \"o1\"}"), None));
    let done = handle(&peer, &topology, &sure).await.unwrap();
    peer.close().await;
    assert_eq!(done.iter().filter(|letter| letter.fate == "requeued").count(), 1);
    assert_eq!(bus.depth(&topology.dead()).await, Some(1));
}

/// The time is the runtime's own, so no wait takes any.
#[tokio::test(start_paused = true)]
async fn reading_ends_soon_after_the_letters_that_waited() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    let look = || async {
        let (peer, begun): (Arc<dyn Bus>, _) = (first.peer(), tokio::time::Instant::now());
        let mut ids = Vec::new();
        let total = look(&peer, &topology, |letter| ids.push(letter.facts.id.clone()))
            .await
            .unwrap();
        peer.close().await;
        assert_eq!(total, ids.len() as u64);
        (ids, begun.elapsed().as_millis())
    };
    assert_eq!(look().await, (vec![], 700));
    for id in ["t1", "t2", "t3"] {
        add_letter(&bus, &topology, id, Kind::Task, b"{").await;
    }
    for _ in 0..3 {
        let (ids, wait) = look().await;
        assert_eq!(ids, ["t1", "t2", "t3"]);
        assert!((150..160).contains(&wait), "{wait} ms");
    }
}

fn shown() -> Letter {
    Letter {
        facts: LetterFacts {
            id: "t1".into(),
            own: None,
            kind: "task.v1".into(),
            reason: "the body is not UTF-8".into(),
            class: "not_text".into(),
            stage: "intake".into(),
            first: "2026-11-20T12:00:00.007Z".into(),
            attempts: 2,
            queue: "dyad.r-1.tasks.v1".into(),
            key: "r-1.any.task.published".into(),
            user: "r-1.publisher".into(),
            mover: "r-1.coordinator".into(),
        },
        body: bytes::Bytes::from_static(b"{\n"),
        fate: "kept".into(),
        kept: true,
    }
}

#[test]
fn a_letter_is_shown_with_its_reason() {
    let expected = "t1  (task.v1, 2 bytes)  kept\n    the body is not UTF-8\n    \
                    at intake, as not_text, first 2026-11-20T12:00:00.007Z, 2 times\n    \
                    from dyad.r-1.tasks.v1, under r-1.any.task.published\n    \
                    published by r-1.publisher\n    put here by r-1.coordinator\n    {\\n\n1 dead letter\n";
    assert_eq!(render(&[shown()], true), expected);
    assert_eq!(render(&[], true), "no dead letters\n");
}

#[test]
fn control_characters_and_newlines_of_a_letter_are_escaped() {
    let hostile = "t1\u{1b}[2J\u{9b}6n\n0 dead letters\u{202e}".to_owned();
    let hostile = || hostile.clone();
    let letter = Letter {
        facts: LetterFacts {
            id: hostile(),
            kind: hostile(),
            reason: hostile(),
            class: hostile(),
            stage: hostile(),
            first: hostile(),
            queue: hostile(),
            key: hostile(),
            user: hostile(),
            mover: hostile(),
            ..shown().facts
        },
        body: hostile().into(),
        fate: hostile(),
        ..shown()
    };
    let shown = render(&[letter], true);
    assert!(
        !shown.chars().any(|c| c == '\u{202e}' || (c.is_control() && c != '\n')),
        "{shown:?}"
    );
    assert_eq!(
        shown.lines().filter(|line| line.ends_with("dead letter")).count(),
        1,
        "{shown}"
    );
    assert_eq!(shown.lines().count(), 8);
}

#[tokio::test]
async fn letter_is_found_by_the_id_in_its_task() {
    let first = MemoryBus::new();
    let topology = Topology::new(RunId::new("r-1").unwrap());
    let bus: Arc<dyn Bus> = first.clone();
    bus.declare(&topology, &[]).await.unwrap();
    add_letter(
        &bus,
        &topology,
        "message-7",
        Kind::Task,
        br#"{"prompt": "o1", "id": "mine"}"#,
    )
    .await;
    add_letter(&bus, &topology, "message-8", Kind::Task, b"{").await;
    let peer: Arc<dyn Bus> = first.peer();
    let order = Order::List(vec!["mine".into()]);
    let found = handle(&peer, &topology, &order).await.unwrap();
    assert_eq!(
        found.iter().map(|letter| letter.facts.id.as_str()).collect::<Vec<_>>(),
        ["message-7"]
    );
    assert_eq!(order.named_and_missing(&found), (true, vec![]));
}

#[test]
fn all_letters_are_changed_with_all_alone() {
    let base = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(base.path(), &crate::run_folder::tests::config_in(base.path()), None).unwrap();
    let order = |requeue: Option<&[&str]>, drop: Option<&[&str]>, all: bool| {
        let ids = |given: &[&str]| given.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let args = DeadArgs {
            ids: Vec::new(),
            requeue: requeue.map(ids),
            edit: None,
            as_id: None,
            drop: drop.map(ids),
            all,
            bodies: false,
            json: false,
            broker: None,
            run: RunArg {
                run: "latest".into(),
                runs: base.path().into(),
            },
        };
        args.order(&folder).is_ok()
    };
    assert!(!order(None, Some(&[]), false) && !order(Some(&[]), None, false));
    assert!(order(None, Some(&[]), true) && order(Some(&[]), None, true));
    assert!(order(None, Some(&["t1"]), false) && !order(None, Some(&["t1"]), true));
}
