//! The crash-point matrix: at every named step boundary the process that reaches it is killed once,
//! as `kill -9` does. The run must end exactly like an undisturbed run.
//!
//! `cargo test -p tests crash_points -- --nocapture` prints the table.

use std::path::Path;
use std::time::{Duration, Instant};

use tests::servers::Servers;
use tests::small::Small;
use tests::trace::{audit, final_digest};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(150);
const STEPS: u64 = 8;
/// Two groups of 128 conversations a batch.
const SAMPLES: u64 = STEPS * 2 * 128;

/// The result of one run.
struct Row {
    point: &'static str,
    /// Labels of processes that were started again.
    killed: Vec<String>,
    seconds: f64,
    problems: Vec<String>,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.problems.is_empty() {
            "audited, same weights".to_owned()
        } else {
            self.problems.join("; ")
        };
        write!(
            f,
            "| {:32} | {:11} | {:>5.1} s | {verdict} |",
            self.point,
            self.killed.join(" "),
            self.seconds
        )
    }
}

struct Matrix {
    servers: Servers,
    config: fn() -> Small,
    clean: [String; 2],
    rows: Vec<Row>,
}

fn small() -> Small {
    Small::new().set("run.train_steps", STEPS as i64)
}

/// Two ranks of agent a split all of its state.
fn with_ranks() -> Small {
    small()
        .set("agents.a.train.devices", vec!["cpu", "cpu"])
        .set("agents.a.train.shard", "full")
        .set("agents.a.train.checkpoint_activations", true)
        .set("agents.a.train.micro_batch_tokens", 1024)
}

/// Ranks that each hold the whole state. They meet between the passes of a batch.
fn with_whole_ranks() -> Small {
    small()
        .set("agents.a.train.devices", vec!["cpu", "cpu"])
        .set("agents.a.train.micro_batch_tokens", 256)
}

fn with_three_ranks() -> Small {
    with_ranks().set("agents.a.train.devices", vec!["cpu", "cpu", "cpu"])
}

fn digests(run: &Path) -> [String; 2] {
    ["a", "b"].map(|agent| final_digest(run, agent))
}

impl Matrix {
    fn new(config: fn() -> Small) -> Self {
        let program = program();
        let run = program.play("run", &config().save(&program), &[]);
        Self {
            servers: Servers::start(),
            config,
            clean: digests(&run),
            rows: Vec::new(),
        }
    }

    /// Plays one run in which `point` follows `terms`, once.
    fn crash(&mut self, point: &'static str, terms: &str) {
        let program = program().with_configured_broker();
        let began = Instant::now();
        let config = (self.config)()
            .set("run.broker", self.servers.rabbit.url())
            .set("run.state", self.servers.redis.url())
            .save(&program);
        let once = program.home().join("fired");
        std::fs::create_dir(&once).unwrap();
        let mut running = program.launch(
            "up",
            &config,
            &[
                ("DYAD_FAILPOINTS", &format!("{point}={terms}")),
                ("DYAD_FAILPOINTS_ONCE", once.to_str().unwrap()),
            ],
        );
        let mut problems = Vec::new();
        problems.extend(running.ends_well(PATIENCE).err());
        let run = program.run_folder();
        if !once.join(point.replace('/', "_")).exists() {
            problems.push("the point was never reached".into());
        }
        let again = running.supervised().into_iter();
        let killed: Vec<String> = again
            .filter(|(_, text)| text.contains("starting again in"))
            .map(|(label, _)| label)
            .collect();
        if killed.len() != 1 {
            problems.push(format!("started again: {killed:?}"));
        }
        if problems.is_empty() {
            for agent in ["a", "b"] {
                let audit = audit(&run, agent);
                if (audit.counts.trained, audit.twice, audit.missing, audit.counts.reserved) != (SAMPLES, 0, 0, 0) {
                    problems.push(format!("{agent}: {audit:?}"));
                }
            }
            if digests(&run) != self.clean {
                problems.push(format!("{:?} is not {:?}", digests(&run), self.clean));
            }
        } else {
            problems.push(running.log());
        }
        let row = Row {
            point,
            killed,
            seconds: began.elapsed().as_secs_f64(),
            problems,
        };
        println!("{row}");
        self.rows.push(row);
    }

    /// Asserts that no run had a problem.
    fn end(self) {
        let bad = self.rows.iter().filter(|row| !row.problems.is_empty());
        let bad: Vec<String> = bad.map(ToString::to_string).collect();
        assert!(
            bad.is_empty(),
            "{} of {}:\n{}",
            bad.len(),
            self.rows.len(),
            bad.join("\n")
        );
    }
}

#[test]
fn crash_points_of_an_agent() {
    let mut matrix = Matrix::new(small);
    for (point, terms) in [
        ("lineage.begun", "kill"),
        ("reserve.stored", "2*off->kill"),
        ("reserve.answered", "2*off->kill"),
        ("turn.generated", "3*off->kill"),
        ("turn.published", "3*off->kill"),
        ("part.staged", "4*off->kill"),
        ("group.closed", "5*off->kill"),
        ("ledger.uncommitted", "40*off->kill"),
        ("ledger.committed", "40*off->kill"),
        ("verdict.recorded", "5*off->kill"),
        ("step.taken", "5*off->kill"),
        ("weights.published", "5*off->kill"),
        ("weights.arrived", "6*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

/// The second checkpoint: the first is that of step 0.
#[test]
fn crash_points_of_a_checkpoint() {
    let mut matrix = Matrix::new(small);
    for (point, terms) in [
        ("checkpoint.config.json", "1*off->kill"),
        ("checkpoint.model.safetensors", "1*off->kill"),
        ("checkpoint.optimizer.safetensors", "1*off->kill"),
        ("checkpoint.tokenizer.json", "1*off->kill"),
        ("checkpoint.state.json", "1*off->kill"),
        ("checkpoint.manifest.json", "1*off->kill"),
        ("checkpoint.rename", "1*off->kill"),
        ("checkpoint.LATEST", "1*off->kill"),
        ("checkpoint.move LATEST", "1*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

#[test]
fn crash_points_of_a_coordinator() {
    let mut matrix = Matrix::new(small);
    for (point, terms) in [
        ("task.in-custody", "5*off->kill"),
        ("group.claimed", "5*off->kill"),
        ("turn.part-committed", "8*off->kill"),
        ("turn.committed", "5*off->kill"),
        ("group.decided", "5*off->kill"),
        ("bundle.part-sent", "9*off->kill"),
        ("bundle.sent", "5*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

/// The exchanges of ranks that split everything, in the agent's own process (0) and in that of rank
/// 1. The agent starts again with both.
#[test]
fn crash_points_of_ranks() {
    let mut matrix = Matrix::new(with_ranks);
    for (point, terms) in [
        ("exchange.begun/AllGather.0", "60*off->kill"),
        ("exchange.done/AllGather.1", "90*off->kill"),
        ("exchange.begun/ReduceScatter.1", "10*off->kill"),
        ("exchange.done/ReduceScatter.0", "10*off->kill"),
        ("exchange.begun/Broadcast.1", "20*off->kill"),
        ("exchange.done/Broadcast.0", "20*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn crash_points_of_ranks_that_add_whole_gradients() {
    let mut matrix = Matrix::new(with_whole_ranks);
    for (point, terms) in [
        ("exchange.begun/AllReduce.1", "4*off->kill"),
        ("exchange.done/AllReduce.0", "4*off->kill"),
        ("exchange.begun/Barrier.1", "4*off->kill"),
        ("exchange.done/Barrier.0", "6*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

/// The second checkpoint, a publication, and the end: ranks that split everything meet at a barrier
/// only when the trainer has ended.
#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn crash_points_of_ranks_around_a_checkpoint_and_at_the_end() {
    let mut matrix = Matrix::new(with_ranks);
    for (point, terms) in [
        ("weights.published", "5*off->kill"),
        ("checkpoint.rename", "1*off->kill"),
        ("checkpoint.LATEST", "1*off->kill"),
        ("checkpoint.move LATEST", "1*off->kill"),
        ("exchange.begun/Barrier.1", "kill"),
        ("exchange.begun/Barrier.0", "kill"),
        ("exchange.done/Barrier.0", "kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}

#[test]
#[ignore = "slow: `make test-long`; its neighbours show the same promise"]
fn crash_points_of_three_ranks() {
    let mut matrix = Matrix::new(with_three_ranks);
    for (point, terms) in [
        ("exchange.begun/AllGather.2", "60*off->kill"),
        ("exchange.done/ReduceScatter.1", "10*off->kill"),
        ("exchange.begun/Broadcast.2", "20*off->kill"),
        ("exchange.done/Broadcast.0", "20*off->kill"),
    ] {
        matrix.crash(point, terms);
    }
    matrix.end();
}
