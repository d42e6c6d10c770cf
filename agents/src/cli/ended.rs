//! The end of a run in words, for commands that need a live one.

use std::path::PathBuf;

use configs::RunConfig;

use super::select::RUN_HINT;
use crate::base::fault::{Unavailable, Usage};
use crate::ledger::{Inspector, completion};
use crate::run_folder::RunFolder;

/// The kind of a run's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Over {
    /// Every agent has written its last checkpoint.
    Ended(String),
    /// The run failed before it played. It fails again until its user corrects the cause.
    Failed(String),
    /// The run was interrupted and may be continued.
    Stopped(String),
}

impl Over {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Ended(text) | Self::Failed(text) | Self::Stopped(text) => text,
        }
    }

    /// Returns true if no process of the run can be alive, whatever broker it used.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Failed(_))
    }

    /// Returns the error of a command that needs a live run. A run that is over for good does not
    /// come back by trying again.
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Ended(text) | Self::Failed(text) => Usage::new(text).hint(RUN_HINT).into(),
            Self::Stopped(message) => Unavailable {
                message,
                hint: Some(RUN_HINT.into()),
            }
            .into(),
        }
    }
}

/// Returns how and why the run is over, or `None` if it may be live.
pub(super) fn over(folder: &RunFolder) -> anyhow::Result<Option<Over>> {
    over_with(folder, &folder.config()?)
}

/// Returns the same as [`over`] for a caller that has the run's configuration.
pub(super) fn over_with(folder: &RunFolder, config: &RunConfig) -> anyhow::Result<Option<Over>> {
    let end = folder.run_end()?;
    let run = folder.run();
    if completion::all(folder, &config.participants()) {
        let why = end.ended.map(|end| format!(" at {}: {}", end.time(), end.reason));
        return Ok(Some(Over::Ended(format!("run {run} ended{}", why.unwrap_or_default()))));
    }
    if let Some(failed) = end.failed {
        return Ok(Some(Over::Failed(format!(
            "run {run} failed at {} before it played: {}; correct that, then start a new run or use --resume {run}",
            failed.time(),
            failed.reason
        ))));
    }
    if let Some(stop) = end.stopped {
        return Ok(Some(Over::Stopped(format!(
            "run {run} was stopped at {}: {}; continue it with --resume {run}",
            stop.time(),
            stop.reason
        ))));
    }
    let killed = is_private(config) && folder.connection()?.is_some() && !folder.is_held();
    Ok(killed.then(|| {
        Over::Stopped(format!(
            "run {run} has no process any more, and no end was recorded: it was killed, or its machine went down; \
             continue it with --resume {run}"
        ))
    }))
}

/// Returns true if the run's messages end with the process that plays it.
pub(super) fn is_private(config: &RunConfig) -> bool {
    matches!(config.run.broker.as_str(), "local:" | "memory:")
}

/// Records in the run folder why the run ended by itself with an error, unless an end is recorded:
/// that it failed before it played, or that it was stopped. The run's outcome matters more than an
/// error of the record.
pub(super) fn note_failure(folder: &RunFolder, outcome: &anyhow::Result<()>) {
    let Err(error) = outcome else { return };
    let reason = causes(error).replace('\n', " ");
    let note = || {
        let end = folder.run_end()?;
        if end.stopped.is_some() || end.ended.is_some() {
            Ok(())
        } else if has_played(folder)? {
            anyhow::Ok(folder.set_stopped(&reason)?)
        } else {
            Ok(folder.set_failed(&reason)?)
        }
    };
    if let Err(error) = note() {
        tracing::warn!(%error, "the failure was not recorded in the run folder");
    }
}

/// Returns the error with its causes, without those that the text before already ends with.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns true if the run has closed a group or evaluated.
fn has_played(folder: &RunFolder) -> anyhow::Result<bool> {
    let has_lines = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() > 0);
    if folder.files("evals")?.iter().any(has_lines) {
        return Ok(true);
    }
    for name in folder.config()?.participants() {
        if let Some(ledger) = Inspector::find(&folder.ledger(&name))?
            && ledger.closed()? > 0
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns an error if the run is over for good, since nothing reaches it any more.
pub(super) fn require_open(folder: &RunFolder) -> anyhow::Result<()> {
    match over(folder)? {
        Some(over) if over.is_final() => Err(over.into_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ledger::{ENDED, Ledger};
    use crate::run_folder::tests::config_in;

    /// Makes the folder of a run of which every agent has ended.
    pub(in crate::cli) fn ended_run(base: &std::path::Path) -> RunFolder {
        let config = config_in(base);
        let folder = RunFolder::create(base, &config, None).unwrap();
        folder.set_ended("eval.stop_at reached at step 460").unwrap();
        for name in config.participants() {
            let mut ledger = Ledger::open(&folder.ledger(&name), folder.run(), &name).unwrap();
            ledger.set_note(ENDED, "1.460").unwrap();
        }
        folder
    }

    #[test]
    fn ended_run_says_when_and_why() {
        let base = tempfile::tempdir().unwrap();
        let folder = ended_run(base.path());
        let text = over(&folder).unwrap().unwrap().text().to_owned();
        assert!(text.starts_with(&format!("run {} ended at 2", folder.run())), "{text}");
        assert!(text.ends_with(" UTC: eval.stop_at reached at step 460"), "{text}");
        assert!(require_open(&folder).is_err());
    }

    #[test]
    fn stopped_run_names_its_resume() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        assert_eq!(over(&folder).unwrap(), None);
        folder.set_stopped("Ctrl-C or SIGTERM").unwrap();
        let text = over(&folder).unwrap().unwrap().text().to_owned();
        assert!(text.contains("Ctrl-C or SIGTERM; continue it with --resume"), "{text}");
        require_open(&folder).unwrap();
    }

    #[test]
    fn run_that_was_killed_names_its_resume() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let connection = crate::run_folder::Connection {
            broker: "memory:".into(),
            state: "memory:".into(),
        };
        folder.set_connection(&connection).unwrap();
        let held = folder.hold().unwrap();
        assert_eq!(over(&folder).unwrap(), None);
        drop(held);
        let over = over(&folder).unwrap().unwrap();
        assert!(
            over.text().contains("it was killed, or its machine went down"),
            "{over:?}"
        );
        assert!(over.text().ends_with(&format!("--resume {}", folder.run())), "{over:?}");
    }

    #[test]
    fn cause_that_its_context_repeats_is_written_once() {
        let cause = anyhow::anyhow!("No such file")
            .context("opening x: No such file")
            .context("reading a model");
        assert_eq!(causes(&cause), "reading a model: opening x: No such file");
        assert_eq!(causes(&anyhow::anyhow!("why").context("what")), "what: why");
    }

    #[test]
    fn failure_is_recorded_as_the_end_of_a_run_that_has_none() {
        let base = tempfile::tempdir().unwrap();
        let failed = || Err(anyhow::anyhow!("the port is taken\n  by another"));
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        note_failure(&folder, &Ok(()));
        assert_eq!(over(&folder).unwrap(), None);
        note_failure(&folder, &failed());
        let text = over(&folder).unwrap().unwrap().text().to_owned();
        assert!(
            text.contains("before it played: the port is taken   by another; correct that"),
            "{text}"
        );
        let refused = require_open(&folder).unwrap_err();
        assert_eq!(crate::cli::exit_code::code(&refused), 2, "{refused:#}");
        folder.set_continued().unwrap();
        std::fs::create_dir_all(folder.evals("run").parent().unwrap()).unwrap();
        std::fs::write(folder.evals("run"), "{}\n").unwrap();
        note_failure(&folder, &failed());
        let text = over(&folder).unwrap().unwrap().text().to_owned();
        assert!(
            text.contains("was stopped at") && text.contains(": the port is taken"),
            "{text}"
        );
        require_open(&folder).unwrap();
        let ended = ended_run(base.path());
        note_failure(&ended, &failed());
        assert!(ended.run_end().unwrap().failed.is_none());
        let stopped = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        stopped.set_stopped("Ctrl-C or SIGTERM").unwrap();
        note_failure(&stopped, &failed());
        let end = stopped.run_end().unwrap();
        assert!(end.failed.is_none() && end.stopped.unwrap().reason == "Ctrl-C or SIGTERM");
    }

    #[test]
    fn private_broker_of_an_ended_run_is_not_blamed() {
        let base = tempfile::tempdir().unwrap();
        let error = super::super::select::broker_url(None, Some(&ended_run(base.path()))).unwrap_err();
        assert!(format!("{error:#}").contains("eval.stop_at reached"), "{error:#}");
    }
}
