//! `generator:signal`: every object of the game once per pass.

use broker::protocol::task::{Prompt, Task};
use serde_json::{Map, Value};

use super::object_word;
use crate::tasks::{Pool, TasksError};

pub(crate) struct Objects {
    objects: u64,
}

impl Objects {
    /// Makes the pool. Params: `objects` (16). The error is (key, message).
    pub(crate) fn new(params: &toml::Table) -> Result<Self, (String, String)> {
        let mut objects = 16;
        for (key, value) in params {
            match (key.as_str(), value.as_integer()) {
                ("objects", Some(value @ 1..=100_000)) => objects = value as u64,
                ("objects", _) => return Err((key.clone(), format!("{value} is not a whole number from 1 to 100000"))),
                _ => return Err((key.clone(), "there is no such setting; known are: objects, seed".into())),
            }
        }
        Ok(Self { objects })
    }
}

impl Pool for Objects {
    fn len(&self) -> u64 {
        self.objects
    }

    fn name(&self) -> &'static str {
        "signal"
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        let word = object_word(item as usize);
        let (prompt, label) = (Prompt::Text(word.clone()), Value::String(word));
        Ok(Task {
            id: None,
            workflow: Some("signal".into()),
            prompt,
            label,
            metadata: Map::new(),
            tools: None,
        })
    }
}
