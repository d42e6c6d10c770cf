//! Sources of the tasks of one pass, and the generators that make them.

use broker::protocol::task::Task;

use super::error::TasksError;

/// What gives the tasks of one pass.
pub(crate) trait Pool: Send {
    /// Tasks of one pass, at least 1.
    fn len(&self) -> u64;
    /// The name that leads the ids of its tasks.
    fn name(&self) -> &str;
    /// The task at `item`, which is below [`Pool::len`]. Its id is overwritten unless it brings one.
    fn task(&mut self, item: u64) -> Result<Task, TasksError>;
    /// Rows from which its tasks were chosen; `None` if they are made.
    fn rows(&self) -> Option<u64> {
        None
    }
    /// The pass rate of each task, if they were chosen by it.
    fn rates(&self) -> Option<&[f32]> {
        None
    }
}

/// Which part of a generator's tasks: no task is in both, whatever the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    Train,
    HeldOut,
}

/// A generator's pool, or the param that is wrong and what is wrong with it.
pub(crate) type MadePool = Result<Box<dyn Pool>, (String, String)>;

/// The generators that `tasks.source = "generator:NAME"` may name.
pub(crate) struct Generators {
    pub(crate) names: &'static [&'static str],
    /// Makes the pool of a generator from its params; `None` if there is no generator of this name.
    pub(crate) make: fn(name: &str, params: &toml::Table, split: Split) -> Option<MadePool>,
}

/// The first tasks of a pool.
pub(super) struct Limited {
    pub(super) pool: Box<dyn Pool>,
    pub(super) limit: u64,
}

impl Pool for Limited {
    fn len(&self) -> u64 {
        self.limit
    }

    fn name(&self) -> &str {
        self.pool.name()
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        self.pool.task(item)
    }

    fn rows(&self) -> Option<u64> {
        self.pool.rows()
    }
}
