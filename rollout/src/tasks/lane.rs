//! One source in its order: round after round over its tasks, each task once in a round.

use broker::protocol::task::Task;

use super::curriculum::{Stages, task_key};
use super::error::TasksError;
use super::pool::Pool;
use crate::random::Random;

/// The metadata key with the name of the source, for tasks of a mix.
const SOURCE: &str = "task_source";

/// One source of a run's tasks.
pub(super) struct Lane {
    pub(super) pool: Box<dyn Pool>,
    /// Its name among the sources of a mix; none if it is the only source.
    name: Option<String>,
    seed: u64,
    shuffle: bool,
    stages: Option<Stages>,
    /// True if its tasks are generated and not read from files.
    pub(super) generated: bool,
    /// The order of the round that was last requested; none if it is the order of the items.
    order: Option<(u32, Option<Vec<u32>>)>,
}

impl Lane {
    pub(super) fn new(pool: Box<dyn Pool>, seed: u64, shuffle: bool, stages: Option<Stages>, generated: bool) -> Self {
        Self {
            pool,
            name: None,
            seed,
            shuffle,
            stages,
            generated,
            order: None,
        }
    }

    /// Gives the source its name among several.
    pub(super) fn named(self, name: String) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.pool.name())
    }

    pub(super) fn len(&self) -> u64 {
        self.pool.len()
    }

    /// Returns the task at `position` of `round`. Its id is distinct from those of other rounds and
    /// of other sources of the mix.
    pub(super) fn task(&mut self, round: u32, position: u64) -> Result<Task, TasksError> {
        let item = self.item(round, position);
        let task = self.pool.task(item)?;
        Ok(self.placed(task, round, position))
    }

    /// Returns the task and its key for pass rates: the row's content, without the changes that
    /// this lane makes.
    pub(super) fn task_and_key(&mut self, round: u32, position: u64) -> Result<(Task, String), TasksError> {
        let item = self.item(round, position);
        let task = self.pool.task(item)?;
        let key = task_key(&task);
        Ok((self.placed(task, round, position), key))
    }

    fn placed(&self, mut task: Task, round: u32, position: u64) -> Task {
        let id = match (task.id.take(), &self.name) {
            (Some(id), None) => in_round(&id, round),
            (Some(id), Some(name)) => in_round(&format!("{name}/{id}"), round),
            (None, _) => format!("{}/{round}/{position}", self.name()),
        };
        if let Some(name) = &self.name {
            task.metadata.insert(SOURCE.into(), name.as_str().into());
        }
        task.id = Some(id);
        task
    }

    fn item(&mut self, round: u32, position: u64) -> u64 {
        if self.order.as_ref().is_none_or(|(known, _)| *known != round) {
            self.order = Some((round, self.make_order(round)));
        }
        let order = self.order.as_ref().and_then(|(_, order)| order.as_ref());
        let item = order.and_then(|order| order.get(position as usize));
        item.map_or(position, |item| u64::from(*item))
    }

    fn make_order(&self, round: u32) -> Option<Vec<u32>> {
        let random = || match &self.name {
            None => Random::new("dyad task order v1", self.seed, &[u64::from(round)]),
            Some(name) => {
                let of_name = blake3::hash(name.as_bytes());
                let mut bytes = [0u8; 8];
                bytes.copy_from_slice(&of_name.as_bytes()[..8]);
                Random::new(
                    "dyad mixed task order v1",
                    self.seed,
                    &[u64::from_le_bytes(bytes), u64::from(round)],
                )
            }
        };
        let staged = self
            .stages
            .as_ref()
            .and_then(|stages| stages.order(round, self.shuffle.then(random)));
        staged.or_else(|| self.shuffle.then(|| random().permutation(self.pool.len() as usize)))
    }
}

fn in_round(id: &str, round: u32) -> String {
    if round == 0 {
        id.to_owned()
    } else {
        format!("{id}#{round}")
    }
}
