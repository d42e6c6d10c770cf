//! The tasks of files, chosen once and then read from the file. For one plain file of lines only
//! the offsets are kept; rows of all other files go through a spool.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use broker::protocol::task::Task;
use configs::{MixConfig, TasksConfig};

use super::curriculum::{Rates, task_key};
use super::error::TasksError;
use super::files::Files;
use super::filter::{self, Filter};
use super::keys::Keys;
use super::places::Places;
use super::pool::Pool;
use super::rows::{self, Format, Packing, RowPlace, parse};
use super::slice::Slice;
use super::spool::{self, Spool};

/// The key that leads a run's evaluation tasks in errors.
pub(crate) const EVAL: &str = "eval";
/// The prefix of suites. Their tasks are distinguished by the player, whatever ids their rows give.
pub(crate) const SUITES: &str = "eval.suites.";

/// Tasks of files.
pub(super) struct Table {
    name: String,
    keys: Keys,
    kept: Kept,
    /// Rows that were read: those of the slice.
    rows: u64,
    /// The pass rate of each task, if there are pass rates.
    rates: Option<Vec<f32>>,
}

enum Kept {
    Lines(Lines),
    Spool { spool: Spool, tasks: u64, places: Places },
}

struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    /// Byte offset and number of each line.
    at: Vec<(u64, u64)>,
}

/// The rows kept so far, while rows are chosen.
enum Keeping {
    Lines(PathBuf, Vec<(u64, u64)>),
    Spool(spool::Writer, Places),
}

impl Table {
    /// Reads every row of the slice once, so that a bad row is found now. `section` leads the keys
    /// in errors. `own` is the mix's entry for this source, if it is in a mix.
    pub(super) fn open(
        files: Files,
        config: &TasksConfig,
        section: &str,
        own: Option<&MixConfig>,
    ) -> Result<Self, TasksError> {
        let problem = |key: &str, message: String| TasksError::Config {
            key: format!("{section}.{key}"),
            message,
        };
        if let Some(key) = config.params.keys().find(|key| *key != "seed") {
            let message = "a source of files has no such setting; known is: seed".to_owned();
            return Err(problem(&format!("params.{key}"), message));
        }
        let range = match &config.slice {
            None => 0..u64::MAX,
            Some(text) => {
                let slice = Slice::parse(text).map_err(|message| problem("slice", message))?;
                let all = rows::count(&files.shards)?;
                let range = slice.of(all);
                if range.is_empty() {
                    return Err(problem(
                        "slice",
                        format!("{text:?} leaves none of the {all} rows of {}", files.name),
                    ));
                }
                range
            }
        };
        let environment = filter::environment();
        let filter = config.filter.as_ref().map(|text| Filter::compile(&environment, text));
        let filter = filter.transpose().map_err(|message| problem("filter", message))?;
        let mut rates = config.curriculum.as_ref().map(Rates::open).transpose()?;
        let keys = match own {
            None => Keys::of(config, section),
            Some(own) => Keys::of(config, section).in_mix(own.name.as_ref().unwrap_or(&files.name)),
        };
        // An id is done once, so a different task with the same id would be lost. A row may repeat
        // unchanged: DAPO's file repeats each a hundred times, and an evaluation plays it once. Ids
        // are kept as hashes, with their rows and the hashes of their content.
        let (evaluation, suite) = (section == EVAL, section.starts_with(SUITES));
        let mut ids: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut keeping = Keeping::new(&files).map_err(|error| not_spooled(&files, error))?;
        let (mut seen, mut tasks) = (0, 0);
        rows::read(&files.shards, &range, &mut |row| {
            seen += 1;
            let bad = |message| rows::bad(row.path, row.place, message);
            let wanted = filter
                .as_ref()
                .map_or(Ok(true), |filter| filter.takes(&row.parsed.value));
            if !wanted.map_err(bad)? {
                return Ok(());
            }
            let task = keys.task(&row.parsed).map_err(bad)?;
            if !rates.as_mut().is_none_or(|rates| rates.takes(&task)) {
                return Ok(());
            }
            if let Some(id) = task.id.as_deref().filter(|_| !suite) {
                let content = hash(&task_key(&task));
                let (first, before) = *ids.entry(hash(id)).or_insert((seen - 1, content));
                if before != content {
                    let first = place_of(&files, range.start + first);
                    let message =
                        format!("the id {id:?} is also that of {first}, which is a different task: an id is done once");
                    return Err(bad(message));
                }
                if evaluation && first != seen - 1 {
                    return Ok(());
                }
            }
            tasks += 1;
            keeping.push(&row, &task).map_err(|error| not_spooled(&files, error))
        })?;
        let rates = rates.map(|rates| rates.done(&files.name)).transpose()?;
        if tasks == 0 || tasks > u64::from(u32::MAX) {
            return Err(not_played(&files, (seen, tasks), config, section));
        }
        let kept = keeping.done(tasks).map_err(|error| not_spooled(&files, error))?;
        Ok(Self {
            name: files.name,
            keys,
            kept,
            rows: seen,
            rates,
        })
    }
}

fn hash(id: &str) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the place of a row, by its number over all files.
fn place_of(files: &Files, row: u64) -> String {
    let mut found = format!("row {row}");
    // The row was read before.
    let _ = rows::read(&files.shards, &(row..row + 1), &mut |row| {
        found = row.place.within(row.path);
        Ok(())
    });
    found
}

/// Returns the error for a source with too few or too many tasks.
fn not_played(files: &Files, (rows, tasks): (u64, u64), config: &TasksConfig, section: &str) -> TasksError {
    let path = files
        .shards
        .first()
        .map_or_else(PathBuf::new, |shard| shard.path.clone());
    if rows == 0 {
        return TasksError::Empty { path };
    }
    let name = &files.name;
    let (key, message) = match (&config.filter, &config.curriculum) {
        _ if tasks > 0 => (
            "source",
            format!(
                "{name} has {tasks} tasks, more than the {} that a source may have: take a slice",
                u32::MAX
            ),
        ),
        (Some(filter), None) => (
            "filter",
            format!("{filter:?} is true of none of the {rows} rows of {name}"),
        ),
        (Some(_), Some(_)) => (
            "filter",
            format!("the filter and the curriculum leave none of the {rows} rows of {name}"),
        ),
        (None, _) => (
            "curriculum",
            format!("of the {rows} rows of {name}, the pass rates leave none"),
        ),
    };
    TasksError::Config {
        key: format!("{section}.{key}"),
        message,
    }
}

fn not_spooled(files: &Files, source: io::Error) -> TasksError {
    TasksError::Spool {
        name: files.name.clone(),
        folder: std::env::temp_dir(),
        source,
    }
}

impl Keeping {
    fn new(files: &Files) -> io::Result<Self> {
        match files.shards.as_slice() {
            [one] if one.format == Format::Lines(Packing::Plain) => Ok(Self::Lines(one.path.clone(), Vec::new())),
            shards => Ok(Self::Spool(spool::Writer::new()?, Places::new(shards))),
        }
    }

    fn push(&mut self, row: &rows::Row<'_>, task: &Task) -> io::Result<()> {
        match self {
            Self::Lines(_, at) => {
                let (RowPlace::Line(number) | RowPlace::Row(number)) = row.place;
                at.push((row.offset, number));
                Ok(())
            }
            Self::Spool(spool, places) => {
                places.push(row.path, row.place);
                spool.push(task)
            }
        }
    }

    fn done(self, tasks: u64) -> io::Result<Kept> {
        Ok(match self {
            Self::Lines(path, at) => Kept::Lines(Lines {
                file: BufReader::new(File::open(&path)?),
                path,
                at,
            }),
            Self::Spool(spool, places) => Kept::Spool {
                spool: spool.done()?,
                tasks,
                places,
            },
        })
    }
}

impl Lines {
    fn read(&mut self, item: u64, keys: &Keys) -> Result<Task, TasksError> {
        let (offset, number) = self.at[item as usize];
        let mut line = Vec::new();
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_until(b'\n', &mut line))
            .map_err(|source| unread(&self.path, source))?;
        parse(&line)
            .and_then(|row| keys.task(&row))
            .map_err(|message| rows::bad(&self.path, RowPlace::Line(number), message))
    }
}

fn unread(path: &Path, source: io::Error) -> TasksError {
    TasksError::Read {
        path: path.to_owned(),
        source,
    }
}

impl Pool for Table {
    fn len(&self) -> u64 {
        match &self.kept {
            Kept::Lines(lines) => lines.at.len() as u64,
            Kept::Spool { tasks, .. } => *tasks,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        match &mut self.kept {
            Kept::Lines(lines) => lines.read(item, &self.keys),
            Kept::Spool { spool, .. } => spool.get(item).map_err(|source| TasksError::Spool {
                name: self.name.clone(),
                folder: std::env::temp_dir(),
                source,
            }),
        }
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn place(&self, item: u64) -> Option<String> {
        match &self.kept {
            Kept::Lines(lines) => {
                let (_, number) = lines.at.get(usize::try_from(item).ok()?)?;
                Some(RowPlace::Line(*number).within(&lines.path))
            }
            Kept::Spool { places, .. } => places.of(item),
        }
    }

    fn rates(&self) -> Option<&[f32]> {
        self.rates.as_deref()
    }
}
