//! `dyad doctor`: reports what this machine has, what is missing, and how to fix it.

mod servers;

use std::path::{Path, PathBuf};

use clap::Args;
use configs::RunConfig;
use rollout::hub_cache::Cache;

use super::devices::{self, DeviceReport, Gpu};
use super::host_check::{self, model_folders};
use super::select;
use crate::base::fault::{Unavailable, Usage};
use crate::policy::memory::{self, Processes};
use crate::run_folder::models::{self, NotHere};
use servers::{server, try_broker, try_store};

/// Check libtorch, GPU, broker, store and permissions
///
/// With CONFIG it also checks the devices of its agents and prints the memory that they need,
/// estimated. Prints a fix for each problem. The exit code is 2 if that memory cannot suffice or a
/// model's folder is damaged, and 75 if something else that is required does not work.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Configuration that names the broker, state store and run folder to check
    #[arg(value_parser = super::shipped::parser())]
    pub config: Option<PathBuf>,
    /// Broker to try, instead of the configuration's
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// State store to try, instead of the configuration's
    #[arg(long, env = "DYAD_STATE", hide_env_values = true, value_name = "URL")]
    pub state: Option<String>,
    /// Folder in which run folders are created, where no CONFIG is given
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
}

/// The check of a device's memory.
const MEMORY: &str = "memory";
/// The check of a device.
const DEVICE: &str = "device";
/// The check of models and data sets.
const DATA: &str = "data";

/// Oldest driver that runs the CUDA 13 libraries
/// (https://docs.nvidia.com/deploy/cuda-compatibility).
const LEAST_DRIVER: u32 = 580;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Good,
    /// Missing, and not required.
    Absent,
    /// Required, and not working.
    Bad,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq)]
pub struct DoctorFinding {
    /// The name of the thing that was checked.
    pub what: &'static str,
    pub standing: Standing,
    pub found: String,
    pub fix: Option<String>,
}

impl DoctorFinding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self {
            what,
            standing: Standing::Good,
            found: found.into(),
            fix: None,
        }
    }

    fn problem(what: &'static str, required: bool, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let standing = if required { Standing::Bad } else { Standing::Absent };
        Self {
            what,
            standing,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }
}

pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let config = args.config.as_deref().map(super::check::check).transpose()?;
    let configured = config.as_ref().map(|config| &config.run);
    let broker = args.broker.clone().or_else(|| configured.map(|run| run.broker.clone()));
    let state = args.state.clone().or_else(|| configured.map(|run| run.state.clone()));
    let runs = configured.map_or(&args.runs, |run| &run.folder);
    let mut findings = vec![libtorch(), gpu()];
    findings.push(server(
        "rabbitmq-server",
        &["/usr/lib/rabbitmq/bin/rabbitmq-server"],
        broker.as_deref(),
    ));
    findings.push(server("redis-server", &["/usr/bin/redis-server"], state.as_deref()));
    findings.extend(select::block_on(async {
        Ok([try_broker(broker.as_deref()).await, try_store(state.as_deref()).await]
            .into_iter()
            .flatten())
    })?);
    findings.push(writable(runs));
    if let Some(config) = &config {
        findings.extend(data(config));
        findings.extend(devices(config));
    }
    print!("{}", render(&findings));
    let failed = findings
        .iter()
        .filter(|finding| finding.standing == Standing::Bad)
        .count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("required checks that failed: {failed}; the line below each FIX says what to do");
    // Waiting brings no device, memory or file.
    let lasts = findings
        .iter()
        .any(|finding| [DEVICE, MEMORY, DATA].contains(&finding.what) && finding.standing == Standing::Bad);
    Err(match lasts {
        true => Usage::new(message).into(),
        false => Unavailable { message, hint: None }.into(),
    })
}

/// Reports which libtorch this process has loaded. It is never a required check: without libtorch
/// the program could not have started.
fn libtorch() -> DoctorFinding {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = |name: &str| {
        let path = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.contains(name))?;
        Some(path.to_owned())
    };
    match library("libtorch_cpu") {
        Some(path) => {
            let folder = Path::new(&path).parent().unwrap_or(Path::new("/"));
            let version = torch_version(folder).map_or_else(String::new, |version| format!("{version}, "));
            let cuda = trainer::device::cuda_library();
            let cuda = cuda.map_or("CPU".to_owned(), |path| format!("with CUDA, {}", path.display()));
            DoctorFinding::good("libtorch", format!("{version}{cuda}, in {}", folder.display()))
        }
        None => DoctorFinding::problem("libtorch", false, "not loaded", "run `make setup`, then build again"),
    }
}

/// Returns the version in `build-version`, `version.txt` or `version.py` of libtorch's root folder.
fn torch_version(lib: &Path) -> Option<String> {
    let root = lib.parent()?;
    let version = std::fs::read_to_string(root.join("build-version"));
    version
        .or_else(|_| std::fs::read_to_string(root.join("version.txt")))
        .ok()
        .map(|text| text.trim().to_owned())
        .or_else(|| super::full_program::torch_version(root))
}

fn gpu() -> DoctorFinding {
    match devices::gpus() {
        Some(gpus) => listed(&gpus, trainer::device::cuda_library().is_some()),
        None if Path::new("/proc/driver/nvidia/version").exists() => DoctorFinding::problem(
            "GPU",
            true,
            "a driver is loaded, but nvidia-smi is missing or fails",
            "run nvidia-smi to see its error; start a container with --gpus all",
        ),
        None => DoctorFinding::problem(
            "GPU",
            false,
            "none; training uses the CPU",
            "on a machine with a GPU, install its driver; a build needs `make setup GPU=1`",
        ),
    }
}

/// Reports the GPUs that nvidia-smi lists. `has_cuda` is true if this dyad has the CUDA libraries.
fn listed(gpus: &[Gpu], has_cuda: bool) -> DoctorFinding {
    let lines: Vec<&str> = gpus.iter().map(|gpu| gpu.line.as_str()).collect();
    let driver = gpus.iter().filter_map(|gpu| gpu.driver).min();
    match driver.filter(|driver| *driver < LEAST_DRIVER && has_cuda) {
        None => DoctorFinding::good("GPU", lines.join("; ")),
        Some(driver) => DoctorFinding::problem(
            "GPU",
            true,
            format!(
                "{}: driver {driver} is too old for the CUDA 13 libraries",
                lines.join("; ")
            ),
            format!("install NVIDIA's driver {LEAST_DRIVER} or newer on the host"),
        ),
    }
}

/// Reports each model and data set that this machine does not have, and each model folder with a
/// missing or damaged file.
fn data(config: &RunConfig) -> Vec<DoctorFinding> {
    let cache = Cache::of_environment();
    let absent = host_check::missing(config, &cache).into_iter().map(|(key, command)| {
        let hub = cache.folder().display();
        let found = format!("{key}: neither a folder here nor in the Hugging Face cache {hub}");
        DoctorFinding::problem(DATA, true, found, format!("correct the path, or run {command}"))
    });
    let models = models::found(config, &cache).into_iter();
    let not_found = models.filter_map(|one| match one.folder.err()? {
        // It can be downloaded: the lines above have it.
        NotHere::Absent { .. } | NotHere::Incomplete { .. } => None,
        why => Some((one.key, why.to_string())),
    });
    let damaged = model_folders::damaged(config, &cache).into_iter();
    let damaged = damaged.map(|problem| (problem.path, problem.message));
    let broken = not_found.chain(damaged).map(|(key, message)| {
        let fix = "repair the folder as the line above says, or correct the path";
        DoctorFinding::problem(DATA, true, format!("{key}: {message}"), fix)
    });
    absent.chain(broken).collect()
}

/// Checks each device that an agent names, and estimates the memory that its agents need.
fn devices(config: &RunConfig) -> Vec<DoctorFinding> {
    let apart = memory::by_device(config, Processes::Each, devices::launched());
    let reports = devices::reports(config, Processes::One).into_iter();
    let findings = reports.flat_map(|report| {
        let together = report.needs.least();
        let apart = apart.get(&report.device).map_or(0, memory::OnDevice::least);
        let apart = if apart == together {
            String::new()
        } else {
            format!(
                "\nin a process for each agent (dyad up): {} at least",
                memory::amount(apart)
            )
        };
        let device = match report.problem().filter(|_| report.missing.is_some()) {
            None => DoctorFinding::good(DEVICE, format!("{} for {}", report.device, report.agents())),
            Some(problem) => DoctorFinding::problem(
                DEVICE,
                true,
                problem,
                "set agents.NAME.device to a device of this machine",
            ),
        };
        [device, memory_finding(&report, &apart)]
    });
    findings.collect()
}

/// Reports the memory of a device, and whether it can suffice.
fn memory_finding(report: &DeviceReport, apart: &str) -> DoctorFinding {
    let found = report.memory() + apart;
    match report.shortage() {
        None => DoctorFinding::good(MEMORY, found),
        Some(shortage) => DoctorFinding::problem(MEMORY, true, found, shortage),
    }
}

/// Checks that files can be created in the folder of run folders, and removes what it created.
fn writable(runs: &Path) -> DoctorFinding {
    let is_new = !runs.exists();
    let probe = runs.join(format!(".doctor-{}", std::process::id()));
    let tried = std::fs::create_dir_all(runs).and_then(|()| std::fs::write(&probe, b"x"));
    let _ = std::fs::remove_file(&probe);
    if is_new {
        let _ = std::fs::remove_dir(runs);
    }
    match tried {
        Ok(()) => DoctorFinding::good("run folder", format!("{} is writable", runs.display())),
        Err(error) => DoctorFinding::problem(
            "run folder",
            true,
            format!("{}: {error}", runs.display()),
            "set run.folder or --runs to a writable folder",
        ),
    }
}

/// Returns the findings as lines for the terminal, each fix below its finding.
#[must_use]
pub fn render(findings: &[DoctorFinding]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.standing {
            Standing::Good => "ok  ",
            Standing::Absent => "-   ",
            Standing::Bad => "FIX ",
        };
        let found = finding.found.replace('\n', "\n                      ");
        let _ = writeln!(text, "{mark} {:16} {found}", finding.what);
        if let Some(fix) = &finding.fix {
            let _ = writeln!(text, "     {:16} {fix}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests;
