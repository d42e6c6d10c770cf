//! The table of runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dashboard::answer::ApiError;
use crate::dashboard::runs::{Runs, State, state};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::lines::Backward;
use crate::stats::summary;

/// The most runs of an answer.
const MOST: usize = 200;
/// Lines from the end of a metrics file among which the newest batch is looked for.
const LAST_LINES: usize = 50;
/// Places of a long metrics file that are read for a curve, and the bytes that are read at each.
const PLACES: u64 = 9;
const PLACE: u64 = 6 << 10;

/// The page of a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Query {
    #[schemars(range(max = 1_000_000))]
    limit: Option<usize>,
    /// The `next` of the page before.
    #[schemars(regex(pattern = r"^([0-9]{1,15}@[a-z0-9_-]+)?$"))]
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Table {
    runs: Vec<Card>,
    /// The cursor of the next page; `None` after the last one.
    next: Option<String>,
}

/// The place of a run in the table: the newest first, then by name.
type Place = (Reverse<u64>, String);

/// One run in the table.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Card {
    run: String,
    created_ms: u64,
    workflow: String,
    mode: String,
    agents: Vec<String>,
    state: State,
    /// Why the run ended or was stopped.
    reason: Option<String>,
    /// Batches of the agent that trained most, and the run's last step.
    step: Option<u64>,
    steps: Option<u64>,
    /// Mean success of each evaluation: (step, mean).
    success: Vec<(u64, f64)>,
    /// Mean reward of some batches of `run.lead`, the newest among them: (step, mean).
    reward: Vec<(u64, f64)>,
    /// Why the folder cannot be read.
    problem: Option<String>,
}

/// Sizes and times of the files that a card is made of.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// Cards of runs, until their files change.
#[derive(Default)]
pub(crate) struct Cards(Mutex<HashMap<PathBuf, (Stamp, Card)>>);

impl Cards {
    /// Returns a page of all runs.
    pub(crate) fn read(&self, runs: &Runs, query: &Query) -> Result<Table, ApiError> {
        let limit = query.limit.unwrap_or(MOST).clamp(1, MOST);
        let cursor = query.cursor.as_deref().filter(|text| !text.is_empty());
        let after = cursor.map(place).transpose()?;
        let placed = |folder: RunFolder| {
            let created = folder.info().map_or(0, |info| info.created_ms);
            ((Reverse(created), folder.run().to_string()), folder)
        };
        let mut rest: Vec<(Place, RunFolder)> = runs.all().into_iter().map(placed).collect();
        rest.retain(|(place, _)| after.as_ref().is_none_or(|after| place > after));
        rest.sort_by(|(a, _), (b, _)| a.cmp(b));
        let next = rest.get(limit).and_then(|_| rest.get(limit - 1));
        let next = next.map(|((Reverse(created), run), _)| format!("{created}@{run}"));
        rest.truncate(limit);
        Ok(Table {
            runs: rest.iter().map(|(_, folder)| self.card(folder)).collect(),
            next,
        })
    }

    /// Returns the card of one run.
    pub(crate) fn card(&self, folder: &RunFolder) -> Card {
        let stamp = stamp(folder);
        let known = {
            let cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = cards.get(folder.path());
            known.filter(|(old, _)| *old == stamp).map(|(_, card)| card.clone())
        };
        let mut card = known.unwrap_or_else(|| {
            let card = card(folder);
            let mut cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            cards.insert(folder.path().to_owned(), (stamp, card.clone()));
            card
        });
        // The state also depends on the time.
        match state(folder) {
            Ok((state, reason)) => (card.state, card.reason) = (state, reason),
            Err(error) => card.problem = Some(error.to_string()),
        }
        card
    }
}

fn place(cursor: &str) -> Result<Place, ApiError> {
    let parts = cursor.split_once('@');
    let place = parts.and_then(|(created, run)| Some((Reverse(created.parse().ok()?), run.to_owned())));
    place.ok_or_else(|| ApiError::wrong("this server did not give that cursor: begin without one"))
}

fn stamp(folder: &RunFolder) -> Stamp {
    let lines = ["metrics", "evals"].map(|part| folder.files(part).unwrap_or_default());
    let config = folder.path().join("config.toml");
    let stamp = |path: PathBuf| {
        let data = fs::metadata(&path).ok();
        let changed = data.as_ref().and_then(|data| data.modified().ok());
        (path, data.map_or(0, |data| data.len()), changed)
    };
    lines.into_iter().flatten().chain([config]).map(stamp).collect()
}

fn card(folder: &RunFolder) -> Card {
    let mut card = Card {
        run: folder.run().to_string(),
        created_ms: 0,
        workflow: String::new(),
        mode: String::new(),
        agents: Vec::new(),
        state: State::Silent,
        reason: None,
        step: None,
        steps: None,
        success: Vec::new(),
        reward: Vec::new(),
        problem: None,
    };
    if let Err(error) = fill(&mut card, folder) {
        card.problem = Some(format!("{error:#}"));
    }
    card
}

/// Reads the keys that are needed: checking a whole configuration takes longer.
fn fill(card: &mut Card, folder: &RunFolder) -> anyhow::Result<()> {
    card.created_ms = folder.info()?.created_ms;
    let config: toml::Table = fs::read_to_string(folder.path().join("config.toml"))?.parse()?;
    let section = |name: &str| config.get(name).and_then(toml::Value::as_table);
    let text = |section: Option<&toml::Table>, key: &str| {
        let value = section.and_then(|section| section.get(key)?.as_str());
        value.unwrap_or_default().to_owned()
    };
    card.workflow = text(section("workflow"), "kind");
    card.mode = text(section("run"), "mode");
    let steps = section("run").and_then(|run| run.get("train_steps")?.as_integer());
    card.steps = steps.and_then(|steps| u64::try_from(steps).ok());
    card.agents = section("agents")
        .map(|agents| agents.keys().cloned().collect())
        .unwrap_or_default();
    let step = |batch: &Value| batch.get("step")?.as_u64();
    let files = folder.files("metrics")?;
    let newest: Vec<Option<Value>> = files.iter().map(|path| last_batch(path)).collect();
    card.step = newest.iter().flatten().filter_map(step).max();
    let lead = Some(text(section("run"), "lead")).filter(|lead| !lead.is_empty());
    let lead = lead.or_else(|| card.agents.iter().min().cloned());
    let is_of_lead = |path: &Path| path.file_stem().and_then(OsStr::to_str) == lead.as_deref();
    let mut known = files.iter().zip(&newest);
    let of_lead = known.find(|(path, _)| is_of_lead(path));
    let of_lead = of_lead.map(|(path, newest)| rewards(path, newest.as_ref()));
    card.reward = of_lead.transpose()?.unwrap_or_default();
    let evaluations = summary::evaluations(folder)?;
    let means = evaluations
        .iter()
        .filter_map(|(step, one)| Some((*step, one.mean("success")?)));
    card.success = means.collect();
    Ok(())
}

/// Returns the newest batch in a metrics file.
fn last_batch(path: &Path) -> Option<Value> {
    let mut lines = Backward::open(path, None).ok()?;
    for _ in 0..LAST_LINES {
        let (_, line) = lines.next_line().ok()??;
        if let Some(line) = batch(&line) {
            return Some(line);
        }
    }
    None
}

/// Returns a line of a metrics file if it is a batch.
fn batch(line: &[u8]) -> Option<Value> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let is_batch = line.get("kind").and_then(Value::as_str) == Some("train");
    is_batch.then_some(line)
}

/// Returns steps and mean rewards of batches of a metrics file: all of a short file; of a long one
/// a few that are spread over it, and the newest.
fn rewards(path: &Path, newest: Option<&Value>) -> io::Result<Vec<(u64, f64)>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let (places, size) = if length <= PLACES * PLACE {
        (1, length)
    } else {
        (PLACES, PLACE)
    };
    let mut found: BTreeMap<u64, f64> = BTreeMap::new();
    let mut keep = |batch: &Value| {
        let step = batch.get("step").and_then(Value::as_u64);
        let reward = batch.get("reward/mean").and_then(Value::as_f64);
        found.extend(step.zip(reward));
    };
    for place in 0..places {
        let start = length / places * place;
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        file.by_ref().take(size).read_to_end(&mut part)?;
        // It begins and ends inside a line.
        let lines = part.split_inclusive(|byte| *byte == b'\n').skip(usize::from(start > 0));
        let batches = lines.filter_map(batch);
        batches
            .take(if places == 1 { usize::MAX } else { 1 })
            .for_each(|batch| keep(&batch));
    }
    newest.into_iter().for_each(keep);
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::run_folder::tests::{bytes_read, config_in};

    #[test]
    fn table_shows_steps_and_follows_new_lines() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let (cards, runs) = (Cards::default(), Runs::below(base.path()));
        let shown = || cards.read(&runs, &Query::default()).unwrap().runs.remove(0);
        let card = shown();
        assert_eq!(
            (card.workflow.as_str(), card.steps, card.step),
            ("signal", Some(3), None)
        );
        assert_eq!(
            (card.agents, card.problem),
            (vec!["a".to_owned(), "b".to_owned()], None)
        );
        let line = "{\"kind\":\"train\",\"step\":2,\"agent\":\"a\"}\n{\"kind\":\"checkpoint\",\"step\":2}\n";
        fs::write(folder.metrics("a"), line).unwrap();
        let card = shown();
        assert_eq!((card.step, card.state), (Some(2), State::Live));
        fs::write(folder.path().join("config.toml"), "= broken").unwrap();
        assert!(shown().problem.is_some());
    }

    #[test]
    fn pages_have_each_run_once_and_the_newest_first() {
        let base = tempfile::tempdir().unwrap();
        for _ in 0..5 {
            RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        }
        let (cards, runs) = (Cards::default(), Runs::below(base.path()));
        let all = cards.read(&runs, &Query::default()).unwrap();
        assert_eq!((all.runs.len(), &all.next), (5, &None));
        let (mut found, mut query) = (Vec::new(), Query::default());
        query.limit = Some(2);
        loop {
            let table = cards.read(&runs, &query).unwrap();
            found.extend(table.runs);
            query.cursor = table.next;
            if query.cursor.is_none() {
                break;
            }
        }
        let key = |card: &Card| (Reverse(card.created_ms), card.run.clone());
        assert!(found.is_sorted_by_key(key));
        let names = |cards: &[Card]| cards.iter().map(|card| card.run.clone()).collect::<Vec<_>>();
        assert_eq!(names(&found), names(&all.runs));
        query.cursor = Some("newest".into());
        assert_eq!(cards.read(&runs, &query).unwrap_err().status, 400);
    }

    /// Adds text to a file that seems to be an hour old then.
    fn append_as_old(path: &Path, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
    }

    /// Makes a run that ended an hour ago, with these lines of metrics.
    fn ended_run(base: &Path, lines: &str) -> RunFolder {
        let folder = RunFolder::create(base, &config_in(base), None).unwrap();
        let end = "{\"ended\": {\"reason\": \"steps\", \"at_ms\": 1}}";
        fs::write(folder.path().join("ended.json"), end).unwrap();
        append_as_old(&folder.path().join("run.json"), "");
        append_as_old(&folder.metrics("a"), lines);
        folder
    }

    #[test]
    fn look_at_200_runs_reads_ends_and_then_what_changed() {
        const RUNS: u64 = 200;
        const SMALL: u64 = 8 << 10;
        let base = tempfile::tempdir().unwrap();
        let line = |step: u64| {
            let reward = step as f64 / 2.0;
            format!("{{\"kind\":\"train\",\"step\":{step},\"agent\":\"a\",\"reward/mean\":{reward}}}\n")
        };
        let few = line(1) + &line(2);
        for _ in 1..RUNS {
            ended_run(base.path(), &few);
        }
        let long = ended_run(base.path(), &(0..200_000).map(line).collect::<String>());
        let (cards, runs) = (Cards::default(), Runs::below(base.path()));
        let look = || {
            let before = bytes_read();
            let table = cards.read(&runs, &Query::default()).unwrap();
            let read = bytes_read() - before;
            assert_eq!(table.runs.len() as u64, RUNS);
            let is_shown = |card: &Card| card.state == State::Ended && card.problem.is_none();
            assert!(table.runs.iter().all(is_shown), "{:?}", table.runs);
            let newest = table.runs.iter().find(|card| card.run == long.run().as_str()).unwrap();
            let is_spread = newest.reward.len() == PLACES as usize + 1 && newest.reward[5].0 > 100_000;
            assert!(is_spread && newest.reward.iter().all(|(step, reward)| *step as f64 == reward * 2.0));
            assert_eq!(newest.reward.last().map(|(step, _)| *step), newest.step);
            let short = table.runs.iter().filter(|card| card.reward == [(1, 0.5), (2, 1.0)]);
            assert_eq!(short.count() as u64, RUNS - 1);
            (read, newest.step)
        };
        let (first, step) = look();
        assert_eq!(step, Some(199_999));
        assert!(first < RUNS * SMALL + (128 << 10), "{first} bytes");
        let (second, _) = look();
        assert!(second < RUNS * (1 << 10), "{second} bytes");
        append_as_old(&long.metrics("a"), &line(200_000));
        let (third, step) = look();
        assert_eq!(step, Some(200_000));
        assert!(third < second + (128 << 10), "{third} bytes after {second}");
    }
}
