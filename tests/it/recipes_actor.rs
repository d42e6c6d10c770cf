//! The tiny actor and verifier over RabbitMQ and Redis.

use tests::trace::{nothing_lost, train, transcripts};

use crate::recipes_pairs::play;

#[test]
fn solver_and_verifier_train_on_their_own_rewards() {
    let changes = [
        ("agents.solver.train.warm_start.steps", 350.into()),
        ("agents.verifier.train.warm_start.steps", 60.into()),
        ("eval.tasks", 100.into()),
        ("eval.pool", 10.into()),
    ];
    let run = play("up", "configs/arithmetic.toml", &changes, "3");
    for agent in ["solver", "verifier"] {
        nothing_lost(&run.folder, agent);
        let lines = train(&run.folder, agent);
        assert_eq!(lines.len(), 3, "{agent}");
        for line in lines {
            assert!(line["mismatch/on_policy_gap"].as_f64().unwrap() < 1e-4, "{line}");
            let trained = &line[format!("role/{agent}/tokens_trained")];
            assert!(trained.as_u64() > Some(0), "{line}");
        }
    }
    let transcripts = transcripts(&run.folder);
    assert!(!transcripts.is_empty());
    for transcript in transcripts {
        let turns = transcript["turns"].as_array().unwrap();
        let said: Vec<(&str, &str)> = turns
            .iter()
            .map(|turn| (turn["role"].as_str().unwrap(), turn["agent"].as_str().unwrap()))
            .collect();
        // A second attempt follows when the verifier rejects the first.
        let once = [("solver", "solver"), ("verifier", "verifier")];
        assert!(said.starts_with(&once), "{transcript}");
        assert!(
            said[2..].is_empty() || said[2..] == [("retry", "solver")],
            "{transcript}"
        );
        assert!(transcript["rewards"]["verifier"]["verdict"].is_number(), "{transcript}");
        let gained = transcript["rewards"]["verifier"]["gain"].is_number();
        assert!(gained || said.len() == 2, "{transcript}");
    }
}
