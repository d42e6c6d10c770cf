//! `dyad check CONFIG`: prints every problem at once, or the configuration with all defaults.

mod finding;
mod notes;

use std::path::{Path, PathBuf};

use broker::RoleName;
use clap::Args;
use configs::{ConfigError, Problem, RunConfig};
use rollout::hub_cache::Cache;
use rollout::tasks::TaskSource;
use rollout::workflow::graded_role;
use rollout::workflow::program::ProgramPlace;
use rollout::workflow::tools::ToolProgram;

use notes::{absent_devices, all_tools, comments, ignored, long_rows, memory, models, not_here, stock, without_absent};

use super::host_check;
use crate::base::fault::Usage;
use crate::cli::clients;
use crate::cli::clients::Obstacle;
use crate::cli::devices::{self, DeviceReport};
use crate::participant;
use crate::policy::memory::Processes;

/// Check a configuration and print it with all defaults
///
/// Prints all problems at once, each with its key path. The exit code is 2 if there are any. A
/// model or device missing here is no problem; a device too small for one agent is.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The run's configuration, such as configs/signal.toml, or a name that `dyad init` lists
    #[arg(value_parser = super::shipped::parser())]
    pub config: PathBuf,
    /// Print only whether it is valid; report missing models and data on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let config = check(&args.config)?;
    let mut problems = participant::unreachable(&config);
    let cache = Cache::of_environment();
    problems.extend(host_check::model_folders::damaged(&config, &cache));
    problems.extend(host_check::files::of_agents(&config));
    problems.extend(participant::check_programs(&config));
    let devices = devices::reports(&config, Processes::One);
    problems.extend(devices.iter().filter_map(too_small));
    if !problems.is_empty() {
        return Err(report(&args.config, &problems));
    }
    if args.quiet {
        for finding in not_here(&config, &cache, &devices) {
            eprintln!("{finding}");
        }
    } else {
        let (here, absent) = without_absent(&config, &cache);
        print!(
            "{}{}{}{}{}{}{}{}{}",
            comments(&models(&config, &cache)),
            ignored(&config),
            long_rows(&config),
            all_tools(&config),
            comments(&absent),
            comments(&absent_devices(&devices)),
            memory(&devices),
            stock(&here)?,
            toml::to_string_pretty(&config)?
        );
    }
    if args.quiet {
        println!("{}: valid", args.config.display());
    }
    Ok(())
}

/// Returns the problem with a device of this machine that has too little memory.
fn too_small(report: &DeviceReport) -> Option<Problem> {
    let message = report.shortage()?;
    if !report.is_too_small_for_one() {
        // Each agent may run on a host of its own.
        eprintln!("{}: here, for all agents together: {message}", report.device);
        return None;
    }
    let agents = report.agents();
    let first = agents.split(", ").next().unwrap_or_default();
    Some(Problem {
        path: format!("agents.{first}.device"),
        message,
    })
}

/// Reads the configuration at `path`, or returns all its problems.
pub fn check(path: &Path) -> anyhow::Result<RunConfig> {
    let config = match RunConfig::load(path) {
        Ok(config) => config,
        Err(ConfigError::Invalid { path, problems }) => return Err(report(&path, &problems)),
        Err(error) => return Err(error.into()),
    };
    // A missing data set cannot be read, and is no mistake of the file.
    let (here, _) = without_absent(&config, &Cache::of_environment());
    let mut problems = sources(&here);
    match rollout::workflows::build(&config.workflow, &config.graders, &config.tools) {
        Err(more) => problems.extend(more),
        Ok(workflow) => {
            problems.extend(tools(&workflow.tools()));
            if problems.is_empty() {
                problems.extend(host_check::unplayable(&here, workflow.as_ref()));
                problems.extend(ungradable(&here, workflow.as_ref()));
                problems.extend(crate::eval::suites::problems(&here));
            }
        }
    }
    problems.extend(participant::check_judges(&config));
    problems.extend(clients(&config));
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(report(path, &problems))
    }
}

/// Returns a problem for each document that cannot be read and each server that cannot be asked.
fn tools(tools: &[ToolProgram]) -> impl Iterator<Item = Problem> {
    let found = participant::check_corpora(tools).into_iter();
    found
        .chain(participant::check_servers(tools))
        .map(|(name, message)| Problem {
            path: format!("tools.{name}.kind"),
            message,
        })
}

/// Returns the obstacle to two clients, if the configuration asks for two. Memory is not checked:
/// the run may start later or on another machine.
fn clients(config: &RunConfig) -> Option<Problem> {
    let obstacle = clients::settle(config.clone(), Processes::One).err()?;
    (!matches!(obstacle, Obstacle::Memory { .. })).then(|| Problem {
        path: "workflow.params.clients".into(),
        message: obstacle.to_string(),
    })
}

/// Tries a judge's template on the first task and returns a problem for each missing value. Other
/// tasks may have other gaps; these appear during grading and follow `graders.NAME.missing`.
fn ungradable(config: &RunConfig, workflow: &dyn rollout::workflow::Workflow) -> Option<Problem> {
    let judges: Vec<_> = workflow
        .programs()
        .into_iter()
        .filter_map(|program| match program.place {
            ProgramPlace::Judge(judge) | ProgramPlace::Agent(_, judge) => Some((judge, program.roles)),
            ProgramPlace::Process(_) | ProgramPlace::Remote(_) => None,
        })
        .collect();
    if judges.is_empty() {
        return None;
    }
    // A problem of the source itself is reported by another check.
    let mut source = TaskSource::open(&config.tasks, config.run.seed).ok()??;
    let task = source.rows().next()?.ok()?;
    judges.into_iter().find_map(|(judge, roles)| {
        // The workflow plays `grade-ROLE` where it grades ROLE.
        let graded = |role: &RoleName| graded_role(role).unwrap_or(role.as_str()).to_owned();
        let message = roles
            .iter()
            .find_map(|role| judge.check_task(&task, &graded(role)).err())?;
        let mut graders = config.graders.iter();
        let (name, _) = graders.find(|(_, grader)| grader.judge.as_ref() == Some(&judge.config))?;
        Some(Problem {
            path: format!("graders.{name}.judge.template"),
            message: format!(
                "{message}. This is the first task of {}: add the missing value, or test for it in the template",
                config.tasks.source
            ),
        })
    })
}

/// Returns a problem for each file that the configuration names and that does not exist.
fn sources(config: &RunConfig) -> Vec<Problem> {
    let warm = config.agents.iter().filter_map(|(name, agent)| {
        let warm = agent.train.warm_start.as_ref()?;
        Some((format!("agents.{name}.train.warm_start.source"), warm.source.as_str()))
    });
    host_check::sources(config, |_| true)
        .into_iter()
        .chain(warm)
        .filter_map(|(path, source)| {
            let message = rollout::tasks::locate(source).err()?;
            Some(Problem { path, message })
        })
        .collect()
}

fn report(path: &Path, problems: &[Problem]) -> anyhow::Error {
    let lines: String = problems
        .iter()
        .map(|p| format!("\n  {}: {}", p.path, p.message))
        .collect();
    let number = match problems.len() {
        1 => "1 problem".into(),
        many => format!("{many} problems"),
    };
    Usage::new(format!("{} has {number}:{lines}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit_code::{code, render};
    use crate::run_folder::tests::CONFIG;

    fn check_text(text: &str) -> anyhow::Result<RunConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).unwrap();
        check(&path)
    }

    #[test]
    fn a_good_configuration_is_printed_with_its_defaults() {
        let text = toml::to_string_pretty(&check_text(CONFIG).unwrap()).unwrap();
        assert!(text.contains("max_staleness = 1"), "{text}");
        assert!(check_text(&text).is_ok(), "what is printed is a configuration again");
    }

    #[test]
    fn damaged_model_folder_is_named_and_an_absent_one_is_no_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        let args = CheckArgs {
            config: path.clone(),
            quiet: true,
        };
        let check = |model: &Path| {
            let text = CONFIG.replace("[agents.b]", &format!("[agents.b]\nmodel = {{ path = {model:?} }}"));
            std::fs::write(&path, text).unwrap();
            run(&args)
        };
        check(&folder.path().join("absent")).unwrap();
        let error = check(folder.path()).unwrap_err();
        assert_eq!(code(&error), 2);
        let text = render(&error);
        assert!(
            text.contains("agents.b.model: reading ") && text.contains("config.json"),
            "{text}"
        );
    }

    #[test]
    fn device_that_is_here_and_too_small_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        let args = CheckArgs {
            config: path.clone(),
            quiet: true,
        };
        // Petabytes, on the CPU or in host memory for a GPU.
        let large = "model.random = { layers = 1000, intermediate = 2000000000 }";
        let check = |agent: &str| {
            let text = CONFIG.replace("[agents.a]", &format!("[agents.a]\n{agent}"));
            std::fs::write(&path, &text).unwrap();
            run(&args)
        };
        check("").unwrap();
        let error = check(large).unwrap_err();
        let text = render(&error);
        assert_eq!(code(&error), 2, "{text}");
        assert!(
            text.contains("agents.a.device: device cpu of a, b cannot suffice: "),
            "{text}"
        );
        let offloaded = format!("{large}\ndevice = \"cuda:99\"\ntrain.offload = \"optimizer\"");
        check(&offloaded).unwrap();
    }

    #[test]
    fn problems_of_tasks_and_evaluations_are_listed_together() {
        let text = CONFIG.replace("generator:signal\"", "generator:signal\"\nparams.objects = 0");
        let alone = render(&check_text(&text).unwrap_err());
        assert!(alone.contains("has 1 problem:\n  tasks.params.objects: "), "{alone}");
        let text = format!("{text}\n[eval]\nsource = \"generator:signal\"\nparams.objects = -1");
        let both = render(&check_text(&text).unwrap_err());
        assert!(both.contains("has 2 problems:\n  tasks.params.objects: "), "{both}");
        assert!(both.contains("\n  eval.params.objects: "), "{both}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = check_text(&CONFIG.replace("generator:signal", "jsonl:not/here.jsonl")).unwrap_err();
        assert_eq!(code(&error), 2);
        assert!(
            render(&error).contains("tasks.source: not/here.jsonl is not a file"),
            "{error}"
        );
    }

    #[test]
    fn tools_of_a_task_that_the_run_does_not_offer_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = folder.path().join("t.jsonl");
        let source = format!("jsonl:{}\"\ntools = \"tools", tasks.display());
        let text = CONFIG
            .replace("generator:signal", &source)
            .replace("kind = \"signal\"", "kind = \"solo\"")
            .replace("speaker = \"a\", listener = \"b\"", "solver = \"a\"")
            .replace("[agents.b]", "")
            .replace("[defaults.", "[graders.correct]\nkind = \"integer\"\n[defaults.");
        let check = |tools: &str| {
            let row = format!("{{\"prompt\": \"1+1=\", \"label\": 2, \"tools\": {tools}}}\n");
            std::fs::write(&tasks, row).unwrap();
            check_text(&text)
        };
        check("[]").unwrap();
        let error = render(&check("[\"search\"]").unwrap_err());
        assert!(
            error.contains("tasks.source: ") && error.contains("its tools name \"search\""),
            "{error}"
        );
    }

    #[test]
    fn judge_template_is_tried_on_the_first_task() {
        let folder = tempfile::tempdir().unwrap();
        let (tasks, template) = (folder.path().join("t.jsonl"), folder.path().join("j.jinja"));
        std::fs::write(&template, "{{ answer }} by {{ metadata.rule }}").unwrap();
        let check = |row: &str| {
            std::fs::write(&tasks, row).unwrap();
            let judge = format!(
                "[graders.correct]\nkind = \"judge\"\ntimeout = \"60s\"\n[graders.correct.judge]\nagent = \"b\"\ntemplate = {template:?}\n[defaults."
            );
            let text = CONFIG
                .replace("generator:signal", &format!("jsonl:{}", tasks.display()))
                .replace("kind = \"signal\"", "kind = \"solo\"")
                .replace("speaker = \"a\", listener = \"b\"", "solver = \"a\"")
                .replace("[agents.b]", "[agents.b]\ntrain.enabled = false")
                .replace("[defaults.", &judge);
            check_text(&text)
        };
        check("{\"prompt\": \"1+1=\", \"label\": 2, \"metadata\": {\"rule\": \"x\"}}\n").unwrap();
        let error = render(&check("{\"prompt\": \"1+1=\", \"label\": 2}\n").unwrap_err());
        assert!(
            error.contains("graders.correct.judge.template: ") && error.contains("first task"),
            "{error}"
        );
        // A template may need roles and answers; these are not part of the task.
        let picky =
            "{% if role != 'solver' %}{{ metadata.hint.of }}{% endif %}{{ metadata.rule }}: {{ answer[20:]|first }}";
        std::fs::write(&template, picky).unwrap();
        check("{\"prompt\": \"1+1=\", \"label\": 2, \"metadata\": {\"rule\": \"x\"}}\n").unwrap();
    }

    #[test]
    fn two_clients_without_a_base_between_them_are_named() {
        let text = include_str!("../../../configs/two-lora.toml");
        assert!(check_text(text).is_ok());
        let other = text.replace("[agents.b]", "[agents.b]\ndtype = \"bf16\"");
        let error = render(&check_text(&other).unwrap_err());
        assert!(
            error.contains("workflow.params.clients: ") && error.contains("different bases"),
            "{error}"
        );
    }

    #[test]
    fn five_mistakes_are_all_named() {
        let text = CONFIG
            .replace("train_steps = 3", "train_steps = 0")
            .replace("group_size = 4", "group_size = 1")
            .replace("listener = \"b\"", "listener = \"stranger\"")
            .replace("heads = 2", "heads = 3")
            .replace("[agents.b]", "[agents.b]\nsampling = { top_p = 0.5 }");
        let error = check_text(&text).unwrap_err();
        assert_eq!(code(&error), 2);
        let text = render(&error);
        for path in [
            "run.train_steps",
            "workflow.group_size",
            "workflow.roles",
            "heads",
            "sampling",
        ] {
            assert!(text.contains(path), "{path} is not named in\n{text}");
        }
    }
}
