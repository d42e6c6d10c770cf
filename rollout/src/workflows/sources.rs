//! The tasks that a configuration names: those of files, and those of the games' generators.

use configs::{EvalConfig, TasksConfig};

use super::arithmetic::Arithmetic;
use super::guess_number::secrets::Secrets;
use super::signal::objects::Objects;
use crate::tasks::{EVAL, Generators, MadePool, Pool, SUITES, Split, TaskSource, TasksError, held_out};

/// The generators of the games.
const GENERATORS: Generators = Generators {
    names: &["signal", "guess-number", "arithmetic"],
    make,
};

fn make(name: &str, params: &toml::Table, split: Split) -> Option<MadePool> {
    fn boxed<P: Pool + 'static>(made: Result<P, (String, String)>) -> MadePool {
        Ok(Box::new(made?))
    }
    match name {
        "signal" => Some(boxed(Objects::new(params))),
        "guess-number" => Some(boxed(Secrets::new(params))),
        "arithmetic" => Some(boxed(Arithmetic::new(params, split))),
        _ => None,
    }
}

impl TaskSource {
    /// Opens `tasks.source`; `None` if it is `queue`, which has only published tasks. A file is
    /// read once to the end, so that a bad line is found before the run begins.
    ///
    /// `seed` is the run's; a `seed` among the params replaces it.
    pub fn open(config: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        Self::open_with(&GENERATORS, config, seed, Split::Train, "tasks")
    }

    /// Opens the tasks of evaluations: `eval.source`, read with its own keys or those of `[tasks]`,
    /// and held-out tasks where a generator has them. It takes `eval.tasks` of them (all, if not
    /// given), in one pass, the same ones each time. A row that repeats unchanged is one task.
    /// Returns `None` if there is no source.
    pub fn open_eval(eval: &EvalConfig, tasks: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        open_held_out(eval, tasks, seed, EVAL)
    }

    /// Opens the tasks of the suite `name`, as [`TaskSource::open_eval`] opens those of
    /// evaluations. Several of them may have the same id.
    pub fn open_suite(
        name: &str,
        eval: &EvalConfig,
        tasks: &TasksConfig,
        seed: u64,
    ) -> Result<Option<Self>, TasksError> {
        open_held_out(eval, tasks, seed, &format!("{SUITES}{name}"))
    }
}

fn open_held_out(
    eval: &EvalConfig,
    tasks: &TasksConfig,
    seed: u64,
    section: &str,
) -> Result<Option<TaskSource>, TasksError> {
    match held_out(eval, tasks) {
        None => Ok(None),
        Some(config) => TaskSource::open_with(&GENERATORS, &config, seed, Split::HeldOut, section),
    }
}
