//! `dyad samples`: exports the turns of a run's conversations as a Parquet file.

mod columns;
mod fates;
mod table;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::ids::GroupId;
use clap::Args;
use configs::{AgentName, TranscriptPolicy};

use self::columns::{columns, rows};
use self::fates::{Ledgers, place};
use self::table::Table;
use super::select::RunArg;
use crate::base::fault::Usage;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Oldest, Transcript};

/// Export a run's turns with rewards and verdicts as Parquet
///
/// One row for each turn of an agent, for pandas, polars and Hugging Face data sets. The first
/// columns are those of TRL's log_completions; `reward/PART` is a part of the seat's `reward`.
/// `verdict` is null until a sample is trained or discarded.
#[derive(Debug, Args)]
pub struct SamplesArgs {
    /// The run, as for --run
    #[arg(value_name = "RUN", conflicts_with = "run")]
    pub which: Option<String>,
    /// The file to create
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub run: RunArg,
}

/// The most bytes of transcripts in a row group.
const BYTES: usize = 32 << 20;
/// The most turns in a row group, except for those of its last conversation.
const TURNS: usize = 16_384;

/// A transcript file and the length up to which it is read. A live run appends to it.
type Part = (PathBuf, u64);

pub fn run(args: &SamplesArgs) -> anyhow::Result<()> {
    print!("{}", write(&args.run.named(args.which.as_ref())?, &args.out)?);
    Ok(())
}

/// Writes the file and returns a summary.
fn write(folder: &RunFolder, out: &Path) -> anyhow::Result<String> {
    let config = folder.config()?;
    if out.symlink_metadata().is_ok() {
        return Err(refused(
            out,
            "there is a file or a folder of this name",
            "name another file, or remove this one",
        ));
    }
    let (aside, file) = Aside::create(out).map_err(|error| unwritable(out, &error))?;
    let reading = || format!("reading the transcripts of run {}", folder.run());
    let parts = lengths(folder).with_context(reading)?;
    let mut survey = Survey::of(&parts).with_context(reading)?;
    if survey.conversations == 0 {
        return Err(Usage::new(format!("run {} has no transcript to export", folder.run()))
            .hint("run.transcripts selects the conversations that are written; an open one has no transcript yet")
            .into());
    }
    let ledgers = Ledgers::open(folder, &config)?;
    let is_agent = |name: &str| AgentName::new(name).is_ok_and(|name| config.agents.contains_key(&name));
    let written = export(&parts, &mut survey, &ledgers, &is_agent, file)
        .with_context(|| format!("writing the samples of run {} to {}", folder.run(), out.display()))?;
    fs::rename(&aside.0, out).map_err(|error| unwritable(out, &error))?;
    let head = format!(
        "{written} rows of {} conversations in {}\n",
        survey.conversations,
        out.display()
    );
    Ok(head + policy_note(config.run.transcripts) + &missing_note(&ledgers.missing))
}

fn missing_note(agents: &[String]) -> String {
    let line = |agent: &String| format!("  the ledger of {agent} is not on this machine: its verdicts are null\n");
    agents.iter().map(line).collect()
}

fn refused(out: &Path, why: &str, hint: &str) -> anyhow::Error {
    Usage::new(format!("--out {}: {why}", out.display())).hint(hint).into()
}

fn unwritable(out: &Path, error: &io::Error) -> anyhow::Error {
    let why = format!("the file cannot be written: {error}");
    refused(
        out,
        &why,
        "name a file in a folder that exists and that you may write to",
    )
}

/// Names the conversations that `run.transcripts` leaves out.
fn policy_note(policy: TranscriptPolicy) -> &'static str {
    match policy {
        TranscriptPolicy::All => "",
        TranscriptPolicy::First => {
            "  run.transcripts = \"first\": only the first conversation of each group, and greedy evaluations\n"
        }
        TranscriptPolicy::None => "  run.transcripts = \"none\": only greedy evaluations\n",
    }
}

/// A file under a temporary name. Dropping it removes the file unless it was renamed.
struct Aside(PathBuf);

impl Aside {
    fn create(out: &Path) -> io::Result<(Self, File)> {
        let mut path = out.as_os_str().to_owned();
        path.push(format!(".{}.new", std::process::id()));
        let file = File::create_new(&path)?;
        Ok((Self(path.into()), file))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn lengths(folder: &RunFolder) -> anyhow::Result<Vec<Part>> {
    let files = folder.files("transcripts")?.into_iter();
    let part = |path: PathBuf| -> io::Result<Part> {
        let length = fs::metadata(&path)?.len();
        Ok((path, length))
    };
    Ok(files.map(part).collect::<io::Result<_>>()?)
}

/// The findings of a first pass over the transcripts.
#[derive(Debug, Default)]
struct Survey {
    conversations: u64,
    /// The parts of all rewards.
    parts: BTreeSet<String>,
    /// Conversations that are written several times, with the number of times still to skip. The
    /// last one counts: a coordinator that replaced another one has played it again.
    again: HashMap<(GroupId, u16), u32>,
}

impl Survey {
    fn of(files: &[Part]) -> io::Result<Self> {
        let mut found = Self::default();
        let mut seen = HashSet::new();
        let mut oldest = Oldest::open(files)?;
        while let Some((_, transcript)) = oldest.next_transcript()? {
            for name in transcript.rewards.values().flat_map(|parts| parts.keys()) {
                if name != "total" && !found.parts.contains(name) {
                    found.parts.insert(name.clone());
                }
            }
            match place(&transcript.conversation) {
                Some(place) if !seen.insert(place) => *found.again.entry(place).or_default() += 1,
                _ => found.conversations += 1,
            }
        }
        Ok(found)
    }

    /// Returns true if the conversation is written again later. The second pass asks in the order
    /// of the first.
    fn comes_again(&mut self, transcript: &Transcript) -> bool {
        let left = place(&transcript.conversation).and_then(|place| self.again.get_mut(&place));
        let Some(left) = left.filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }
}

/// Writes the rows of all conversations and returns their number.
fn export(
    parts: &[Part],
    survey: &mut Survey,
    ledgers: &Ledgers,
    is_agent: &dyn Fn(&str) -> bool,
    file: File,
) -> anyhow::Result<usize> {
    let mut table = Table::create(file, &columns(&[], &survey.parts))?;
    let mut oldest = Oldest::open(parts)?;
    let mut written = 0;
    loop {
        let chunk = next_chunk(&mut oldest, survey)?;
        if chunk.is_empty() {
            break;
        }
        let fates = ledgers.fates(&chunk)?;
        let rows = rows(&chunk, is_agent, &fates);
        written += rows.len();
        if !rows.is_empty() {
            table.write(&columns(&rows, &survey.parts))?;
        }
    }
    table.finish()?.sync_all()?;
    Ok(written)
}

/// Returns the conversations of the next row group; none at the end.
fn next_chunk(oldest: &mut Oldest, survey: &mut Survey) -> io::Result<Vec<Transcript>> {
    let (mut chunk, mut bytes, mut turns) = (Vec::new(), 0, 0);
    while bytes < BYTES
        && turns < TURNS
        && let Some((size, transcript)) = oldest.next_transcript()?
    {
        if survey.comes_again(&transcript) {
            continue;
        }
        bytes += size;
        turns += transcript.turns.len();
        chunk.push(transcript);
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests;
