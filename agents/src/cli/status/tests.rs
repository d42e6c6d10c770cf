use std::collections::BTreeMap;

use broker::bus::memory::MemoryBus;
use broker::bus::{Bus, Outgoing, verified};
use broker::codec;
use broker::ids::WeightVersion;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat, RunPhase};
use broker::topology::Topology;

use super::*;
use crate::run_folder::RunFolder;
use crate::run_folder::metrics::{Metrics, MetricsWriter};
use crate::run_folder::tests::config_in;
use crate::testing;

fn beat(agent: &str) -> Heartbeat {
    Heartbeat {
        version: WeightVersion { lineage: 2, step: 40 },
        step: 40,
        capacity: 16,
        ready: 3,
        reserved: 13,
        closed: 100,
        reward: Some(0.5),
        ..testing::heartbeat(&broker::AgentName::new(agent).unwrap())
    }
}

fn coordinator(turns: u64) -> CoordinatorBeat {
    CoordinatorBeat {
        seq: turns,
        open_groups: 4,
        finished_groups: 5,
        finished_conversations: turns / 2,
        dead_tasks: 1,
        turns,
        pid: 2,
        ..testing::coordinator_beat("c1")
    }
}

#[tokio::test]
async fn live_run_is_shown() {
    let base = tempfile::tempdir().unwrap();
    let config = config_in(base.path());
    let folder = RunFolder::create(base.path(), &config, None).unwrap();
    let agent = broker::AgentName::new("b").unwrap();
    let writer = MetricsWriter::open(&folder.metrics("b"), None).unwrap();
    writer.write(
        Metrics::train(&agent, 39)
            .with("reward/mean", 0.25)
            .with("staleness/mean", 0.5),
    );
    writer.write(Metrics::eval(20).with("success", 0.75));
    writer.flush();
    let writer = MetricsWriter::open(&folder.metrics("coordinator-c1"), None).unwrap();
    for (seconds, turns) in [(1.0, 1000), (3.0, 4000)] {
        let line = Metrics::new("coordinator", 0)
            .with("turns", turns)
            .with("conversations", turns / 2);
        writer.write(line.with("time/elapsed_s", seconds));
    }
    writer.flush();

    let bus = MemoryBus::new();
    let topology = Topology::new(folder.run().clone());
    bus.declare(&topology, &config.participants()).await.unwrap();
    let mut live = Listener::open(bus.clone(), &folder, &config).await.unwrap();
    let coordinators = [1000, 4000].map(|turns| Beat::Coordinator(coordinator(turns)));
    for said in std::iter::once(Beat::Agent(beat("a"))).chain(coordinators) {
        let message = Outgoing {
            to: topology.to_control(verified::speaker(&said)),
            kind: Kind::Heartbeat,
            message_id: "h".into(),
            correlation_id: None,
            headers: vec![],
            body: codec::encode_json(&said).into(),
            durable: false,
        };
        bus.publish(message).await.unwrap();
    }
    let metrics = MetricsReader::default().last(&folder).unwrap();
    let mut state = live.listen().await;
    state.take_rates(&metrics.rates);
    let mut status = Status {
        run: folder.run().to_string(),
        live: Some(state),
        waits: Vec::new(),
        over: None,
        offline: None,
        metrics,
    };
    let text = render::status::render(&status, 400);
    let line = |start: &str| {
        text.lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_default()
            .to_owned()
    };
    let words = |start: &str| line(start).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words("a "),
        ["a", "running", "40/400", "2.40", "0.500", "-", "3", "13", "16"],
        "{text}"
    );
    assert_eq!(
        words("b "),
        ["b", "silent", "39/400", "-", "0.250", "0.500", "-", "-", "-"],
        "{text}"
    );
    assert!(line("coordinator c1").contains("4000 turns, 1 tasks dead"), "{text}");
    assert!(text.contains("1500 turns/s, 750 conversations/s"), "{text}");
    assert!(text.contains("reserved: groups in play"), "{text}");
    assert!(
        text.ends_with("queues: all empty\nevaluated at step 20: success 0.750\n"),
        "{text}"
    );
    assert!(!text.contains("learns nothing"), "{text}");
    status.metrics.idle = [("a".to_owned(), 2), ("b".to_owned(), 3)].into();
    let text = render::status::render(&status, 400);
    let nothing: Vec<&str> = text.lines().filter(|line| line.contains("learns nothing")).collect();
    assert!(
        nothing.len() == 1 && nothing[0].starts_with("agent b learns nothing: in its last 3 batches"),
        "{text}"
    );
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["live"]["agents"]["a"]["ready"], 3);
    if let Some(a) = status.live.as_mut().and_then(|live| live.agents.get_mut("a")) {
        a.run.phase = RunPhase::Paused;
    }
    let text = render::status::render(&status, 400);
    let a = text.lines().find(|line| line.starts_with("a ")).unwrap();
    assert_eq!(a.split_whitespace().nth(1), Some("paused"), "{text}");
}

#[test]
fn ended_run_is_shown_without_blame() {
    let status = Status {
        run: "r-1".into(),
        over: Some("run r-1 ended at T: run.train_steps reached at step 3".into()),
        offline: Some("run r-1 ended at T: run.train_steps reached at step 3".into()),
        ..Status::default()
    };
    let text = render::status::render(&status, 3);
    assert!(text.contains("run.train_steps reached at step 3"), "{text}");
    assert!(!text.contains("no live state"), "{text}");
}

/// Returns what each process is said to do, by its name.
fn said(agents: &[Heartbeat], coordinators: &[CoordinatorBeat]) -> BTreeMap<String, String> {
    let base = tempfile::tempdir().unwrap();
    let live = listener::LiveState {
        agents: agents
            .iter()
            .map(|beat| (beat.agent.to_string(), beat.clone()))
            .collect(),
        coordinators: coordinators
            .iter()
            .map(|beat| (beat.incarnation.clone(), beat.clone()))
            .collect(),
        ..listener::LiveState::default()
    };
    waits(&live, &config_in(base.path())).into_iter().collect()
}

#[test]
fn processes_that_wait_name_each_other() {
    let mut busy = coordinator(0);
    busy.requested = [(broker::AgentName::new("b").unwrap(), 12)].into();
    let lines = said(&[beat("a"), beat("b")], &[busy]);
    assert_eq!(lines["coordinator"], "waits for agent b (12 turns)");
    assert_eq!(lines["agent b"], "generates 12 turns for the coordinator");
    assert_eq!(
        lines["agent a"],
        "waits for the coordinator: 13 groups open, 3 of 16 closed for its next batch"
    );
}

#[test]
fn coordinator_without_groups_waits_for_training() {
    let idle = CoordinatorBeat {
        open_groups: 0,
        ..coordinator(0)
    };
    let trains = Heartbeat {
        ready: 16,
        reserved: 0,
        ..beat("b")
    };
    let lines = said(&[beat("a"), trains], std::slice::from_ref(&idle));
    assert_eq!(lines["agent b"], "trains: 16 groups ready");
    assert_eq!(lines["coordinator"], "waits for agent b before it opens groups");
    let lines = said(&[beat("a")], &[idle]);
    assert_eq!(
        lines["coordinator"],
        "waits for agent b: no heartbeat, or it does not serve yet"
    );
    assert!(lines["agent b"].contains("`dyad logs b`"), "{lines:?}");
    assert!(said(&[beat("a")], &[])["coordinator"].contains("no heartbeat"));
}

#[test]
fn asked_hold_names_the_agents_that_still_move() {
    let asks = CoordinatorBeat {
        hold: Some("h".into()),
        ..coordinator(0)
    };
    let holds = Heartbeat {
        holding: vec!["h".into()],
        ..beat("a")
    };
    let lines = said(&[holds, beat("b")], &[asks]);
    assert_eq!(
        lines["coordinator"],
        "waits for agent b to keep its weights for an evaluation"
    );
    assert_eq!(
        lines["agent a"],
        "waits for the coordinator: it keeps its weights for an evaluation"
    );
}

/// Time stands still unless nothing else is left to do, so the listening time is exact.
#[tokio::test(start_paused = true)]
async fn silent_run_is_answered_within_a_second() {
    let base = tempfile::tempdir().unwrap();
    let config = config_in(base.path());
    let folder = RunFolder::create(base.path(), &config, None).unwrap();
    let mut live = Listener::open(MemoryBus::new(), &folder, &config).await.unwrap();
    let before = tokio::time::Instant::now();
    assert!(live.listen().await.agents.is_empty());
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}

#[test]
fn agent_of_a_paused_run_waits_for_resume() {
    let mut paused = beat("a");
    paused.run.phase = RunPhase::Paused;
    assert_eq!(
        said(&[paused], &[coordinator(0)])["agent a"],
        "waits for `dyad resume`: the run is paused"
    );
}
