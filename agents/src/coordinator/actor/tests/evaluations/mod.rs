//! The start of an evaluation, the weights that it names, and the holds that it asks of agents.

mod several;

use std::time::Duration;

use broker::ids::GroupId;
use broker::protocol::control::{Beat, Command, CoordinatorBeat, Evaluated, Heartbeat, RunPhase};
use broker::protocol::turn::Generation;
use configs::{Mode, RunConfig};

use crate::agent::holds::lease;
use crate::coordinator::actor::bench::{Bench, beat, generation};
use crate::coordinator::actor::run::LISTEN;
use crate::coordinator::specs::Purpose;
use crate::stats::summary;
use crate::stats::summary::Evaluation;
use crate::testing::{coordinator_beat, version};

const MOST: Duration = Duration::from_secs(600);

/// A run under way with its first evaluation due.
async fn bench(change: impl FnOnce(&mut RunConfig)) -> Bench {
    bench_of(true, change).await
}

/// `alone`: there is no other coordinator.
async fn bench_of(alone: bool, change: impl FnOnce(&mut RunConfig)) -> Bench {
    let mut bench = Bench::of(alone, |config| {
        config.eval.source = Some("generator:signal".into());
        (config.eval.every, config.eval.tasks) = (10, Some(2));
        config.eval.hold_at_most.0 = MOST;
        change(config);
    })
    .await;
    bench.says("a", 1, &[]);
    bench.says("b", 1, &[]);
    bench.coordinator.lifecycle.set_phase(RunPhase::Running);
    bench
}

fn other(incarnation: &str, seq: u64, hold: Option<&str>, evaluated: Option<Evaluated>) -> Beat {
    Beat::Coordinator(said(incarnation, seq, hold, evaluated))
}

/// The heartbeat of a coordinator that plays an evaluation without a hold.
fn plays(incarnation: &str, seq: u64) -> Beat {
    Beat::Coordinator(CoordinatorBeat {
        evaluating: true,
        ..said(incarnation, seq, None, None)
    })
}

fn said(incarnation: &str, seq: u64, hold: Option<&str>, evaluated: Option<Evaluated>) -> CoordinatorBeat {
    CoordinatorBeat {
        seq,
        drained: true,
        hold: hold.map(str::to_owned),
        evaluated,
        ..coordinator_beat(incarnation)
    }
}

impl Bench {
    /// An agent's heartbeat.
    fn says(&mut self, agent: &str, seq: u64, holding: &[String]) {
        let name = broker::AgentName::new(agent).unwrap();
        let beat = Heartbeat {
            seq,
            holding: holding.to_vec(),
            ..beat(&name, 0)
        };
        self.receives(Beat::Agent(beat));
    }

    fn receives(&mut self, beat: Beat) {
        self.coordinator.on_beat(beat, &mut self.ctx);
    }

    /// The hold that agents are asked for, after everything that can has moved on.
    fn asks(&mut self) -> Option<String> {
        self.coordinator.advance_phase();
        self.coordinator.asked_hold()
    }

    /// Makes both agents keep the hold that they are asked for.
    fn all_hold(&mut self, seq: u64) {
        let hold: Vec<String> = self.asks().into_iter().collect();
        assert_eq!(hold.len(), 1, "somebody asks");
        self.says("a", seq, &hold);
        self.says("b", seq, &hold);
        self.coordinator.advance_phase();
        assert!(self.coordinator.evals.is_running(), "all hold");
    }

    /// Plays every conversation under way to its end. `made` changes each generation.
    fn play(&mut self, made: impl Fn(&str, Generation) -> Generation) {
        self.play_some(usize::MAX, made);
    }

    /// Plays at most this many conversations.
    fn play_some(&mut self, most: usize, made: impl Fn(&str, Generation) -> Generation) {
        let open = self.coordinator.play.iter().map(|(group, _)| *group);
        let groups: Vec<GroupId> = open.take(most).collect();
        for group in groups {
            self.change(group, |open| {
                let run = &mut open.run;
                while !run.is_done() {
                    for wanted in run.take_wanted() {
                        let role = wanted.key.role.to_string();
                        run.on_result(wanted.key, made(&role, generation(7))).unwrap();
                    }
                }
            });
            self.coordinator.close(group, &mut self.ctx);
        }
    }

    /// The number of transcripts that are written.
    fn written(&self) -> usize {
        self.coordinator.figures.flush_transcripts();
        let path = self.coordinator.env.folder.transcripts("coordinator-us");
        crate::run_folder::logs::read_json_lines::<crate::run_folder::logs::Transcript>(&path)
            .unwrap()
            .len()
    }

    /// The evaluations that are written.
    fn evaluated(&self) -> Vec<Evaluation> {
        let found = summary::evaluations(&self.coordinator.env.folder).unwrap();
        found.into_values().collect()
    }
}

#[tokio::test]
async fn an_evaluation_begins_when_all_hold_and_lets_them_go() {
    let mut bench = bench(|_| {}).await;
    let hold = bench.asks().unwrap();
    assert_eq!(bench.asks().as_ref(), Some(&hold), "it is asked for until all hold");
    bench.says("a", 2, std::slice::from_ref(&hold));
    assert_eq!(bench.asks().as_ref(), Some(&hold));
    assert!(!bench.coordinator.evals.is_running(), "b goes on");
    bench.says("b", 2, std::slice::from_ref(&hold));
    assert_eq!(bench.asks().as_ref(), Some(&hold), "they hold on while it is played");
    assert!(bench.coordinator.evals.is_running());

    bench.play(|_, made| made);
    let found = bench.evaluated();
    assert_eq!((found.len(), found[0].pinned), (1, Some(true)));
    for agent in ["a", "b"] {
        let name = broker::AgentName::new(agent).unwrap();
        assert!(found[0].versions[&name].iter().eq([&version(0)]), "{agent}");
    }
    assert_eq!(bench.asks(), None, "agents train again");
    let made = Evaluated { step: 0, last: false };
    assert_eq!(bench.coordinator.evals.newest(), Some(made), "the others are informed");
}

/// An agent was started again, or its hold ran out: its answers are of other weights.
#[tokio::test]
async fn an_evaluation_with_weights_that_changed_on_the_way_says_so() {
    let mut bench = bench(|_| {}).await;
    bench.all_hold(2);
    bench.play(|role, made| match role {
        "listener" => {
            let mut made = made;
            made.spans[0].version = version(1);
            made
        }
        _ => made,
    });
    let found = bench.evaluated();
    assert_eq!((found.len(), found[0].pinned), (1, Some(false)));
    let listener = broker::AgentName::new("b").unwrap();
    assert!(found[0].versions[&listener].iter().eq([&version(0), &version(1)]));
    assert_eq!(bench.asks(), None);
}

#[tokio::test]
async fn no_agent_is_held_without_need() {
    let mut unheld = bench(|config| config.eval.hold = false).await;
    assert_eq!(unheld.asks(), None);
    assert!(unheld.coordinator.evals.is_running(), "it begins at once");
    unheld.play(|_, made| made);
    assert_eq!(unheld.evaluated()[0].pinned, Some(true), "nothing changed meanwhile");
    let mut rounds = bench(|config| config.run.mode = Mode::Sync).await;
    assert_eq!(rounds.asks(), None);
    assert!(rounds.coordinator.evals.is_running());
}

/// Agents may still report the hold of an earlier evaluation.
#[tokio::test]
async fn the_next_evaluation_asks_again() {
    let mut bench = bench(|_| {}).await;
    let first = bench.asks().unwrap();
    bench.all_hold(2);
    bench.play(|_, made| made);
    bench.coordinator.lifecycle.set_phase(RunPhase::Draining);
    // Nothing is left, twice in succession.
    (0..2).for_each(|_| bench.coordinator.on_depth(Some(0)));
    let second = bench.asks().unwrap();
    assert_ne!(first, second);
    assert!(
        !bench.coordinator.evals.is_running(),
        "heartbeats of before count for nothing"
    );
    bench.all_hold(3);
    bench.play(|_, made| made);
    assert_eq!(
        bench.evaluated().last().map(|one| (one.last, one.pinned)),
        Some((true, Some(true)))
    );
    assert_eq!(bench.asks(), None);
    assert_eq!(bench.coordinator.lifecycle.phase(), RunPhase::Closed);
}

#[tokio::test]
async fn a_pause_or_a_drain_lets_go_before_the_evaluation_has_begun() {
    for (order, phase) in [(Command::Pause, RunPhase::Paused), (Command::Drain, RunPhase::Draining)] {
        let mut bench = bench(|_| {}).await;
        bench.open("t").await;
        assert!(bench.asks().is_some());
        bench.coordinator.on_command(order);
        assert_eq!(bench.asks(), None);
        assert_eq!(bench.coordinator.lifecycle.phase(), phase, "and the order is kept");
        assert!(!bench.coordinator.evals.is_running());
    }
}

/// A pause that is ordered during an evaluation begins no groups, and the evaluation is finished.
#[tokio::test]
async fn an_evaluation_under_way_goes_on_through_a_pause() {
    let mut bench = bench(|_| {}).await;
    bench.all_hold(2);
    bench.coordinator.on_command(Command::Pause);
    assert!(bench.asks().is_some() && bench.coordinator.lifecycle.phase() == RunPhase::Paused);
    bench.play(|_, made| made);
    assert_eq!(bench.evaluated().len(), 1);
    assert_eq!(bench.asks(), None);
}

#[tokio::test(start_paused = true)]
async fn who_never_holds_makes_the_evaluation_begin_without() {
    let mut bench = bench(|_| {}).await;
    let hold = bench.asks().unwrap();
    bench.says("a", 2, std::slice::from_ref(&hold));
    tokio::time::advance(MOST - Duration::from_secs(1)).await;
    assert_eq!(bench.asks(), Some(hold));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(bench.asks(), None, "a is let go");
    assert!(bench.coordinator.evals.is_running());
    bench.play(|_, made| made);
    assert_eq!(bench.asks(), None);
}

#[tokio::test(start_paused = true)]
async fn a_late_evaluation_holds_no_agent_longer() {
    let mut bench = bench(|_| {}).await;
    bench.all_hold(2);
    tokio::time::advance(MOST).await;
    assert_eq!(bench.asks(), None);
    assert!(bench.coordinator.evals.is_running(), "it goes on");
    bench.play(|_, made| made);
    assert_eq!(bench.evaluated()[0].pinned, Some(true), "and is of what it is of");
    let other = |role: &str, made: Generation| {
        let mut made = made;
        made.oldest_kv = version(u64::from(role == "speaker"));
        made
    };
    let mut late = self::bench(|_| {}).await;
    late.all_hold(2);
    tokio::time::advance(MOST).await;
    assert_eq!(late.asks(), None);
    late.play(other);
    assert_eq!(late.evaluated()[0].pinned, Some(false));
}

#[tokio::test]
async fn a_stop_lets_go_at_once() {
    let mut bench = bench(|_| {}).await;
    bench.all_hold(2);
    let (done, _stopped) = tokio::sync::oneshot::channel();
    bench.coordinator.stop(done);
    assert_eq!(bench.coordinator.asked_hold(), None);
}

#[tokio::test]
async fn a_snapshot_is_made_in_the_middle_of_an_evaluation() {
    let mut bench = bench(|_| {}).await;
    bench.all_hold(2);
    bench.coordinator.snapshots.begin("s".into(), Duration::from_secs(60));
    bench.coordinator.advance_snapshot(&mut bench.ctx);
    assert_eq!(bench.coordinator.snapshots.asked().as_deref(), Some("s"));
    assert!(bench.coordinator.evals.is_running() && bench.asks().is_some());
}

/// The lead waits there without being asked.
#[tokio::test]
async fn the_lead_receives_the_step_of_the_next_evaluation() {
    let mut bench = bench(|_| {}).await;
    assert_eq!(bench.coordinator.evaluates_at(), Some(0));
    bench.all_hold(2);
    assert_eq!(bench.coordinator.evaluates_at(), Some(0), "until it is over");
    bench.play(|_, made| made);
    assert_eq!(bench.coordinator.evaluates_at(), Some(10));
    let made = Evaluated { step: 20, last: false };
    bench.receives(other("another", 1, None, Some(made)));
    assert_eq!(
        bench.coordinator.evaluates_at(),
        Some(30),
        "another has made those before"
    );
    for phase in [RunPhase::Paused, RunPhase::Draining, RunPhase::Closed] {
        bench.coordinator.lifecycle.set_phase(phase);
        assert_eq!(bench.coordinator.evaluates_at(), None, "{phase:?}");
    }
    let changes: [fn(&mut RunConfig); 3] = [
        |config| config.eval.hold = false,
        |config| config.run.mode = Mode::Sync,
        |config| config.eval.every = 0,
    ];
    for change in changes {
        assert_eq!(self::bench(change).await.coordinator.evaluates_at(), None);
    }
}

/// A hold that ran out has cost the most.
#[tokio::test(start_paused = true)]
async fn the_cost_of_a_hold_is_reported_though_its_time_was_up() {
    let mut bench = bench(|_| {}).await;
    assert_eq!(bench.coordinator.evals.holds().duration(), None, "no agent was asked");
    bench.all_hold(2);
    tokio::time::advance(MOST).await;
    assert_eq!(bench.coordinator.evals.holds().duration(), Some(MOST), "so far");
    assert_eq!(bench.asks(), None);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(
        bench.coordinator.evals.holds().duration(),
        Some(MOST),
        "agents train since"
    );
    bench.play(|_, made| made);
    bench.coordinator.figures.flush();
    let lines = crate::run_folder::logs::read_json_lines::<serde_json::Value>(
        &bench.coordinator.env.folder.metrics("coordinator-us.evals"),
    );
    let reported: Vec<f64> = lines
        .unwrap()
        .iter()
        .filter_map(|line| line["time/held_s"].as_f64())
        .collect();
    assert_eq!(reported, [MOST.as_secs_f64()]);

    bench.coordinator.lifecycle.set_phase(RunPhase::Draining);
    (0..2).for_each(|_| bench.coordinator.on_depth(Some(0)));
    assert!(bench.asks().is_some());
    assert_eq!(
        bench.coordinator.evals.holds().duration(),
        Some(Duration::ZERO),
        "of the next one alone"
    );
}
