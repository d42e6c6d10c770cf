//! From `tasks.source` to sources that can be asked.

use configs::{MixConfig, TasksConfig};

use super::curriculum::Stages;
use super::files::Files;
use super::lane::Lane;
use super::mix::{Schedule, Share};
use super::table::Table;
use super::{Limited, Pool, TasksError};
use crate::workflows::arithmetic::{Arithmetic, Split};
use crate::workflows::guess_number::secrets::Secrets;
use crate::workflows::signal::objects::Objects;

/// The sources of a run, and how they are mixed if there are several.
pub(super) type Opened = (Vec<Lane>, Option<Schedule>);

/// Opens a source or a mix; `None` for `queue`. `section` leads the keys in errors.
pub(super) fn open(config: &TasksConfig, seed: u64, split: Split, section: &str) -> Result<Option<Opened>, TasksError> {
    match config.source.as_str() {
        "queue" => Ok(None),
        "mix" => mix(config, seed, split, section).map(Some),
        _ => Ok(Some((vec![lane(config, seed, split, section, None)?], None))),
    }
}

fn problem(section: &str, key: &str, message: String) -> TasksError {
    TasksError::Config {
        key: format!("{section}.{key}"),
        message,
    }
}

/// A source by itself, or as `own` of a mix.
fn lane(
    config: &TasksConfig,
    seed: u64,
    split: Split,
    section: &str,
    own: Option<&MixConfig>,
) -> Result<Lane, TasksError> {
    let mut params = config.params.clone();
    let seed = match params.remove("seed") {
        None => seed,
        Some(toml::Value::Integer(seed)) if seed >= 0 => seed as u64,
        Some(other) => {
            let message = format!("{other} is not a whole number from 0");
            return Err(problem(section, "params.seed", message));
        }
    };
    let at = |(key, message): (String, String)| problem(section, &format!("params.{key}"), message);
    let files = Files::of(&config.source).transpose();
    let files = files.map_err(|message| problem(section, "source", message))?;
    let pool: Box<dyn Pool> = match (files, config.source.split_once(':')) {
        (Some(files), _) => Box::new(Table::open(files, config, section, own)?),
        (None, Some(("generator", "signal"))) => Box::new(Objects::new(&params).map_err(at)?),
        (None, Some(("generator", "guess-number"))) => Box::new(Secrets::new(&params).map_err(at)?),
        (None, Some(("generator", "arithmetic"))) => Box::new(Arithmetic::new(&params, split).map_err(at)?),
        _ => {
            let known = "write jsonl:PATH, parquet:PATH, arrow:PATH, hf:FOLDER[:SPLIT], generator:signal, \
                         generator:guess-number, generator:arithmetic, mix or queue";
            let message = format!("{:?} is no source of tasks: {known}", config.source);
            return Err(problem(section, "source", message));
        }
    };
    let limit = config.limit.unwrap_or(u64::MAX).clamp(1, pool.len());
    let rates = pool.rates().and_then(|rates| rates.get(..limit as usize));
    let stages = config.curriculum.as_ref().zip(rates);
    let stages = stages.and_then(|(config, rates)| Stages::new(config, rates));
    let generated = config.source.starts_with("generator:");
    let shuffle = config.shuffle || generated;
    let pool = Box::new(Limited { pool, limit });
    Ok(Lane::new(pool, seed, shuffle, stages, generated))
}

fn mix(config: &TasksConfig, seed: u64, split: Split, section: &str) -> Result<Opened, TasksError> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut shares: Vec<Share> = Vec::new();
    for (index, own) in config.mix.iter().enumerate() {
        let section = format!("{section}.mix.{index}");
        let Some(part) = config.part(index) else { continue };
        let lane = lane(&part, seed, split, &section, Some(own))?;
        let name = own.name.clone().unwrap_or_else(|| lane.name().to_owned());
        if name.is_empty() || shares.iter().any(|other| other.name == name) {
            let message =
                format!("is missing: {name:?} is no name that this source has alone, and task ids begin with it");
            return Err(problem(&section, "name", message));
        }
        shares.push(Share {
            name: name.clone(),
            tasks: lane.len(),
            weight: own.weight,
        });
        lanes.push(lane.named(name));
    }
    let schedule = Schedule::new(&shares, config.stopping, config.limit);
    let schedule = schedule.map_err(|message| problem(section, "mix", message))?;
    Ok((lanes, Some(schedule)))
}
