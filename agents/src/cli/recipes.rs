//! `dyad recipes`: runs every recipe that needs no model folder, as processes over real servers,
//! and prints one table.

pub(super) mod outcome;
mod partners;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use configs::{ModelConfig, RunConfig};

use super::render::recipes::render;
use crate::run_folder::RunFolder;
use outcome::{RecipeRow, failed, read};
use partners::{Partner, Running};

/// Time between two checks of a running recipe.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Run every recipe that needs no model folder; print one table
///
/// A development command. Each recipe runs with `dyad up`, one after the other, together with the
/// partner programs that two of them need.
#[derive(Debug, Args)]
pub struct RecipesArgs {
    /// Configurations; without any all in --configs
    #[arg(value_name = "CONFIG")]
    pub which: Vec<PathBuf>,
    /// Folder with the configurations
    #[arg(long, default_value = "configs", value_name = "FOLDER")]
    pub configs: PathBuf,
    /// Largest number of steps of each recipe
    #[arg(long)]
    pub steps: Option<u64>,
    /// Folder for run folders and the recipes' output
    #[arg(long, default_value = "runs")]
    pub folder: PathBuf,
    /// Write the table to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

pub fn run(args: &RecipesArgs) -> anyhow::Result<()> {
    ensure!(args.steps != Some(0), "--steps must be at least 1");
    let files = if args.which.is_empty() {
        list(&args.configs)?
    } else {
        args.which.clone()
    };
    ensure!(!files.is_empty(), "no configuration in {}", args.configs.display());
    let base = args.folder.join(format!("recipes-{}", crate::base::ids::incarnation()));
    std::fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
    let (mut rows, mut left) = (Vec::new(), Vec::new());
    for file in files {
        let recipe = name(&file);
        let row = match RunConfig::load(&file) {
            Ok(config) if is_tiny(&config) => play(&file, &recipe, &config, None, &base, args.steps),
            Ok(config) => match partners::of(&file, &config) {
                Some(Ok(partner)) => play(&file, &recipe, &config, Some(&partner), &base, args.steps),
                Some(Err(why)) => {
                    left.push((recipe, Some(why)));
                    continue;
                }
                None => {
                    left.push((recipe, None));
                    continue;
                }
            },
            Err(error) => failed(&recipe, format!("{error}")),
        };
        eprintln!(
            "{recipe}: {} after {:.0} s",
            row.failed.as_deref().unwrap_or("ok"),
            row.seconds
        );
        rows.push(row);
    }
    println!("{}", render(&rows, &left));
    println!("runs  {}", base.display());
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| row.failed.is_some())
        .map(|row| row.recipe.as_str())
        .collect();
    ensure!(failed.is_empty(), "recipes failed: {}", failed.join(", "));
    ensure!(!rows.is_empty(), "no recipe was run: every one needs a model folder");
    Ok(())
}

/// Returns the configurations of a folder, sorted by name. A file without `[run]` is skipped.
fn list(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("looking for recipes in {}", folder.display()))?;
    let is_run = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // A file that does not parse stays in the list and fails as a recipe.
        text.parse::<toml::Table>()
            .map_or(true, |table| table.contains_key("run"))
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .filter(is_run)
        .collect();
    files.sort();
    Ok(files)
}

/// Returns true if the recipe needs no foreign model, server or participant.
fn is_tiny(config: &RunConfig) -> bool {
    let made_here = |settings: &configs::AgentConfig| {
        let adapter = settings.lora.as_ref().is_none_or(|lora| lora.path.is_none());
        matches!(settings.model, ModelConfig::Random(_)) && adapter && !settings.engine.kind.is_foreign()
    };
    let asks = |grader: &configs::GraderConfig| grader.kind == configs::JUDGE;
    let calls = |tool: &configs::ToolConfig| tool.kind.starts_with("http");
    let alone = config.remotes().is_empty() && !config.graders.values().any(asks) && !config.tools.values().any(calls);
    alone && config.agents.values().all(made_here)
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn play(
    file: &Path,
    recipe: &str,
    config: &RunConfig,
    partner: Option<&Partner>,
    base: &Path,
    steps: Option<u64>,
) -> RecipeRow {
    let steps = config.run.train_steps.min(steps.unwrap_or(u64::MAX));
    let began = Instant::now();
    eprintln!("{recipe}: at most {steps} steps");
    let seconds = |row: RecipeRow| RecipeRow {
        seconds: began.elapsed().as_secs_f64(),
        ..row
    };
    let folder = base.join(recipe);
    let log = base.join(format!("{recipe}.log"));
    match up(file, &folder, &log, steps, partner).and_then(|()| read(recipe, &RunFolder::find(&folder, "latest")?)) {
        Ok(row) => seconds(row),
        Err(error) => seconds(failed(recipe, format!("{error:#}; its output is in {}", log.display()))),
    }
}

/// Runs `dyad up` to its end, with its partner. The output and the partner's errors go to a file.
///
/// # Errors
/// Returns an error if the run fails, or its partner ends before it.
fn up(file: &Path, folder: &Path, log: &Path, steps: u64, partner: Option<&Partner>) -> anyhow::Result<()> {
    let mut out = File::create(log).with_context(|| format!("making {}", log.display()))?;
    writeln!(out, "dyad up {} --steps {steps}", file.display())?;
    let server = partner.map(|partner| partner.start_server(&out)).transpose()?;
    let mut running = server.flatten();
    let program = std::env::current_exe().context("finding this program")?;
    let mut run = Command::new(program)
        .arg("up")
        .arg(file)
        .args(["--steps", &steps.to_string(), "--broker", "local:", "--state", "local:"])
        .arg("--folder")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out.try_clone()?)
        .spawn()?;
    let status = loop {
        if let Some(status) = run.try_wait()? {
            break status;
        }
        if let Some(partner) = partner
            && let Err(error) = attend(partner, &mut running, folder, &out)
        {
            // The run's processes end with their supervisor.
            let _ = run.kill();
            let _ = run.wait();
            return Err(error);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// Starts the partner as soon as possible, and checks that it is still running.
fn attend(partner: &Partner, started: &mut Option<Running>, folder: &Path, log: &File) -> anyhow::Result<()> {
    let Some(running) = started else {
        *started = partner.start_with_run(folder, log)?;
        return Ok(());
    };
    if let Some(status) = running.ended()? {
        bail!(
            "{} ended with {status} while the run needed it",
            partner.program().display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_configuration_is_run_or_listed() {
        let files = list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs")).unwrap();
        let (tiny, large): (Vec<&PathBuf>, Vec<&PathBuf>) =
            files.iter().partition(|file| is_tiny(&RunConfig::load(file).unwrap()));
        let named = |list: &[&PathBuf], wanted: &str| list.iter().any(|file| name(file) == wanted);
        assert!(
            named(&tiny, "signal") && named(&tiny, "programs") && named(&tiny, "two-lora"),
            "{tiny:?}"
        );
        for needy in ["doctor-patient-8b", "image-turns", "remote"] {
            assert!(named(&large, needy), "{needy} is not in {large:?}");
        }
        assert!(
            !files.iter().any(|file| name(file) == "Cargo"),
            "a manifest is no recipe"
        );
        let text = render(
            &[failed("broken", "it ended with 1".into())],
            &[("large".into(), None), ("remote".into(), Some("no Python".into()))],
        );
        assert!(
            text.contains("broken FAILED: it ended with 1")
                && text.contains(
                    "not run, because they need a model folder, or servers or programs that you start: large"
                ),
            "{text}"
        );
        assert!(text.contains("remote not run: no Python"), "{text}");
    }
}
