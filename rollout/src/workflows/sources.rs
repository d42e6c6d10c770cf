//! The tasks that a configuration names: those of files, and those that the games' generators make.

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
    /// Opens `tasks.source`; `None` if it is `queue`, which has only what others publish. A file is read once to the end,
    /// so that a bad line is found before the run begins.
    ///
    /// `seed` is the run's; a `seed` among the params takes its place.
    pub fn open(config: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        Self::open_with(&GENERATORS, config, seed, Split::Train, "tasks")
    }

    /// Opens the tasks of evaluations: `eval.source` read with its own keys or those of `[tasks]`, held-out tasks where a generator has them,
    /// `eval.tasks` of them (all, if not given), one pass, the same ones each time; a row that comes again as it was is one task. `None` if
    /// there is no source to take them from.
    pub fn open_eval(eval: &EvalConfig, tasks: &TasksConfig, seed: u64) -> Result<Option<Self>, TasksError> {
        open_held_out(eval, tasks, seed, EVAL)
    }

    /// Opens the tasks of the suite `name`, as [`TaskSource::open_eval`] does those of evaluations. Several of them may bring one id.
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
