//! A suite with a judge that plays no role of the run's own workflow.

use broker::AgentName;
use broker::bus::Bus;
use broker::protocol::control::{Beat, Heartbeat};
use broker::protocol::turn::TurnFrame;
use configs::RunConfig;
use rollout::group::RunSpec;

use crate::coordinator::actor::bench::{Bench, beat, generation};
use crate::coordinator::evaluation::EvalGroup;
use crate::coordinator::play::SILENT;
use crate::coordinator::specs::Purpose;

/// A run with a rule as its grader, with a suite that the agent `b` judges.
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

/// The judge of a suite plays no role of the run's own workflow. Looked up there, a lost request
/// would never be asked again.
#[tokio::test(start_paused = true)]
async fn a_lost_request_of_a_suites_judge_is_asked_again() {
    let mut bench = Bench::new(|config| {
        let folder = std::mem::take(&mut config.run.folder);
        *config = RunConfig::parse(JUDGED, std::path::Path::new("judged.toml")).unwrap();
        config.run.folder = folder;
    })
    .await;
    let us = &mut bench.coordinator;
    let suite = &us.specs.suites()[0];
    let (id, task) = suite.tasks()[0].clone();
    let spec = RunSpec {
        workflow: suite.workflow().clone(),
        ..us.specs.run_spec(&task, &id, 1)
    };
    let purpose = Purpose::Suite { at: 0, greedy: true };
    us.open_evaluation(vec![EvalGroup {
        spec,
        purpose,
        index: 0,
    }]);
    let group = us.play.iter().next().map(|(group, _)| *group).unwrap();
    us.play.change(group, |open| {
        let solver = open.run.take_wanted().remove(0).key;
        open.run.on_result(solver, generation(7)).unwrap();
    });
    us.flush(&mut bench.ctx);
    assert_eq!(us.play.get(&group).unwrap().run.outstanding(), 1);

    let judge = AgentName::new("b").unwrap();
    let queue = us.env.topology.turns(&judge);
    let mut asked = bench.bus.consume(&queue, 2).await.unwrap();
    let first: TurnFrame = broker::codec::decode(&asked.next().await.unwrap().body).unwrap();
    assert_eq!(first.requests[0].role, "grade-solver");

    let mut seq = 0;
    let mut left = |bench: &mut Bench, beats: bool| {
        seq += 1;
        if beats {
            let beat = Beat::Agent(Heartbeat { seq, ..beat(&judge, 0) });
            bench.coordinator.on_beat(beat, &mut bench.ctx);
        }
        bench.coordinator.ask_again(&mut bench.ctx);
        bench.group(&group).run.outstanding()
    };
    assert_eq!(left(&mut bench, true), 1, "it is not silent yet");
    tokio::time::advance(SILENT * 2).await;
    assert_eq!(left(&mut bench, false), 1, "its agent is away");
    assert_eq!(left(&mut bench, true), 0, "it is lost");
    bench.coordinator.flush(&mut bench.ctx);
    let second: TurnFrame = broker::codec::decode(&asked.next().await.unwrap().body).unwrap();
    assert_eq!(second.requests, first.requests);
}
