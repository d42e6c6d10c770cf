//! The times at which suites are due, and the parts that they are cut into.

use configs::RunConfig;

use super::*;
use crate::participant::Host;

#[test]
fn a_suite_is_cut_into_chunks_of_whole_tasks() {
    assert_eq!(parts(0, true, 0, 1), []);
    let cut = parts(1, false, 21, 32);
    let tasks: Vec<Range<usize>> = cut.iter().map(|part| part.tasks.clone()).collect();
    assert_eq!(tasks, [0..8, 8..16, 16..21]);
    assert!(cut.iter().all(|part| part.suite == 1 && !part.greedy));
    // The samples of a task stay together.
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
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
    let host = Host::start(workflow, None);
    Suite::open_all(&config, &host, None).unwrap().remove(0)
}

#[tokio::test]
async fn a_suite_is_due_first_last_and_at_each_nth_evaluation() {
    let suites = [suite(3, 2)];
    let plays = |this, before, last| Program::of(&suites, this, before, last).parts.len();
    // One chunk greedy, one sampled.
    assert_eq!(plays(0, None, false), 2);
    assert_eq!((plays(1, Some(0), false), plays(2, Some(1), false)), (0, 0));
    assert_eq!((plays(3, Some(2), false), plays(4, Some(3), false)), (2, 0));
    // An asynchronous run may come to an evaluation so late that others are left out. The suite's
    // turn is not left out.
    assert_eq!((plays(4, Some(2), false), plays(5, Some(4), false)), (2, 0));
    assert_eq!((plays(8, Some(5), false), plays(10, Some(8), false)), (2, 2));
    assert_eq!(plays(4, Some(4), true), 2);
    // Without evaluations before it, there is the last one alone.
    assert_eq!(plays(0, None, true), 2);
    assert_eq!(
        Program::of(&[suite(1, 0)], 0, None, false).parts.len(),
        1,
        "greedy alone"
    );
}
