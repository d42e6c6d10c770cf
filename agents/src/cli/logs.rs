//! `dyad logs AGENT`: prints the log lines of one process, filtered, and follows new ones.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ended::{self, Over};
use super::select::RunArg;
use crate::base::fault::Usage;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{LogFilter, LogLine, Tail, printable, render_line};

/// Time between two looks at followed logs, and the time without a line before a look at the run.
const LOOK: Duration = Duration::from_millis(200);
const SILENT: Duration = Duration::from_secs(2);

/// Show the log of an agent or coordinator
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// An agent's name, `coordinator`, or the beginning of a log's name; without it all logs
    pub name: Option<String>,
    /// Print new lines as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// Only lines about this conversation (`<group>/<member>`, or the beginning of it)
    #[arg(long, value_name = "ID")]
    pub conversation: Option<String>,
    /// The least severe level shown: error, warn, info, debug; ends of conversations are debug
    #[arg(long)]
    pub level: Option<tracing::Level>,
    /// Only the last N lines
    #[arg(long, short = 'n', value_name = "LINES")]
    pub lines: Option<usize>,
    /// Print the stored lines, one JSON object each
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &LogsArgs) -> anyhow::Result<()> {
    // The log of a run that failed at its start says why.
    let folder = RunFolder::find_newest(&args.run.runs, &args.run.run)?;
    let files = files(&folder, args.name.as_deref())?;
    let filter = LogFilter {
        level: args.level,
        conversation: args.conversation.clone(),
    };
    let mut view = View::new(files, filter, args.json);
    let mut silent = Duration::ZERO;
    let mut out = std::io::stdout().lock();
    let color = !args.json && out.is_terminal();
    let mut lines = view.more(color)?;
    if let Some(id) = args.conversation.as_deref().filter(|_| lines.is_empty()) {
        eprintln!(
            "no line is about conversation {id}: a conversation has a line of its own if run.transcripts keeps its \
             text (`dyad conversation {id}`), and its turns if the run was started with RUST_LOG=debug"
        );
    }
    if let Some(last) = args.lines {
        lines.drain(..lines.len().saturating_sub(last));
    }
    loop {
        for line in lines {
            if writeln!(out, "{line}").is_err() {
                // The reader has closed the pipe (`| head`).
                return Ok(());
            }
        }
        if !args.follow || out.flush().is_err() {
            return Ok(());
        }
        // No process of an ended run writes any more.
        if silent >= SILENT {
            if let Some(over) = ended::over(&folder)?.filter(Over::is_final) {
                eprintln!("{}", over.text());
                return Ok(());
            }
            silent = Duration::ZERO;
        }
        std::thread::sleep(LOOK);
        lines = view.more(color)?;
        silent = if lines.is_empty() {
            silent + LOOK
        } else {
            Duration::ZERO
        };
    }
}

/// Returns the log named exactly `name`, or all logs with names that begin with it.
pub fn files(folder: &RunFolder, name: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    let all = folder.files("logs")?;
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let Some(name) = name else {
        return if all.is_empty() {
            Err(Usage::new(format!("run {} has no logs yet", folder.run())).into())
        } else {
            Ok(all)
        };
    };
    if let Some(exact) = all.iter().find(|path| stem(path) == name) {
        return Ok(vec![exact.clone()]);
    }
    let begun: Vec<PathBuf> = all
        .iter()
        .filter(|path| stem(path).starts_with(name))
        .cloned()
        .collect();
    if begun.is_empty() {
        let names = all.iter().map(stem).collect::<Vec<_>>().join(", ");
        return Err(Usage::new(format!("run {} has no log {name:?}", folder.run()))
            .hint(format!(
                "it has: {}",
                if names.is_empty() { "none yet" } else { &names }
            ))
            .into());
    }
    Ok(begun)
}

/// Several logs merged by time.
pub struct View {
    tails: Vec<(String, Tail)>,
    filter: LogFilter,
    json: bool,
}

impl View {
    #[must_use]
    pub fn new(files: Vec<PathBuf>, filter: LogFilter, json: bool) -> Self {
        let tails = files
            .into_iter()
            .map(|path| {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                (name, Tail::new(path))
            })
            .collect();
        Self { tails, filter, json }
    }

    /// Returns the lines written since the last call, ready to print.
    pub fn more(&mut self, color: bool) -> anyhow::Result<Vec<String>> {
        let width = self.tails.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let several = self.tails.len() > 1;
        let mut lines: Vec<(String, String)> = Vec::new();
        for (name, tail) in &mut self.tails {
            for raw in tail.lines()? {
                let Some(line) = LogLine::parse(&raw).filter(|line| self.filter.wants(line)) else {
                    continue;
                };
                let shown = match (self.json, several) {
                    (true, _) => printable(&raw).into_owned(),
                    (false, true) => format!("{name:width$} | {}", render_line(&line, color)),
                    (false, false) => render_line(&line, color),
                };
                lines.push((line.text("time").to_owned(), shown));
            }
        }
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(lines.into_iter().map(|(_, line)| line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::render;
    use crate::run_folder::tests::config_in;

    fn line(second: u32, level: &str, conversation: &str) -> String {
        format!(
            r#"{{"time":"2026-11-20T12:00:{second:02}.000Z","level":"{level}","message":"m{second}","conversation_id":"{conversation}"}}"#
        )
    }

    #[test]
    fn logs_are_merged_filtered_and_followed() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        std::fs::write(
            folder.log("a"),
            format!("{}\n{}\n", line(1, "INFO", "g1/0"), line(3, "DEBUG", "g2/0")),
        )
        .unwrap();
        std::fs::write(folder.log("b"), format!("{}\n", line(2, "WARN", "g1/0"))).unwrap();
        let shown = |name: Option<&str>, level: Option<tracing::Level>, conversation: Option<&str>| {
            let filter = LogFilter {
                level,
                conversation: conversation.map(str::to_owned),
            };
            View::new(files(&folder, name).unwrap(), filter, false)
                .more(false)
                .unwrap()
        };
        let all = shown(None, None, None);
        assert_eq!(all.len(), 3);
        assert!(all[0].starts_with("a | 12:00:01.000  INFO  m1"), "{}", all[0]);
        assert!(all[1].starts_with("b | 12:00:02.000  WARN  m2"), "{}", all[1]);
        assert_eq!(shown(Some("a"), Some(tracing::Level::INFO), None).len(), 1);
        assert_eq!(shown(None, None, Some("g1")).len(), 2);

        let mut view = View::new(files(&folder, Some("b")).unwrap(), LogFilter::default(), false);
        assert_eq!(view.more(false).unwrap().len(), 1);
        std::fs::write(
            folder.log("b"),
            format!("{}\n{}\n", line(2, "WARN", "g1/0"), line(4, "INFO", "g1/0")),
        )
        .unwrap();
        assert_eq!(
            view.more(false).unwrap(),
            ["12:00:04.000  INFO  m4  conversation_id=g1/0"]
        );

        let error = files(&folder, Some("c")).unwrap_err();
        assert!(render(&error).contains("hint: it has: a, b"), "{}", render(&error));
    }
}
