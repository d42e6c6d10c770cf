//! Settings of a configuration that the command line may replace.

use std::path::{Path, PathBuf};

use clap::Args;
use configs::{Mode, RunConfig};

use super::ended::{self, Over};
use super::host_check;
use super::longer::{self, Longer};
use crate::base::fault::Usage;
use crate::ledger::snapshot;
use crate::policy::memory::Processes;
use crate::run_folder::input_digests;
use crate::run_folder::logs::one_line;
use crate::run_folder::{Held, RunFolder};

/// Options to continue a run.
#[derive(Debug, Args)]
pub struct Resume {
    /// Continue an earlier run: its id or folder, or `latest`
    #[arg(long, value_name = "RUN")]
    pub resume: Option<String>,
    /// Folder that holds the run folders, for --resume
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

impl Resume {
    /// Returns the run to continue, or else the result of `begin`, locked for this process. The
    /// run's folder must hold one history, and its models and data sets must be on this machine.
    pub fn or_begin(
        &self,
        config: Option<&Path>,
        overrides: &Overrides,
        processes: Processes,
        begin: impl FnOnce(&Path) -> anyhow::Result<(RunConfig, RunFolder)>,
    ) -> anyhow::Result<(RunConfig, RunFolder, Held)> {
        let Some(run) = &self.resume else {
            let path = config.ok_or_else(|| Usage::new("name a configuration or --resume RUN"))?;
            let (config, folder) = begin(path)?;
            let held = folder.hold()?;
            return Ok((config, folder, held));
        };
        if overrides.any_but_steps() || config.is_some() {
            let message = "a resumed run keeps its configuration, except that --steps raises its length";
            return Err(Usage::new(message)
                .hint("leave out the other settings, or start a new run")
                .into());
        }
        let folder = self.folder(run)?;
        let held = folder.hold()?;
        let mut config = folder.config()?;
        let longer = overrides
            .steps
            .map(|steps| Longer::of(&folder, &config, steps))
            .transpose()?;
        snapshot::verify(&folder, &config)?;
        input_digests::verify(&folder, &config)?;
        host_check::require(&config, processes, Some(&folder))?;
        input_digests::models::verify(&folder, &config)?;
        if let Some(longer) = longer {
            config = longer.begin(&folder, config)?;
        } else if let Some(Over::Ended(text)) = ended::over(&folder)? {
            let advice = longer::advice(&folder, &config)?;
            eprintln!("{text}. Nothing is left to play; {advice}");
        }
        Ok((config, folder, held))
    }
}

impl Resume {
    /// Returns the folder of the run to continue. With `latest` it must be clear which run that is.
    fn folder(&self, run: &str) -> anyhow::Result<RunFolder> {
        let newest = RunFolder::find_newest(&self.runs, run)?;
        let Some(failed) = newest.run_end()?.failed else {
            return Ok(newest);
        };
        let played = RunFolder::find(&self.runs, run)?;
        if played == newest {
            return Ok(newest);
        }
        let message = format!(
            "the newest run, {}, failed before it played: {}",
            newest.run(),
            one_line(&failed.reason)
        );
        Err(Usage::new(message)
            .hint(format!(
                "name the run: --resume {} begins it again, --resume {} continues the newest one that has played",
                newest.run(),
                played.run()
            ))
            .into())
    }
}

/// The largest number that a configuration can hold: TOML has signed integers of 64 bits.
pub(super) const LARGEST: u64 = i64::MAX as u64;

#[derive(Debug, Default, Args)]
pub struct Overrides {
    /// Seed of the run
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    pub seed: Option<u64>,
    /// Optimizer batches of the lead agent
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    pub steps: Option<u64>,
    /// Mode: `sync` or `async`
    #[arg(long, value_parser = mode)]
    pub mode: Option<Mode>,
    /// Broker: `memory:`, `local:` or a server's URL
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true)]
    pub broker: Option<String>,
    /// State store: `memory:`, `local:` or a server's URL
    #[arg(long, env = "DYAD_STATE", hide_env_values = true)]
    pub state: Option<String>,
    /// Folder in which run folders are created
    #[arg(long)]
    pub folder: Option<std::path::PathBuf>,
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "sync" => Ok(Mode::Sync),
        "async" => Ok(Mode::Async),
        _ => Err("write sync or async".into()),
    }
}

impl Overrides {
    /// Returns true if a setting other than the number of steps is replaced.
    fn any_but_steps(&self) -> bool {
        let urls = self.broker.is_some() || self.state.is_some();
        urls || self.seed.is_some() || self.mode.is_some() || self.folder.is_some()
    }

    pub fn apply(&self, mut config: RunConfig) -> anyhow::Result<RunConfig> {
        let run = &mut config.run;
        run.seed = self.seed.unwrap_or(run.seed);
        run.train_steps = self.steps.unwrap_or(run.train_steps);
        run.mode = self.mode.unwrap_or(run.mode);
        if let Some(broker) = &self.broker {
            run.broker.clone_from(broker);
        }
        if let Some(state) = &self.state {
            run.state.clone_from(state);
        }
        if let Some(folder) = &self.folder {
            run.folder.clone_from(folder);
        }
        if run.train_steps == 0 {
            return Err(Usage::new("--steps must be at least 1").into());
        }
        for (option, given, problem) in [
            ("--broker", &self.broker, configs::check::broker_url(&run.broker)),
            ("--state", &self.state, configs::check::state_url(&run.state)),
        ] {
            if let (Some(_), Some(problem)) = (given, problem) {
                return Err(Usage::new(format!("{option} {problem}")).into());
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::{code, render};

    #[test]
    fn urls_of_options_are_checked_like_those_of_the_file() {
        let applied = |broker: Option<&str>, state: Option<&str>| {
            let overrides = Overrides {
                broker: broker.map(str::to_owned),
                state: state.map(str::to_owned),
                ..Overrides::default()
            };
            overrides.apply(crate::run_folder::tests::config_in(std::path::Path::new("x")))
        };
        assert!(applied(Some("amqp://h:5672/v"), Some("redis://h:6379/0")).is_ok());
        for (broker, state, option) in [
            (Some("amqp://"), None, "--broker is not understood"),
            (None, Some("redis://h:1/x"), "--state is not understood"),
            (None, Some("memory"), "--state is not understood"),
        ] {
            let error = applied(broker, state).unwrap_err();
            assert_eq!(code(&error), 2);
            assert!(render(&error).contains(option), "{error}");
        }
    }
}
