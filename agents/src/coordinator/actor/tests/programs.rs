//! Questions that programs are asked for a group.

use std::sync::Arc;

use broker::protocol::failure::Failure;
use broker::protocol::turn::Message;
use configs::Mode;
use rollout::workflow::program::Question;

use crate::coordinator::actor::bench::{Bench, settle, speaker, task};
use crate::coordinator::play::ProgramTurn;
use crate::participant::Host;

#[tokio::test]
async fn a_closing_group_gives_its_questions_up() {
    let mut bench = Bench::new(|config| config.run.mode = Mode::Async).await;
    let (group, lease) = bench.open("t").await;
    let key = speaker(0);
    let (host, mut asked) = Host::silent(bench.env().workflow.clone(), &key.role);
    let question = Question::Grade {
        role: "speaker".into(),
        text: "s1".into(),
        task: (*task("t")).clone(),
    };
    let turn = ProgramTurn {
        host: Arc::new(host),
        group,
        attempt: lease.attempt,
        key,
        messages: vec![Message::user(serde_json::to_string(&question).unwrap())],
    };
    bench.coordinator.ask_programs(vec![turn], &mut bench.ctx);
    let reply = asked.recv().await.unwrap();
    settle().await;
    assert!(!reply.is_closed(), "its answer is waited for");

    bench.change(group, |open| {
        (0..4).for_each(|member| open.run.give_up(member, Failure::other("for the test")));
    });
    bench.coordinator.close(group, &mut bench.ctx);
    settle().await;
    assert!(bench.group(&group).closing, "its bundles are not confirmed yet");
    assert!(reply.is_closed());
}
