//! The command line. Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 70 a bug, 75 a
//! service is unavailable.

mod arguments;
pub mod audit;
pub mod check;
pub mod checkpoint;
pub mod clients;
pub mod compare;
pub mod compose;
pub mod conversation;
pub mod conversations;
pub mod cross_play;
pub mod dashboard;
mod devices;
pub mod doctor;
pub mod drain;
pub mod embedded;
mod ended;
pub mod engine;
pub mod eval;
pub mod exit_code;
pub mod export;
pub mod full_program;
pub mod grade;
pub mod help;
mod host_check;
pub mod init;
pub mod last_metrics;
pub mod learn;
pub mod light;
pub mod logs;
mod longer;
pub mod orders;
mod output_file;
pub mod overrides;
pub mod pause;
pub mod process;
pub mod progress;
pub mod publish;
pub mod recipes;
#[cfg(test)]
mod reference;
pub mod render;
pub mod report;
pub mod resume;
pub mod run;
pub mod run_summary;
pub mod samples;
pub mod schema;
pub mod select;
mod shell_word;
pub mod shipped;
pub mod status;
pub mod supervise;
mod task_fate;
pub mod task_rules;
pub mod tasks;
pub mod topology;
pub mod trainer;
pub mod up;
pub mod workflow;

use clap::{Parser, Subcommand};
use rollout::own::Registry;

use self::help::{GUIDE, TEMPLATE};
use self::light::LightCommand;
use crate::base::fault::{Usage, leave};

/// Train language-model agents that talk to each other
#[derive(Debug, Parser)]
#[command(name = "dyad", version, help_template = TEMPLATE, after_help = GUIDE, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    #[command(hide = true)]
    Learn(learn::LearnArgs),
    #[command(hide = true)]
    Recipes(recipes::RecipesArgs),
    Up(up::UpArgs),
    Agent(process::AgentArgs),
    Coordinator(process::CoordinatorArgs),
    Engine(engine::EngineArgs),
    #[command(hide = true)]
    Trainer(trainer::TrainerArgs),
    Check(check::CheckArgs),
    Doctor(doctor::DoctorArgs),
    Eval(eval::EvalArgs),
    #[command(flatten)]
    Light(LightCommand),
    CrossPlay(cross_play::CrossPlayArgs),
    Export(export::ExportArgs),
    Workflow(workflow::WorkflowArgs),
}

/// Runs the command that the command line names.
pub fn main() -> ! {
    main_with(Registry::new())
}

/// Does the same for a program with its own workflows and graders. Every command knows them, and so
/// do the processes that a command starts: they run the same program.
pub fn main_with(own: Registry) -> ! {
    crate::run_folder::telemetry::panic::install();
    if let Err(error) = own.install() {
        leave(exit_code::tell(&Usage::new(error.to_string()).into()).into());
    }
    let command = arguments::parse::<Cli>().command;
    let is_service = matches!(
        command,
        Command::Agent(_) | Command::Coordinator(_) | Command::Engine(_)
    );
    let outcome = match command {
        Command::Run(args) => run::run(&args),
        Command::Learn(args) => learn::run(&args),
        Command::Recipes(args) => recipes::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Agent(args) => process::agent(&args),
        Command::Coordinator(args) => process::coordinator(&args),
        Command::Engine(args) => engine::run(&args),
        Command::Trainer(args) => trainer::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Light(command) => command.run(),
        Command::CrossPlay(args) => cross_play::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Workflow(args) => workflow::run(&args),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(error) if is_service => exit_code::tell_of_service(&error),
        Err(error) => exit_code::tell(&error),
    };
    leave(code.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_valid_and_help_names_every_command() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            assert!(
                help.lines()
                    .any(|line| line.trim_start().split([' ', ',']).any(|word| word == name)),
                "{name} is not in\n{help}"
            );
        }
        assert!(help.lines().count() <= 40, "the help does not fit a screen:\n{help}");
        for line in help.lines() {
            assert!(line.len() <= 100, "too wide: {line}");
        }
    }

    #[test]
    fn every_command_has_a_short_description() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let words = about.split_whitespace().count();
            assert!((1..=12).contains(&words), "{}: {about}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn usual_calls_parse() {
        for call in [
            "dyad run configs/signal.toml --seed 3",
            "dyad logs a -f --level debug --conversation ab01/3",
            "dyad dashboard latest --listen 127.0.0.1:0 --no-token",
            "dyad run --dashboard configs/signal.toml",
            "dyad up configs/signal.toml --dashboard=127.0.0.1:0",
            "dyad publish - --run latest --wait",
            "dyad conversations --last 5 --reward >0.5 --role speaker",
            "dyad learn configs/arithmetic.toml --seeds 3",
            "dyad eval configs/signal.toml --checkpoint a=latest@initial --samples 8 --suite math500=tasks.jsonl",
            "dyad eval --run latest --json figures.json",
            "dyad cross-play r-1 r-2",
            "dyad compare r-1 r-2 --json difference.json",
            "dyad compare --a r-1 r-2 --b r-3 r-4",
            "dyad compose configs/signal.toml --gpus",
            "dyad grade --kind math --label -5 x",
            "dyad grade answers.jsonl --json",
            "dyad recipes configs/signal.toml --steps 3",
            "dyad learn configs/signal.toml configs/guess-number.toml --steps 10",
            "dyad tasks dead --requeue --all",
            "dyad tasks dead --drop t1 t2",
            "dyad agent --name a --run r-1",
            "dyad engine configs/signal.toml --agent a --listen 127.0.0.1:8101",
            "dyad trainer --run runs/r-1 --agent a --rank 1 --generation ab12",
            "dyad topology export --run r-1 --config configs/signal.toml --out users",
            "dyad audit --json --run r-1",
            "dyad workflow test configs/programs.toml --task tasks.jsonl --say solver=5 --members 4",
            "dyad schema task",
            "dyad export a --run r-1 --step last-good --out folder --merged --dtype bf16 --force",
            "dyad drain latest --wait",
            "dyad checkpoint r-1 --within 5s",
            "dyad run --resume latest",
            "dyad samples r-1 --out samples.parquet",
        ] {
            let parsed = Cli::try_parse_from(call.split(' '));
            assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
        }
        // A seed above 2^63 - 1 cannot be written into the run's TOML.
        let seed = ["dyad", "run", "x.toml", "--seed", "9223372036854775808"];
        for call in [&["dyad", "publish"][..], &seed] {
            let wrong = Cli::try_parse_from(call).unwrap_err();
            assert_eq!(wrong.exit_code(), 2);
        }
    }
}
