//! Finds the weights that a command selects with `--run` and `--checkpoint`.

use std::collections::BTreeMap;
use std::path::Path;

use broker::AgentName;
use configs::RunConfig;

use crate::base::fault::Usage;
use crate::eval::weights::Chosen;
use crate::run_folder::RunFolder;

/// Returns the run that `RUN`, `RUN@N` or `RUN@initial` names.
pub(super) fn find_run(runs: &Path, text: &str) -> anyhow::Result<RunFolder> {
    // The path of a run folder may contain `@` itself.
    let run = match text.rsplit_once('@') {
        Some((run, _)) if !Path::new(text).join("run.json").is_file() => run,
        _ => text,
    };
    Ok(RunFolder::find(runs, run)?)
}

/// Replaces `AGENT=initial` by `AGENT=RUN@initial` if the configuration comes from a run. A run
/// records the commits of its models, so its initial weights are those with which it began.
pub(super) fn pin_initial(given: &[String], run: Option<&RunFolder>) -> Vec<String> {
    let pinned = |text: &String| match (text.strip_suffix("=initial"), run) {
        (Some(agent), Some(run)) => format!("{agent}={}@initial", run.path().display()),
        _ => text.clone(),
    };
    given.iter().map(pinned).collect()
}

/// Returns the weights of each agent that plays a role or judges: those of its own `--checkpoint`,
/// else of `run`, else the initial ones.
pub(in crate::cli) fn chosen(
    checkpoints: &[String],
    run: Option<&str>,
    runs: &Path,
    config: &RunConfig,
) -> anyhow::Result<BTreeMap<AgentName, Chosen>> {
    let mut given = BTreeMap::new();
    for text in checkpoints {
        let (agent, place) = text
            .split_once('=')
            .ok_or_else(|| Usage::new(format!("--checkpoint {text}: write AGENT=WHERE")))?;
        let known = config.participants().into_iter().find(|name| name.as_str() == agent);
        let names: Vec<String> = config.participants().iter().map(ToString::to_string).collect();
        let agent = known.ok_or_else(|| {
            Usage::new(format!("--checkpoint {text}: agent {agent} plays no role"))
                .hint(format!("agents with a role: {}", names.join(", ")))
        })?;
        if given.insert(agent, place).is_some() {
            return Err(Usage::new(format!(
                "--checkpoint {text}: this agent already has a --checkpoint; give each agent one"
            ))
            .into());
        }
    }
    let mut chosen = BTreeMap::new();
    for agent in config.participants() {
        let text = given.get(&agent).copied().or(run);
        let weights = match text {
            Some(text) => Chosen::find(text, runs, config, &agent)?,
            None => Chosen::begins(config, &agent)?,
        };
        chosen.insert(agent, weights);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use configs::ModelConfig;

    use super::*;
    use crate::eval::engines;
    use crate::run_folder::tests::config_in;

    #[tokio::test]
    async fn initial_weights_of_a_run_use_its_pinned_commit() {
        let base = tempfile::tempdir().unwrap();
        let mut config = config_in(base.path());
        for agent in config.agents.values_mut() {
            agent.model = ModelConfig::Path("org/model".into());
        }
        let run = RunFolder::create(base.path(), &config, None).unwrap();
        for agent in ["a", "b"] {
            let pin = run.path().join(format!("pinned.{agent}.json"));
            std::fs::write(pin, r#"{"org/model": "aaaa"}"#).unwrap();
        }
        let error_of = |given: &[String], run: Option<&str>| {
            let chosen = chosen(given, run, base.path(), &config).unwrap();
            let error = engines::start(&config, &chosen, base.path()).err().unwrap();
            format!("{error:#}")
        };
        let initial = ["a=initial".to_owned(), "b=initial".to_owned()];
        let pinned = pin_initial(&initial, Some(&run));
        for error in [
            error_of(&[], Some("latest@initial")),
            error_of(&pinned, Some("latest@initial")),
        ] {
            assert!(error.contains("`hf download org/model --revision aaaa`"), "{error}");
        }
        assert_eq!(pin_initial(&initial, None), initial);
        let error = error_of(&initial, None);
        assert!(
            error.contains("`hf download org/model`"),
            "without a run no commit is pinned: {error}"
        );
    }
}
