//! Examples of warm starts, and what their generators share.

use broker::protocol::turn::Message;
use configs::{TasksConfig, WarmStartConfig};

use crate::random::Random;
use crate::tasks::{Split, TasksError};
use crate::workflows::arithmetic::{Arithmetic, ArithmeticProblem};

/// A prompt and the answer that the model learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub messages: Vec<Message>,
    pub answer: String,
}

pub(crate) fn problem(key: &str, message: String) -> TasksError {
    TasksError::Config {
        key: format!("warm_start.{key}"),
        message,
    }
}

/// Returns the generator's params: those of the tasks, overridden by the warm start's own.
pub(crate) fn problem_params(warm: &WarmStartConfig, tasks: &TasksConfig) -> toml::Table {
    let mut params = if tasks.source == "generator:arithmetic" {
        tasks.params.clone()
    } else {
        toml::Table::new()
    };
    params.extend(warm.params.clone());
    params.remove("seed");
    params
}

pub(crate) fn train_split(params: &toml::Table) -> Result<Arithmetic, TasksError> {
    Arithmetic::new(params, Split::Train).map_err(|(key, message)| problem(&format!("params.{key}"), message))
}

/// Takes a share from 0 to 1 out of the params.
pub(crate) fn part(params: &mut toml::Table, key: &str, default: f64) -> Result<f64, TasksError> {
    let Some(value) = params.remove(key) else {
        return Ok(default);
    };
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let wrong = || problem(&format!("params.{key}"), format!("{value} is not a part from 0 to 1"));
    number.filter(|n| (0.0..=1.0).contains(n)).ok_or_else(wrong)
}

/// Returns a wrong answer near the right one: a digit changed, or off by one or ten.
pub(crate) fn wrong_answer(item: ArithmeticProblem, random: &mut Random) -> i64 {
    let right = item.answer();
    if random.below(3) == 0 {
        let step = [1, -1, 10, -10][random.below(4) as usize];
        return right + step;
    }
    let digits = right.unsigned_abs().max(1).ilog10();
    let unit = 10i64.pow(random.below(u64::from(digits) + 1) as u32);
    let digit = right.abs() / unit % 10;
    let other = (digit + 1 + random.below(9) as i64) % 10;
    let changed = right.abs() + (other - digit) * unit;
    // Without a leading zero, which would change the length.
    if changed < unit && digits > 0 {
        right + unit
    } else {
        changed * if right < 0 { -1 } else { 1 }
    }
}
