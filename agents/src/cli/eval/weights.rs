//! The weights that a command names.

use std::collections::BTreeMap;
use std::path::Path;

use broker::AgentName;
use configs::RunConfig;

use crate::base::fault::Usage;
use crate::eval::weights::Chosen;
use crate::run_folder::RunFolder;

/// Returns the run that `RUN`, `RUN@N` or `RUN@initial` names.
pub(super) fn home(runs: &Path, text: &str) -> anyhow::Result<RunFolder> {
    let run = match text.rsplit_once('@') {
        Some((run, _)) if !Path::new(text).join("run.json").is_file() => run,
        _ => text,
    };
    Ok(RunFolder::find(runs, run)?)
}

/// Replaces `initial` by `RUN@initial` if the configuration comes from a run. The weights are then
/// those of the model commits with which the run began.
pub(super) fn checkpoints(given: &[String], run: Option<&RunFolder>) -> Vec<String> {
    let meant = |text: &String| match (text.strip_suffix("=initial"), run) {
        (Some(agent), Some(run)) => format!("{agent}={}@initial", run.path().display()),
        _ => text.clone(),
    };
    given.iter().map(meant).collect()
}

/// Returns each participant's weights: its own `--checkpoint`, else the run's, else the initial
/// ones.
pub(in crate::cli) fn chosen(
    checkpoints: &[String],
    run: Option<&str>,
    runs: &Path,
    config: &RunConfig,
) -> anyhow::Result<BTreeMap<AgentName, Chosen>> {
    let mut given = BTreeMap::new();
    for text in checkpoints {
        let (agent, at) = text
            .split_once('=')
            .ok_or_else(|| Usage::new(format!("--checkpoint {text}: write AGENT=WHERE")))?;
        let known = config.participants().into_iter().find(|name| name.as_str() == agent);
        let names: Vec<String> = config.participants().iter().map(ToString::to_string).collect();
        let agent = known.ok_or_else(|| {
            Usage::new(format!("--checkpoint {text}: agent {agent} plays no role"))
                .hint(format!("agents with a role: {}", names.join(", ")))
        })?;
        if given.insert(agent, at).is_some() {
            return Err(Usage::new(format!("--checkpoint {text}: the agent is named twice")).into());
        }
    }
    let mut chosen = BTreeMap::new();
    for agent in config.participants() {
        let text = given.get(&agent).copied().or(run);
        let one = match text {
            Some(text) => Chosen::find(text, runs, config, &agent)?,
            None => Chosen::begins(config, &agent)?,
        };
        chosen.insert(agent, one);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use configs::ModelConfig;

    use super::*;
    use crate::eval::engines;
    use crate::run_folder::tests::config_in;

    #[test]
    fn initial_weights_of_a_run_use_its_pinned_commit() {
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
        let asked = |given: &[String], run: Option<&str>| {
            let chosen = chosen(given, run, base.path(), &config).unwrap();
            let error = engines::start(&config, &chosen, base.path()).err().unwrap();
            format!("{error:#}")
        };
        let begins = ["a=initial".to_owned(), "b=initial".to_owned()];
        let pinned = checkpoints(&begins, Some(&run));
        for said in [
            asked(&[], Some("latest@initial")),
            asked(&pinned, Some("latest@initial")),
        ] {
            assert!(said.contains("`hf download org/model --revision aaaa`"), "{said}");
        }
        assert_eq!(checkpoints(&begins, None), begins);
        let said = asked(&begins, None);
        assert!(
            said.contains("`hf download org/model`"),
            "a configuration alone: {said}"
        );
    }
}
