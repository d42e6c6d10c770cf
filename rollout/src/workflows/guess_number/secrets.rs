//! `generator:guess-number`: every secret number once per pass.

use broker::protocol::task::Task;

use super::secret_task;
use crate::tasks::{Pool, TasksError};

pub(crate) struct Secrets {
    numbers: u64,
}

impl Secrets {
    /// Makes the pool. Params: `numbers` (8), from 0 on. The error is (key, message).
    pub(crate) fn new(params: &toml::Table) -> Result<Self, (String, String)> {
        let mut numbers = 8;
        for (key, value) in params {
            match (key.as_str(), value.as_integer()) {
                ("numbers", Some(value @ 2..=1_000_000)) => numbers = value as u64,
                ("numbers", _) => {
                    return Err((key.clone(), format!("{value} is not a whole number from 2 to 1000000")));
                }
                _ => return Err((key.clone(), "there is no such setting; known are: numbers, seed".into())),
            }
        }
        Ok(Self { numbers })
    }
}

impl Pool for Secrets {
    fn len(&self) -> u64 {
        self.numbers
    }

    fn name(&self) -> &'static str {
        "guess-number"
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        Ok(secret_task(item, self.numbers - 1))
    }
}
