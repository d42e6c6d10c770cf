//! `dyad workflow test`: plays a workflow without servers and prints conversations and rewards.

mod contract_check;
mod engine_answers;
mod remote;
mod scripted;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use broker::AgentName;
use broker::ids::{Attempt, GroupId, TurnKey, conversation_seed};
use broker::protocol::task::Task;
use broker::protocol::turn::Generation;
use clap::{Args, Subcommand};
use configs::RunConfig;
use rollout::group::{GroupHead, MemberEnd, Rules, assemble, compare_lengths};
use rollout::tasks::MARK;
use rollout::workflow::Workflow;

use contract_check::keeps_contract;
use engine_answers::AnswerTable;
use remote::Remote;
use scripted::Says;

use super::overrides::LARGEST;
use super::render::conversation::{SCRIPTED, render};
use crate::base::fault::Usage;
use crate::coordinator::transcripts::builder::{Comparisons, TranscriptBuilder};
use crate::coordinator::transcripts::prompts;
use crate::eval::play::{Player, task_id};
use crate::participant::{Host, PROGRAM, TOOL};
use crate::run_folder::logs::Transcript;

/// Try out a workflow
#[derive(Debug, Args)]
pub struct WorkflowArgs {
    #[command(subcommand)]
    command: WorkflowCommand,
}

#[derive(Debug, Subcommand)]
enum WorkflowCommand {
    Test(TestArgs),
}

/// Play conversations with scripted answers or real engines and print them
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The run's configuration
    #[arg(value_parser = super::shipped::parser())]
    pub config: PathBuf,
    /// Tasks, one JSON object per line
    #[arg(long)]
    pub task: PathBuf,
    /// Answer of a role, or of one of its turns (counted per role, from 0). The seed picks one of
    /// several.
    /// Without one a role says the label, `approve` or `reject`
    #[arg(long = "say", value_name = "ROLE[@TURN]=TEXT")]
    pub says: Vec<String>,
    /// Let engines in this process answer, sampled as in training, with the initial weights
    #[arg(long)]
    pub engine: bool,
    /// Let engines answer with the weights of this run: RUN, RUN@N or RUN@initial
    #[arg(long, value_name = "RUN")]
    pub weights: Option<String>,
    /// Let engines answer; this agent has the weights at WHERE, as for `dyad eval`
    #[arg(long = "checkpoint", value_name = "AGENT=WHERE")]
    pub checkpoints: Vec<String>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Conversations per task
    #[arg(long, default_value_t = 1)]
    pub members: u16,
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    pub seed: Option<u64>,
    /// Broker URL for remote participants
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Run id under which remote participants listen (DYAD_RUN)
    #[arg(long, default_value = "workflow-test", value_name = "RUN")]
    pub run: String,
    /// Time to wait for remote participants that do not listen
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub wait: configs::HumanDuration,
    /// Show what agents read before their turns: first the rendered prompt, then new messages
    #[arg(long)]
    pub prompts: bool,
    /// Print JSON, one conversation per line
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &WorkflowArgs) -> anyhow::Result<()> {
    let WorkflowCommand::Test(args) = &args.command;
    let mut config = super::check::check(&args.config)?;
    config.run.seed = args.seed.unwrap_or(config.run.seed);
    let lines = std::fs::read_to_string(&args.task);
    let lines = lines.map_err(|error| Usage::new(format!("reading {}: {error}", args.task.display())))?;
    let lines = lines.strip_prefix(MARK).unwrap_or(&lines);
    let says = scripted::says(&args.says)?;
    let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools)
        .map_err(|problems| crate::base::fault::problems_error(&problems))?;
    crate::cli::embedded::system().block_on(async {
        tokio::spawn(crate::cli::progress::print_starts());
        let table = AnswerTable::open(args, &config)?;
        let remote = Remote::open(args, &*workflow).await?;
        let line = remote.as_ref().map(|remote| remote.line.clone());
        let host = Host::start(workflow.clone(), line);
        let answers = match &table {
            Some(table) => Answers::Served(table.player(&config, workflow, host), table),
            None => Answers::Scripted(workflow, host, &says),
        };
        let printed = print_all(args, &config, lines, &answers).await;
        let unused = says.unused();
        if printed.is_ok() && !unused.is_empty() && table.is_none() {
            eprintln!(
                "--say {} was never used: name a role of the workflow, and a turn that it plays (counted per role, from 0)",
                unused.join(", ")
            );
        }
        if let Some(remote) = remote {
            remote.close().await;
        }
        printed
    })
}

/// The source of answers for all tasks; its processes start once.
enum Answers<'a> {
    Scripted(Arc<dyn Workflow>, Host, &'a Says),
    Served(Player<'a>, &'a AnswerTable),
}

impl Answers<'_> {
    /// The host of programs and participants.
    fn host(&self) -> &Host {
        match self {
            Self::Scripted(_, host, _) => host,
            Self::Served(player, _) => player.host(),
        }
    }

    /// Returns the id under which the task is played; its seeds follow from it.
    fn task_id(&self, task: &Task) -> String {
        let id = task.id.as_deref().unwrap_or("test");
        match self {
            Self::Scripted(..) => id.to_owned(),
            Self::Served(..) => task_id(false, 0, None, id),
        }
    }

    /// Writes the name of the weights into each agent's turn. Clears the tokens and the weights of
    /// a scripted answer.
    fn name_weights(&self, transcript: &mut Transcript) {
        let by_agents = transcript.turns.iter_mut();
        for turn in by_agents.filter(|turn| ![PROGRAM, TOOL].contains(&turn.agent.as_str())) {
            match self {
                Self::Scripted(..) => {
                    (turn.tokens, turn.mean_logprob) = (0, 0.0);
                    turn.version.clear();
                    turn.logprobs_of = SCRIPTED.into();
                }
                Self::Served(_, table) => turn.version = table.label(&turn.agent).to_owned(),
            }
        }
    }

    /// Plays `members` conversations of the task.
    async fn play(&self, config: &RunConfig, task: Arc<Task>, members: u16) -> anyhow::Result<Vec<MemberEnd>> {
        match self {
            Self::Scripted(workflow, host, says) => {
                scripted::play(config, (workflow, host), task, members, config.run.seed, says).await
            }
            Self::Served(player, _) => engine_answers::play(player, task, members).await,
        }
    }
}

/// Plays the tasks in turn and prints the conversations.
async fn print_all(args: &TestArgs, config: &RunConfig, lines: &str, answers: &Answers<'_>) -> anyhow::Result<()> {
    if lines.trim().is_empty() {
        return Err(Usage::new(format!("{} has no task", args.task.display()))
            .hint("write one JSON object per line")
            .into());
    }
    let members = args.members.max(1);
    let (mut played, mut failed) = (0, 0);
    for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let task = Task::parse(line.as_bytes(), config.run.message_cap.0 as usize)
            .map_err(|error| Usage::new(format!("line {} of {}: {error}", number + 1, args.task.display())))?;
        let task = Arc::new(task);
        keeps_contract(config, answers.host(), &task)
            .await
            .with_context(|| format!("line {} of {}", number + 1, args.task.display()))?;
        let ends = answers.play(config, task.clone(), members).await?;
        played += ends.len();
        failed += ends
            .iter()
            .filter(|end| matches!(end, MemberEnd::Failed { .. }))
            .count();
        let id = answers.task_id(&task);
        for mut transcript in read(config, answers.host(), (&task, &id), ends, args.prompts) {
            answers.name_weights(&mut transcript);
            if args.json {
                println!(
                    "{}",
                    crate::run_folder::logs::printable(&serde_json::to_string(&transcript)?)
                );
            } else {
                println!("{}", render(&transcript));
            }
        }
    }
    anyhow::ensure!(
        failed == 0,
        "{failed} of {played} conversations failed: their status says why"
    );
    Ok(())
}

/// Returns the turns of a conversation, finished or failed.
fn turns(end: &MemberEnd) -> &[(TurnKey, Generation)] {
    match end {
        MemberEnd::Ended { turns, .. } | MemberEnd::Failed { turns, .. } => turns,
    }
}

/// Returns the transcripts with what agents read: everything, or only rejected calls.
fn read(
    config: &RunConfig,
    host: &Host,
    (task, id): (&Task, &str),
    ends: Vec<MemberEnd>,
    all: bool,
) -> Vec<Transcript> {
    let mut transcripts = transcripts(config, host, task, ends.clone());
    for (member, (transcript, end)) in (0..).zip(transcripts.iter_mut().zip(&ends)) {
        let seed = conversation_seed(config.run.seed, id, member);
        prompts::add(transcript, host.workflow(), (task, seed), turns(end), all);
    }
    transcripts
}

/// Returns the transcripts of a run, with advantages as if the conversations were one group.
fn transcripts(config: &RunConfig, host: &Host, task: &Task, mut ends: Vec<MemberEnd>) -> Vec<Transcript> {
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    let training = config.participants().into_iter().filter(trains).collect();
    let mut rules = Rules::of(&config.workflow, host.workflow(), training);
    // A test may play fewer conversations than a run.
    rules.min_valid = 1;
    compare_lengths(&rules, &mut ends);
    let head = GroupHead {
        group: GroupId([0; 16]),
        attempt: Attempt([0; 16]),
        task: String::new(),
        order: 0,
    };
    let comparisons = Comparisons::of(&config.agents, &assemble(&head, &rules, &ends));
    let builder = TranscriptBuilder {
        config: &config.workflow,
        host,
        rules: &rules,
        comparisons: &comparisons,
        times: None,
    };
    let about = |member: usize| Transcript {
        conversation: format!("test/{member}"),
        task: task.id.clone().unwrap_or_else(|| "test".into()),
        prompt: serde_json::to_value(&task.prompt).unwrap_or_default(),
        label: task.label.clone(),
        ..Transcript::default()
    };
    let ends = ends.iter().enumerate();
    ends.map(|(member, end)| builder.build(about(member), member as u16, end))
        .collect()
}

#[cfg(test)]
mod tests;
