//! `dyad workflow test`: plays a workflow without brokers and stores, and prints what was said and earned.

mod asked;
mod kept;
mod line;
mod scripted;
mod served;

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

use kept::keeps_contract;
use line::Remote;
use scripted::Says;
use served::Table;

use super::conversation::render;
use crate::coordinator::transcripts::builder::{Comparisons, TranscriptBuilder};
use crate::eval::play::{Player, task_id};
use crate::participant::Host;
use crate::run_folder::logs::Transcript;

/// Try a workflow out
#[derive(Debug, Args)]
pub struct WorkflowArgs {
    #[command(subcommand)]
    command: WorkflowCommand,
}

#[derive(Debug, Subcommand)]
enum WorkflowCommand {
    Test(TestArgs),
}

/// Play conversations with scripted answers, or with real engines, and print them
#[derive(Debug, Args)]
pub struct TestArgs {
    /// The run's configuration
    pub config: PathBuf,
    /// Tasks, one JSON object a line
    #[arg(long)]
    pub task: PathBuf,
    /// What a role says, at one of its turns with ROLE@TURN; of several, its seed draws one. A role without any says the
    /// label, `approve` or `reject`
    #[arg(long = "say", value_name = "ROLE[@TURN]=TEXT")]
    pub says: Vec<String>,
    /// Engines in this process answer, sampled as in training, with the weights that the configuration begins with
    #[arg(long)]
    pub engine: bool,
    /// Engines answer, with the weights of this run: RUN, RUN@N or RUN@initial
    #[arg(long, value_name = "RUN")]
    pub weights: Option<String>,
    /// Engines answer, this agent's with the weights that lie there: as for `dyad eval`
    #[arg(long = "checkpoint", value_name = "AGENT=WHERE")]
    pub checkpoints: Vec<String>,
    /// Where run folders are
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Conversations of each task
    #[arg(long, default_value_t = 1)]
    pub members: u16,
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where remote participants are asked
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// The run under whose name they listen (DYAD_RUN)
    #[arg(long, default_value = "workflow-test", value_name = "RUN")]
    pub run: String,
    /// How long remote participants that do not listen, or no longer, are waited for
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub wait: configs::HumanDuration,
    /// Show what agents read before their turns: first the prompt, as the templates make it, then what is new to them
    #[arg(long)]
    pub prompts: bool,
    /// As JSON, one conversation a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &WorkflowArgs) -> anyhow::Result<()> {
    let WorkflowCommand::Test(args) = &args.command;
    let mut config = super::check::check(&args.config)?;
    config.run.seed = args.seed.unwrap_or(config.run.seed);
    let lines = std::fs::read_to_string(&args.task).with_context(|| format!("reading {}", args.task.display()))?;
    let lines = lines.strip_prefix(MARK).unwrap_or(&lines);
    let says = scripted::says(&args.says)?;
    let workflow = rollout::workflow::build(&config.workflow, &config.graders, &config.tools)
        .map_err(|problems| crate::base::fault::problems_error(&problems))?;
    crate::cli::embedded::system().block_on(async {
        let table = Table::open(args, &config)?;
        let remote = Remote::open(args, &*workflow).await?;
        let line = remote.as_ref().map(|remote| remote.line.clone());
        let host = Host::start(workflow.clone(), line);
        let answers = match &table {
            Some(table) => Answers::Served(table.player(&config, workflow, host)),
            None => Answers::Scripted(workflow, host, &says),
        };
        let told = tell_all(args, &config, lines, &answers).await;
        if let Some(remote) = remote {
            remote.close().await;
        }
        told
    })
}

/// Who answers, for all tasks: what is started is started once.
enum Answers<'a> {
    Scripted(Arc<dyn Workflow>, Host, &'a Says),
    Served(Player<'a>),
}

impl Answers<'_> {
    /// Who is asked where no agent plays.
    fn host(&self) -> &Host {
        match self {
            Self::Scripted(_, host, _) => host,
            Self::Served(player) => player.host(),
        }
    }

    /// The name under which the task is played, from which its seeds follow.
    fn task_id(&self, task: &Task) -> String {
        let id = task.id.as_deref().unwrap_or("test");
        match self {
            Self::Scripted(..) => id.to_owned(),
            Self::Served(_) => task_id(false, 0, None, id),
        }
    }

    /// Plays `members` conversations of the task.
    async fn play(&self, config: &RunConfig, task: Arc<Task>, members: u16) -> anyhow::Result<Vec<MemberEnd>> {
        match self {
            Self::Scripted(workflow, host, says) => {
                scripted::play(config, (workflow, host), task, members, config.run.seed, says).await
            }
            Self::Served(player) => served::play(player, task, members).await,
        }
    }
}

/// Plays the tasks one after the other and prints what was said.
async fn tell_all(args: &TestArgs, config: &RunConfig, lines: &str, answers: &Answers<'_>) -> anyhow::Result<()> {
    let members = args.members.max(1);
    for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let task = Task::parse(line.as_bytes(), config.run.message_cap.0 as usize)
            .with_context(|| format!("line {} of {}", number + 1, args.task.display()))?;
        let task = Arc::new(task);
        keeps_contract(config, answers.host(), &task)
            .await
            .with_context(|| format!("line {} of {}", number + 1, args.task.display()))?;
        let ends = answers.play(config, task.clone(), members).await?;
        let id = answers.task_id(&task);
        for transcript in read(config, answers.host(), (&task, &id), ends, args.prompts) {
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
    Ok(())
}

/// What was said in a conversation, however it ended.
fn turns(end: &MemberEnd) -> &[(TurnKey, Generation)] {
    match end {
        MemberEnd::Ended { turns, .. } | MemberEnd::Failed { turns, .. } => turns,
    }
}

/// As [`told`], and what agents read: all of it, or calls that were refused.
fn read(
    config: &RunConfig,
    host: &Host,
    (task, id): (&Task, &str),
    ends: Vec<MemberEnd>,
    all: bool,
) -> Vec<Transcript> {
    let mut told = told(config, host, task, ends.clone());
    for (member, (transcript, end)) in (0..).zip(told.iter_mut().zip(&ends)) {
        let seed = conversation_seed(config.run.seed, id, member);
        asked::add(transcript, host.workflow(), (task, seed), turns(end), all);
    }
    told
}

/// As a run would tell it, with the advantages that the conversations would have as one group.
fn told(config: &RunConfig, host: &Host, task: &Task, mut ends: Vec<MemberEnd>) -> Vec<Transcript> {
    let trains = |name: &AgentName| config.agents.get(name).is_some_and(|agent| agent.train.enabled);
    let training = config.participants().into_iter().filter(trains).collect();
    let mut rules = Rules::new(&config.workflow, &host.workflow().roles(), training);
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
