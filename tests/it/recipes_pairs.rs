//! Two adapters over one base, teams of three roles, and pairs that earn at each other's cost, over
//! RabbitMQ and Redis.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::program::{Program, metrics};
use tests::small::Small;
use tests::trace::{checkpoint, digests, nothing_lost, train, transcripts};

use crate::program;

/// A finished run: its output and its folder.
pub(crate) struct Played {
    program: Program,
    printed: String,
    pub(crate) folder: PathBuf,
}

pub(crate) fn play(how: &str, config: &str, changes: &[(&str, toml::Value)], steps: &str) -> Played {
    let program = program();
    let file = Small::of(config).set_all(changes).save(&program);
    let runs = program.runs();
    let printed = program.succeed(&[how, &file, "--steps", steps, "--folder", runs.to_str().unwrap()]);
    let folder = program.run_folder();
    Played {
        program,
        printed,
        folder,
    }
}

fn adapter(checkpoint: &Path) -> Vec<u8> {
    std::fs::read(checkpoint.join("adapter_model.safetensors")).unwrap()
}

#[test]
fn two_adapters_over_one_base_learn_the_known_answers() {
    let run = play("up", "configs/two-lora.toml", &[], "100");
    for agent in ["a", "b"] {
        nothing_lost(&run.folder, agent);
        let losses: Vec<f64> = train(&run.folder, agent)
            .iter()
            .map(|line| line["loss"].as_f64().unwrap())
            .collect();
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < 0.6 * first, "{agent}: {first} -> {last}");
        assert!(
            run.printed.contains(&format!("Agent {agent} train_cross_entropy=")),
            "{}",
            run.printed
        );
    }
    assert!(run.printed.contains("Mode: concurrent two-client"), "{}", run.printed);
    assert_ne!(
        adapter(&checkpoint(&run.folder, "a")),
        adapter(&checkpoint(&run.folder, "b"))
    );
    let models: Vec<_> = std::fs::read_dir(run.folder.join("models")).unwrap().collect();
    assert_eq!(models.len(), 1, "one base: {models:?}");
}

#[test]
fn one_client_takes_turns_with_itself() {
    let changes = [
        ("workflow.roles.second", "a".into()),
        ("workflow.params.clients", "any".into()),
    ];
    let program = program();
    let config = Small::of("configs/two-lora.toml").set_all(&changes);
    let (file, runs) = (config.without("agents.b").save(&program), program.runs());
    let printed = program.succeed(&["run", &file, "--steps", "20", "--folder", runs.to_str().unwrap()]);
    assert!(printed.contains("Mode: single-client role switching"), "{printed}");
    assert!(
        printed.contains("Agent a (first) response:") && printed.contains("Agent a (second) response:"),
        "{printed}"
    );
    let lines = metrics(&program.run_folder(), "train");
    assert_eq!(lines.len(), 20);
    assert!(
        lines
            .iter()
            .all(|line| line["reward/first"].is_f64() && line["reward/second"].is_f64())
    );
    assert!(
        lines.iter().all(|line| line["samples"] == 128),
        "both answers of 64 conversations"
    );
}

#[test]
fn two_clients_with_different_bases_are_refused_with_a_fix() {
    let program = program();
    let config = Small::of("configs/two-lora.toml").set("agents.b.model.random.layers", 3);
    let said = program.fail(2, &["run", &config.save(&program)]);
    assert!(
        said.contains("a and b have different bases: give both the same model"),
        "{said}"
    );
}

#[test]
fn two_adapters_train_on_the_rewards_of_their_answers() {
    let changes = [
        ("agents.a.train.warm_start.steps", 60.into()),
        ("agents.b.train.warm_start.steps", 60.into()),
        ("eval.tasks", 20.into()),
    ];
    let run = play("up", "configs/two-lora-rewards.toml", &changes, "4");
    for agent in ["a", "b"] {
        nothing_lost(&run.folder, agent);
        let lines = train(&run.folder, agent);
        // Sampler and trainer agree about an adapter over a shared base.
        assert!(
            lines
                .iter()
                .all(|line| line["mismatch/on_policy_gap"].as_f64().unwrap() < 1e-4),
            "{lines:?}"
        );
        assert!(
            run.printed.contains(&format!("Agent {agent} train_loss=")),
            "{}",
            run.printed
        );
    }
}

/// Asserts that every role of every agent speaks and is trained, with the sampler's log-probs.
fn solved_rewritten_and_selected(config: &str, agents: &[(&str, &[&str])]) {
    let mut changes: Vec<(String, toml::Value)> = agents
        .iter()
        .map(|(agent, _)| (format!("agents.{agent}.train.warm_start.steps"), 40.into()))
        .collect();
    changes.push(("eval.tasks".into(), 10.into()));
    let changes: Vec<(&str, toml::Value)> = changes
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let run = play("up", config, &changes, "3");
    for (agent, roles) in agents {
        nothing_lost(&run.folder, agent);
        let lines = train(&run.folder, agent);
        assert_eq!(lines.len(), 3, "{agent}");
        for line in lines {
            assert!(line["mismatch/on_policy_gap"].as_f64().unwrap() < 1e-4, "{line}");
            for role in *roles {
                assert!(
                    line[format!("role/{role}/tokens_trained")].as_u64() > Some(0),
                    "{role}: {line}"
                );
                assert!(line[format!("reward_std/{role}")].is_f64(), "{role}: {line}");
                // It is there only if tokens on policy were measured.
                let gap = line[format!("role/{role}/on_policy_gap")].as_f64();
                assert!(gap.is_some_and(|gap| gap < 1e-4), "{role}: {line}");
                assert!(
                    line[format!("role/{role}/ratio_max")].as_f64() > Some(0.99),
                    "{role}: {line}"
                );
            }
        }
    }
    for transcript in transcripts(&run.folder) {
        let turns = transcript["turns"].as_array().unwrap();
        let seats = |role: &str| turns.iter().filter(|turn| turn["role"] == role).count();
        assert_eq!(seats("solver"), 3, "{transcript}");
        assert!(
            [0, 3].contains(&seats("rewriter")) && seats("selector") <= 1,
            "{transcript}"
        );
        for role in ["solver", "rewriter", "selector"] {
            let player = agents.iter().find(|(_, roles)| roles.contains(&role)).unwrap().0;
            let own = turns.iter().filter(|turn| turn["role"] == role);
            assert!(own.into_iter().all(|turn| turn["agent"] == player), "{transcript}");
        }
    }
}

#[test]
fn one_agent_solves_rewrites_and_selects() {
    let roles: &[&str] = &["solver", "rewriter", "selector"];
    solved_rewritten_and_selected("configs/solve-rewrite-select.toml", &[("all", roles)]);
}

#[test]
fn three_agents_solve_rewrite_and_select() {
    let agents: [(&str, &[&str]); 3] = [
        ("solver", &["solver"]),
        ("rewriter", &["rewriter"]),
        ("selector", &["selector"]),
    ];
    solved_rewritten_and_selected("configs/solve-rewrite-select-team.toml", &agents);
}

#[test]
fn proposer_and_solver_meet_a_fixed_opponent_and_alarms_ring() {
    let changes = [
        ("agents.proposer.train.alarms.entropy", 100.0.into()),
        ("eval.floors.success", 2.0.into()),
    ];
    let run = play("up", "configs/adversarial.toml", &changes, "20");
    nothing_lost(&run.folder, "proposer");
    nothing_lost(&run.folder, "solver");
    assert!(
        !run.folder.join("checkpoints/past").exists(),
        "a frozen opponent trains nothing"
    );
    let proposer = train(&run.folder, "proposer");
    assert!(
        proposer.iter().all(|line| line["collapse/alarms"].as_u64() > Some(0)),
        "{proposer:?}"
    );
    assert!(
        proposer.iter().all(|line| line["collapse/sameness"].is_f64()),
        "{proposer:?}"
    );
    let evals = metrics(&run.folder, "eval");
    assert!(evals.iter().all(|line| line["collapse/alarms"] == 1), "{evals:?}");
    let transcripts = transcripts(&run.folder);
    for solver in ["solver", "past"] {
        let met = |t: &&Value| t["turns"].as_array().unwrap().iter().any(|turn| turn["role"] == solver);
        let fixed = |t: &Value| t["metrics"]["win_fixed"].is_f64();
        let against: Vec<&Value> = transcripts.iter().filter(met).collect();
        assert!(!against.is_empty(), "no agent met {solver}");
        assert!(against.iter().all(|t| fixed(t) == (solver == "past")), "{against:?}");
    }
    // A trained agent's transcript has the group's comparison; an untrained one's has the reason
    // for its absence.
    let played = transcripts.iter().filter(|t| t["eval"].is_null());
    let seats: Vec<(&String, &Value)> = played.filter_map(|t| t["earned"].as_object()).flatten().collect();
    let of = |role: &'static str| {
        seats
            .iter()
            .filter(move |(seat, _)| seat.split('/').next() == Some(role))
    };
    assert!(
        of("solver").any(|(_, earned)| earned["compared"]["advantage"].is_f64()),
        "{seats:?}"
    );
    assert!(of("past").count() > 0);
    for (_, earned) in of("past") {
        assert!(earned["compared"].is_null(), "{earned}");
        assert_eq!(earned["not_compared"], "its agent does not train");
    }
}

#[test]
fn a_past_version_and_a_frozen_adversary_can_be_opponents() {
    let first = play("up", "configs/thinker-adversary.toml", &[], "4");
    for agent in ["thinker", "adversary"] {
        nothing_lost(&first.folder, agent);
    }
    let past = checkpoint(&first.folder, "adversary");
    let model: toml::Table = format!("path = {past:?}").parse().unwrap();
    let changes = [
        // It replaces the random model of the defaults.
        ("agents.past1.model", model.into()),
        ("agents.adversary.train.enabled", false.into()),
    ];
    let second = play("up", "configs/thinker-adversary.toml", &changes, "4");
    nothing_lost(&second.folder, "thinker");
    assert!(!second.folder.join("checkpoints/adversary").exists(), "it is frozen");
    let roles: std::collections::BTreeSet<String> = transcripts(&second.folder)
        .iter()
        .flat_map(|t| t["turns"].as_array().unwrap().clone())
        .map(|turn| turn["role"].as_str().unwrap().to_owned())
        .collect();
    let all = ["adversary", "defender", "past1", "past2", "thinker"].map(str::to_owned);
    assert_eq!(roles, all.into());
}

/// Returns the turns of the opponent that renews itself, as (renewal, step of its weights), and
/// asserts the rules of every such run.
fn renewals(run: &Played) -> Vec<(u64, u64)> {
    nothing_lost(&run.folder, "thinker");
    nothing_lost(&run.folder, "adversary");
    assert!(!run.folder.join("checkpoints/past").exists(), "it trains nothing");
    // A renewal in progress at the end still has another name.
    let names = std::fs::read_dir(run.folder.join("past/past")).unwrap();
    let kept = names
        .filter(|entry| !entry.as_ref().unwrap().file_name().to_string_lossy().contains('.'))
        .count();
    assert!(
        // The oldest is removed once the newest serves; the run may end in between.
        (1..=4).contains(&kept),
        "{kept} models of the past, and three are enough"
    );
    let turns = transcripts(&run.folder)
        .into_iter()
        .flat_map(|t| t["turns"].as_array().unwrap().clone());
    let played = turns.filter(|turn| turn["role"] == "past");
    let version = |turn: Value| {
        let version = turn["version"].as_str().unwrap();
        let (lineage, step) = version.split_once('.').unwrap();
        let lineage: u64 = lineage.parse().unwrap();
        assert!(lineage > 0, "it played with its own weights: {turn}");
        (lineage - 1, step.parse().unwrap())
    };
    played.map(version).collect()
}

const RENEWING: [(&str, i64); 2] = [
    ("agents.adversary.train.checkpoint_every", 2),
    ("agents.adversary.train.keep_checkpoints", 1),
];

/// Fourteen steps of the thinker are about nine of the adversary, which plays in a third of the
/// groups: four renewals.
fn renewing(mode: &str) -> Vec<(&'static str, toml::Value)> {
    let past = "of = \"adversary\"\nevery = 2\nkeep = 3"
        .parse::<toml::Table>()
        .unwrap();
    let mut changes: Vec<(&str, toml::Value)> = RENEWING.map(|(key, value)| (key, value.into())).into();
    changes.push(("agents.past.past", past.into()));
    changes.push(("run.mode", mode.into()));
    changes.push(("run.transcripts", "all".into()));
    changes
}

#[test]
fn a_renewed_opponent_is_the_same_in_one_process_and_in_many() {
    let config = "configs/thinker-adversary-past.toml";
    let up = play("up", config, &renewing("sync"), "14");
    let run = play("run", config, &renewing("sync"), "14");
    assert_eq!(digests(&up.folder), digests(&run.folder));
    let played = renewals(&up);
    let distinct: std::collections::BTreeSet<(u64, u64)> = played.iter().copied().collect();
    let numbers: std::collections::BTreeSet<u64> = distinct.iter().map(|(renewal, _)| *renewal).collect();
    assert_eq!(distinct.len(), numbers.len(), "one draw for each renewal: {distinct:?}");
    assert!(numbers.len() >= 3, "{distinct:?}");
    for (renewal, step) in &distinct {
        let range = renewal.saturating_sub(2) * 2..=renewal * 2;
        assert!(step % 2 == 0 && range.contains(step), "{distinct:?}");
    }
    assert_eq!(distinct, renewals(&run).into_iter().collect());
    // Wins against fixed opponents are counted apart from wins against the renewed one.
    for transcript in transcripts(&up.folder) {
        let met = |role: &str| {
            transcript["turns"]
                .as_array()
                .unwrap()
                .iter()
                .any(|turn| turn["role"] == role)
        };
        for (role, name) in [("first", "win_fixed"), ("past", "win_past")] {
            assert_eq!(transcript["metrics"][name].is_f64(), met(role), "{transcript}");
        }
    }
    // Afterwards it plays with the weights of the agent that it renews from.
    let printed = run.program.succeed(&["eval", "--run", run.folder.to_str().unwrap()]);
    let weights = |agent: &str| {
        let found = printed
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{agent}: ")));
        found
            .unwrap_or_else(|| panic!("{agent} is not in {printed}"))
            .to_owned()
    };
    assert_eq!(weights("past"), weights("adversary"));
    assert!(weights("past").contains(" step "), "{printed}");
}

#[test]
fn an_opponent_renews_itself_as_checkpoints_come() {
    let run = play("up", "configs/thinker-adversary-past.toml", &renewing("async"), "14");
    let played = renewals(&run);
    assert!(!played.is_empty(), "no agent met the past");
}
