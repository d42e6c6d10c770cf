//! Sources of the tasks of one pass, and the generators that make them.

use broker::protocol::task::Task;

use super::error::TasksError;

/// A source of the tasks of one pass.
pub(crate) trait Pool: Send {
    /// Returns the number of tasks of one pass, at least 1.
    fn len(&self) -> u64;
    /// Returns the name that leads the ids of its tasks.
    fn name(&self) -> &str;
    /// Returns the task at `item`, which is below [`Pool::len`]. The caller overwrites its id
    /// unless the row gives one.
    fn task(&mut self, item: u64) -> Result<Task, TasksError>;
    /// Returns the number of rows from which its tasks were chosen; `None` if they are generated.
    fn rows(&self) -> Option<u64> {
        None
    }
    /// Returns the file and the line or row of a task; `None` if it is generated.
    fn place(&self, _item: u64) -> Option<String> {
        None
    }
    /// Returns the pass rate of each task, if tasks were chosen by it.
    fn rates(&self) -> Option<&[f32]> {
        None
    }
}

/// A part of a generator's tasks. No task is in both parts, whatever the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    Train,
    HeldOut,
}

/// A generator's pool, or the param that is wrong and the reason.
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

    fn place(&self, item: u64) -> Option<String> {
        self.pool.place(item)
    }
}
