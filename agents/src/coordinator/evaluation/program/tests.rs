//! When suites are due, and how they are cut.

use broker::AgentName;
use broker::bus::Bus;
use broker::protocol::control::{Beat, Heartbeat};
use broker::protocol::turn::TurnFrame;

use crate::coordinator::actor::bench::{Bench, beat, generation};
use crate::coordinator::actor::turns::SILENT;
use super::*;

#[test]
fn a_suite_is_cut_into_chunks_of_whole_tasks() {
    assert_eq!(parts(0, true, 0, 1), []);
    let cut = parts(1, false, 21, 32);
    let tasks: Vec<Range<usize>> = cut.iter().map(|part| part.tasks.clone()).collect();
    assert_eq!(tasks, [0..8, 8..16, 16..21]);
    assert!(cut.iter().all(|part| part.suite == 1 && !part.greedy));
    // A task's samples are never parted.
    assert_eq!(parts(0, false, 2, u16::MAX).len(), 2);
    assert_eq!(parts(0, true, 256, 1).len(), 1);
}

fn suite(every: u64, samples: u16) -> Suite {
    let text = include_str!("../../../../../configs/arithmetic.toml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.jsonl");
    let line = |i: u32| format!("{{\"prompt\": \"{i}+1=\", \"label\": {}}}\n", i + 1);
    std::fs::write(&file, (0..3).map(line).collect::<String>()).unwrap();
    let more = format!(
        "[eval.suites.mine]\nsource = \"jsonl:{}\"\nevery = {every}\nsamples = {samples}\n",
        file.display()
    );
    let config = RunConfig::parse(&format!("{text}\n{more}"), std::path::Path::new("x.toml")).unwrap();
    let workflow = rollout::workflow::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let host = Host::start(workflow, None);
    Suite::open_all(&config, &host, None).unwrap().remove(0)
}

#[tokio::test]
async fn a_suite_is_due_at_the_first_evaluation_at_each_nth_and_at_the_last() {
    let suites = [suite(3, 2)];
    let plays = |this, before, last| Program::of(&suites, this, before, last).parts.len();
    // One chunk greedy, one sampled.
    assert_eq!(plays(0, None, false), 2);
    assert_eq!((plays(1, Some(0), false), plays(2, Some(1), false)), (0, 0));
    assert_eq!((plays(3, Some(2), false), plays(4, Some(3), false)), (2, 0));
    // An asynchronous run may come to its evaluation so late that others fall out: the suite's turn does not.
    assert_eq!((plays(4, Some(2), false), plays(5, Some(4), false)), (2, 0));
    assert_eq!((plays(8, Some(5), false), plays(10, Some(8), false)), (2, 2));
    assert_eq!(plays(4, Some(4), true), 2);
    // Without evaluations on the way there is the last one alone.
    assert_eq!(plays(0, None, true), 2);
    assert_eq!(
        Program::of(&[suite(1, 0)], 0, None, false).parts.len(),
        1,
        "greedy alone"
    );
}

/// A run whose grader is a rule, with a suite that the agent `b` judges.
const JUDGED: &str = r#"
    [run]
    name = "judged-suite"
    mode = "async"
    train_steps = 1
    [tasks]
    source = "generator:arithmetic"
    [workflow]
    kind = "solo"
    group_size = 2
    roles = { solver = "a" }
    params = { prompts = "short" }
    [graders.correct]
    kind = "integer"
    [graders.judged]
    kind = "judge"
    timeout = "60s"
    judge = { agent = "b", scale = [0, 10] }
    [eval]
    every = 1
    [eval.suites.mine]
    source = "generator:arithmetic"
    params = { max = 12 }
    tasks = 1
    samples = 0
    grader = "judged"
    every = 1
    [defaults.agent.model.random]
    layers = 1
    hidden = 16
    heads = 2
    tokenizer = "bytes"
    [agents.a]
    [agents.b]
    train.enabled = false
"#;

/// Who judges in a suite plays no role of the run's own workflow: looked up there, a lost request would be lost for good.
#[tokio::test(start_paused = true)]
async fn a_lost_request_of_a_suites_judge_is_asked_again() {
    let mut bench = Bench::new(|config| {
        let folder = std::mem::take(&mut config.run.folder);
        *config = RunConfig::parse(JUDGED, std::path::Path::new("judged.toml")).unwrap();
        config.run.folder = folder;
    })
    .await;
    let us = &mut bench.coordinator;
    let set = &us.evals.suites[0].set;
    let (id, task) = set.tasks[0].clone();
    let spec = RunSpec {
        workflow: set.workflow.clone(),
        ..us.run_spec(&task, &id, 1)
    };
    us.open_eval(spec, Purpose::Suite { at: 0, greedy: true }, 0);
    let (group, open) = us.open.iter_mut().next().map(|(group, open)| (*group, open)).unwrap();
    let solver = open.run.take_wanted().remove(0).key;
    open.run.on_result(solver, generation(7)).unwrap();
    us.flush(&mut bench.ctx);
    assert_eq!(us.open[&group].run.outstanding(), 1);

    let judge = AgentName::new("b").unwrap();
    let queue = us.env.topology.turns(&judge);
    let mut asked = bench.bus.consume(&queue, 2).await.unwrap();
    let first: TurnFrame = broker::codec::decode(&asked.next().await.unwrap().body).unwrap();
    assert_eq!(first.requests[0].role, "grade-solver");

    let mut seq = 0;
    let mut left = |bench: &mut Bench, heard: bool| {
        seq += 1;
        if heard {
            let beat = Beat::Agent(Heartbeat { seq, ..beat(&judge, 0) });
            bench.coordinator.on_beat(beat, &mut bench.ctx);
        }
        bench.coordinator.ask_again(&mut bench.ctx);
        bench.coordinator.open[&group].run.outstanding()
    };
    assert_eq!(left(&mut bench, true), 1, "it is not silent yet");
    tokio::time::advance(SILENT * 2).await;
    assert_eq!(left(&mut bench, false), 1, "its agent is away");
    assert_eq!(left(&mut bench, true), 0, "it is lost");
    bench.coordinator.flush(&mut bench.ctx);
    let second: TurnFrame = broker::codec::decode(&asked.next().await.unwrap().body).unwrap();
    assert_eq!(second.requests, first.requests);
}
