//! Opens the sources of `tasks.source`.

use std::path::Path;

use configs::{EvalConfig, MixConfig, TasksConfig};

use super::curriculum::Stages;
use super::error::TasksError;
use super::files::Files;
use super::lane::Lane;
use super::mix::{Schedule, Share};
use super::pool::{Generators, Limited, Pool, Split};
use super::rows::CONVERT;
use super::table::Table;

/// The sources of a run, and their schedule if there are several.
pub(super) type OpenedSources = (Vec<Lane>, Option<Schedule>);

/// Opens a source or a mix; `None` for `queue`. `section` leads the keys in errors.
pub(super) fn open(
    generators: &Generators,
    config: &TasksConfig,
    order: (u64, Split),
    section: &str,
) -> Result<Option<OpenedSources>, TasksError> {
    match config.source.as_str() {
        "queue" => Ok(None),
        "mix" => mix(generators, config, order, section).map(Some),
        _ => Ok(Some((vec![lane(generators, config, order, section, None)?], None))),
    }
}

/// Returns the source of an evaluation's tasks, as [`crate::tasks::TaskSource::open_eval`] reads
/// it; `None` if there is none.
pub(crate) fn held_out(eval: &EvalConfig, tasks: &TasksConfig) -> Option<TasksConfig> {
    let mut config = match &eval.source {
        Some(source) => TasksConfig {
            params: eval.params.clone(),
            ..tasks.on(source.clone())
        },
        // Files have no held-out part.
        None if !tasks.source.starts_with("generator:") => return None,
        None => {
            let mut config = tasks.on(tasks.source.clone());
            config.params.clone_from(&tasks.params);
            config.params.extend(eval.params.clone());
            config
        }
    };
    if let Some(prompt) = &eval.prompt {
        config.prompt.clone_from(prompt);
    }
    if let Some(label) = &eval.label {
        config.label.clone_from(label);
    }
    // Rows with other keys are from a different file, and its ids and tools have other keys too.
    let own_rows = eval.prompt.is_some() || eval.label.is_some();
    if eval.id.is_some() || own_rows {
        config.id.clone_from(&eval.id);
    }
    config.tools = eval.tools_key(tasks);
    config.slice.clone_from(&eval.slice);
    config.filter.clone_from(&eval.filter);
    (config.epochs, config.limit) = (1, eval.tasks);
    Some(config)
}

fn problem(section: &str, key: &str, message: String) -> TasksError {
    TasksError::Config {
        key: format!("{section}.{key}"),
        message,
    }
}

/// Opens a single source, or the source `own` of a mix.
fn lane(
    generators: &Generators,
    config: &TasksConfig,
    (seed, split): (u64, Split),
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
    let generator = config.source.strip_prefix("generator:");
    let made = generator.and_then(|name| (generators.make)(name, &params, split));
    let pool: Box<dyn Pool> = match (files, made) {
        (Some(files), _) => Box::new(Table::open(files, config, section, own)?),
        (None, Some(made)) => made.map_err(at)?,
        (None, None) => return Err(problem(section, "source", no_source(generators, &config.source))),
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

fn no_source(generators: &Generators, source: &str) -> String {
    let generators: Vec<String> = generators
        .names
        .iter()
        .map(|name| format!("generator:{name}"))
        .collect();
    if let Some(kind @ ("csv" | "tsv")) = source.split_once(':').map(|(kind, _)| kind) {
        return format!(
            "{source:?} is no source of tasks: {} is not read: {CONVERT}",
            kind.to_uppercase()
        );
    }
    if let Some(kind) = kind_of(source) {
        return format!("{source:?} is no source of tasks: did you mean {kind}:{source}?");
    }
    format!(
        "{source:?} is no source of tasks: write jsonl:PATH, parquet:PATH, arrow:PATH, hf:FOLDER[:SPLIT], {}, mix or queue",
        generators.join(", ")
    )
}

/// Returns the kind of source that reads a bare path.
fn kind_of(path: &str) -> Option<&'static str> {
    let stem = [".gz", ".zst"].iter().find_map(|end| path.strip_suffix(end));
    match Path::new(stem.unwrap_or(path)).extension().and_then(|end| end.to_str()) {
        Some("jsonl" | "ndjson" | "json") => Some("jsonl"),
        Some("parquet") => Some("parquet"),
        Some("arrow") => Some("arrow"),
        _ => Path::new(path).is_dir().then_some("hf"),
    }
}

fn mix(
    generators: &Generators,
    config: &TasksConfig,
    order: (u64, Split),
    section: &str,
) -> Result<OpenedSources, TasksError> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut shares: Vec<Share> = Vec::new();
    for (index, own) in config.mix.iter().enumerate() {
        let section = format!("{section}.mix.{index}");
        let Some(part) = config.part(index) else { continue };
        let lane = lane(generators, &part, order, &section, Some(own))?;
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
