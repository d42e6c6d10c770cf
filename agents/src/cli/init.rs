//! `dyad init`: copies a shipped configuration, with the files that it reads.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::shipped::{self, Shipped};
use crate::base::fault::Usage;

/// The width of the list.
const COLUMNS: usize = 100;

/// Copy a shipped configuration into this folder, or list them
///
/// The files that it reads are copied too, below configs/. Existing files are never replaced.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The configuration's name, such as signal; without it all names are listed
    pub name: Option<String>,
}

pub fn run(args: &InitArgs) -> anyhow::Result<()> {
    let all = shipped::all(&shipped::folder()?)?;
    let mut out = std::io::stdout().lock();
    let Some(name) = &args.name else {
        out.write_all(list(&all).as_bytes())?;
        return Ok(());
    };
    let chosen = all.iter().find(|shipped| shipped.name == *name);
    let chosen = chosen.ok_or_else(|| {
        Usage::new(format!("there is no shipped configuration {name}")).hint("`dyad init` lists their names")
    })?;
    for file in copy(chosen, Path::new("."))? {
        writeln!(out, "wrote {}", file.display())?;
    }
    writeln!(out, "next: dyad run {name}.toml")?;
    Ok(())
}

/// Formats each configuration as a line.
fn list(all: &[Shipped]) -> String {
    let width = all.iter().map(|shipped| shipped.name.len()).max().unwrap_or_default();
    let line = |shipped: &Shipped| {
        let about = shipped.about();
        let room = COLUMNS.saturating_sub(width + 2);
        format!("{:width$}  {}\n", shipped.name, shortened(&about, room))
    };
    all.iter().map(line).collect()
}

/// Cuts a text between words so that it has at most `room` characters.
fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    for word in text.split(' ') {
        if short.chars().count() + word.chars().count() + 4 > room {
            break;
        }
        short += word;
        short.push(' ');
    }
    short + "..."
}

/// Copies the configuration and its files into `here`; returns the new files. Writes nothing
/// if one of the files exists with other content.
fn copy(shipped: &Shipped, here: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut new = Vec::new();
    for need in shipped.needs() {
        let bytes = std::fs::read(shipped.source(&need)).with_context(|| format!("reading {}", need.display()))?;
        match std::fs::read(here.join(&need)) {
            Ok(existing) if existing == bytes => {}
            _ => new.push((need, bytes)),
        }
    }
    new.insert(
        0,
        (
            format!("{}.toml", shipped.name).into(),
            shipped.text.clone().into_bytes(),
        ),
    );
    if let Some((file, _)) = new.iter().find(|(file, _)| here.join(file).exists()) {
        let message = format!("{} exists already and is not replaced", file.display());
        return Err(Usage::new(message).hint("move it away, or go to another folder").into());
    }
    for (file, bytes) in &new {
        let path = here.join(file);
        let folder = path.parent().unwrap_or(here);
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(new.into_iter().map(|(file, _)| file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::shipped::tests::{repository, shipped};

    #[test]
    fn list_has_a_line_for_each_configuration() {
        let all = shipped::all(&repository()).unwrap();
        let list = list(&all);
        assert_eq!(list.lines().count(), all.len());
        assert!(list.lines().all(|line| line.chars().count() <= COLUMNS), "{list}");
        assert!(list.contains("\nsignal "), "{list}");
    }

    #[test]
    fn configuration_is_copied_with_its_files_once() {
        let here = tempfile::tempdir().unwrap();
        let research = shipped("deep-research");
        let written = copy(&research, here.path()).unwrap();
        assert_eq!(written.first().unwrap(), Path::new("deep-research.toml"));
        for file in written.iter().skip(1) {
            let copied = std::fs::read(here.path().join(file)).unwrap();
            assert_eq!(
                copied,
                std::fs::read(research.source(file)).unwrap(),
                "{}",
                file.display()
            );
        }
        assert!(here.path().join("configs/data/stones/onyx.txt").is_file());
        let again = copy(&research, here.path()).unwrap_err();
        assert!(
            again.is::<Usage>() && again.to_string().contains("deep-research.toml exists"),
            "{again}"
        );
    }

    #[test]
    fn edited_data_stays_and_nothing_is_written() {
        let here = tempfile::tempdir().unwrap();
        let data = here.path().join("configs/data/go.jsonl");
        std::fs::create_dir_all(data.parent().unwrap()).unwrap();
        std::fs::write(&data, "mine").unwrap();
        assert!(copy(&shipped("adversarial"), here.path()).unwrap_err().is::<Usage>());
        assert_eq!(std::fs::read_to_string(&data).unwrap(), "mine");
        assert!(!here.path().join("adversarial.toml").exists());
    }
}
