//! A run that is killed and resumed ends with the weights of an undisturbed run.

use std::time::Duration;

use tests::program::json_folder;
use tests::small::Small;
use tests::trace::{audit, batches, final_digest};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const STEPS: u64 = 24;

/// A round is the turns of two conversations; the kill may hit any point of it.
#[test]
fn a_run_killed_in_mid_round_ends_with_the_same_weights() {
    let config = Small::new().set("run.train_steps", STEPS as i64);
    let (clean, killed) = (program(), program());
    let clean_run = clean.play("run", &config.save(&clean), &[]);
    let mut running = killed.launch("run", &config.save(&killed), &[]);
    let run = killed.run_folder();
    let folder = run.to_str().unwrap().to_owned();
    for kill_after in [5, 9, 14] {
        // Metrics are written late: the run is further than they show.
        running.kill_when("some batches", PATIENCE, || batches(&run, "a") >= kill_after);
        running = killed.start(&["run", "--resume", &folder]);
    }
    running.finish(PATIENCE);
    for agent in ["a", "b"] {
        assert_eq!(
            final_digest(&run, agent),
            final_digest(&clean_run, agent),
            "agent {agent}"
        );
        let audit = audit(&run, agent);
        let counts = (
            audit.counts.trained,
            audit.counts.reserved,
            audit.counts.ready,
            audit.twice,
        );
        assert_eq!(counts, (STEPS * 2 * 128, 0, 0, 0), "agent {agent}: {audit:?}");
    }
}

#[test]
fn run_that_reaches_its_goal_says_so_and_at_which_step() {
    let program = program();
    let config = Small::new()
        .set("run.train_steps", 400)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 16)
        .set("eval.every", 2)
        .set("eval.params.objects", 4)
        .set("eval.stop_at", 0.01)
        .save(&program);
    let runs = program.runs();
    let output = program.output(&["run", &config, "--folder", runs.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let step = batches(&program.run_folder(), "a");
    assert!((1..400).contains(&step), "{step}");
    let reason = format!("eval.stop_at reached at step {step}");
    let status = program.succeed(&["status", "--run", program.run_folder().to_str().unwrap()]);
    assert!(said.contains(&reason) && status.contains(&reason), "{said}\n{status}");
    // Its goal ends it again, until the goal is removed.
    let file = program.run_folder().join("config.toml");
    let run = program.run_folder().display().to_string();
    let longer = (step + 2).to_string();
    let more = ["run", "--resume", &run, "--steps", &longer];
    let refused = program.fail(2, &more);
    let advice = format!("remove eval.stop_at from {}", file.display());
    assert!(refused.contains(&advice), "{refused}");
    let over = program.output(&["run", "--resume", &run]);
    let over = String::from_utf8_lossy(&over.stderr).into_owned();
    assert!(
        over.contains(&format!("{advice}; then --steps N above {step}")),
        "{over}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    let kept = text.lines().filter(|line| !line.starts_with("stop_at"));
    std::fs::write(&file, kept.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    program.succeed(&more);
    assert_eq!(batches(&program.run_folder(), "a"), step + 2);
}

/// Without settings that follow the length, the moments and the place in the data go on as well.
#[test]
fn run_made_longer_ends_with_the_weights_of_a_long_run() {
    let even = || Small::new().set("defaults.agent.train.entropy_final", 0.06);
    let steps = |steps: i64| even().set("run.train_steps", steps);
    let (whole, longer) = (program(), program());
    let whole_run = whole.play("run", &steps(8).save(&whole), &[]);
    let longer_run = longer.play("run", &steps(4).save(&longer), &[]);
    longer.succeed(&["run", "--resume", longer_run.to_str().unwrap(), "--steps", "8"]);
    for agent in ["a", "b"] {
        assert_eq!(
            final_digest(&longer_run, agent),
            final_digest(&whole_run, agent),
            "agent {agent}"
        );
    }
}

/// A byte of the newest state is wrong, which only its digest shows.
#[test]
fn run_with_a_damaged_newest_checkpoint_resumes_from_the_one_before() {
    let config = Small::new().set("run.train_steps", STEPS as i64);
    let (clean, damaged) = (program(), program());
    let clean_run = clean.play("run", &config.save(&clean), &[]);
    let mut running = damaged.launch("run", &config.save(&damaged), &[]);
    let run = damaged.run_folder();
    running.kill_when("some batches", PATIENCE, || batches(&run, "a") >= 10);
    let root = run.join("checkpoints/a");
    let newest = std::fs::read_to_string(root.join("LATEST")).unwrap();
    let state = root.join(newest.trim()).join("state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, text.replacen('"', "x", 1)).unwrap();
    damaged
        .start(&["run", "--resume", run.to_str().unwrap()])
        .finish(PATIENCE);
    assert_eq!(final_digest(&run, "a"), final_digest(&clean_run, "a"));
}

#[test]
fn a_finished_run_goes_on_for_more_steps() {
    for command in ["run", "up"] {
        // `up` ends its RabbitMQ with the run and starts it again on the same data.
        let program = program().with_configured_broker();
        let config = Small::new()
            .set("run.train_steps", 4)
            .set("eval.source", "generator:signal")
            .set("eval.tasks", 4)
            .set("eval.every", 100)
            .set("eval.params.objects", 16)
            .set("defaults.agent.train.optimizer.schedule", "linear");
        let run = program.play(command, &config.save(&program), &[]);
        assert_eq!(batches(&run, "a"), 4);
        let folder = run.to_str().unwrap();
        let tasks = program.file("tasks.jsonl", r#"{"prompt": "o1", "label": "o1"}"#);
        for late in [&["pause"][..], &["publish", &tasks]] {
            let refused = program.fail(2, &[late, &["--run", folder]].concat());
            assert!(
                refused.contains(" ended at ") && refused.contains(": run.train_steps reached at step 4"),
                "{late:?}: {refused}"
            );
        }
        let status = program.succeed(&["status", "--run", folder]);
        assert!(status.contains(": run.train_steps reached at step 4"), "{status}");
        let fewer = program.fail(2, &[command, "--resume", folder, "--steps", "4"]);
        assert!(fewer.contains("has 4 steps already"), "{fewer}");
        let output = program.output(&[command, "--resume", folder, "--steps", "8"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("now spans 8 steps instead of 4"), "{said}");
        assert_eq!(batches(&run, "a"), 8);
        let ended = std::fs::read_to_string(run.join("ended.json")).unwrap();
        assert!(ended.contains("run.train_steps reached at step 8"), "{ended}");
        let evaluations = json_folder(&run.join("evals"));
        let last = evaluations.iter().filter(|one| one["last"] == true);
        let mut steps: Vec<u64> = last.map(|one| one["step"].as_u64().unwrap()).collect();
        steps.sort_unstable();
        assert_eq!(steps, [4, 8], "one at each end");
        for agent in ["a", "b"] {
            let audit = audit(&run, agent);
            assert_eq!(
                (audit.counts.reserved, audit.counts.ready, audit.twice),
                (0, 0, 0),
                "{agent}: {audit:?}"
            );
        }
    }
}

/// The number of steps may be edited in the run's file; `--steps` says that it is meant.
#[test]
fn a_finished_run_goes_on_to_the_steps_of_its_edited_file() {
    let program = program();
    let config = Small::new().set("run.train_steps", 2).set("eval.every", 0);
    let run = program.play("run", &config.save(&program), &[]);
    let (file, folder) = (run.join("config.toml"), run.to_str().unwrap());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("train_steps = 2\n"), "{text}");
    std::fs::write(&file, text.replace("train_steps = 2\n", "train_steps = 4\n")).unwrap();
    let said = |args: &[&str]| String::from_utf8_lossy(&program.output(args).stderr).into_owned();
    let over = said(&["run", "--resume", folder]);
    assert!(over.contains("--steps N above 2 makes the run longer"), "{over}");
    said(&["run", "--resume", folder, "--steps", "4"]);
    assert_eq!(batches(&run, "a"), 4);
}
