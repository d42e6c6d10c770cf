//! `dyad workflow test`: plays a workflow without models, brokers and stores, and prints what was said and earned.

mod line;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use broker::RoleName;
use broker::ids::WeightVersion;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Generation, TurnOutcome, VersionSpan};
use clap::{Args, Subcommand};
use configs::RunConfig;
use rollout::group::{GroupRun, MemberEnd, Rules, RunSpec, Wanted};
use rollout::workflow::Workflow;

use line::Remote;

use super::conversation::{prompt_text, render};
use crate::logs::{Transcript, TranscriptTurn};
use crate::participant::Host;

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

/// Play conversations with scripted answers and print them
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
    /// As JSON, one conversation a line
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &WorkflowArgs) -> anyhow::Result<()> {
    let WorkflowCommand::Test(args) = &args.command;
    let config = super::check::check(&args.config)?;
    let lines = std::fs::read_to_string(&args.task).with_context(|| format!("reading {}", args.task.display()))?;
    let says = says(&args.says)?;
    let workflow = rollout::workflow::build(&config.workflow, &config.graders, &config.tools)
        .map_err(|problems| super::problems_error(&problems))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let remote = runtime.block_on(Remote::open(args, &*workflow))?;
    let line = remote.as_ref().map(|remote| remote.line.clone());
    let host = runtime.block_on(async { Host::start(workflow.clone(), line) });
    let told = runtime.block_on(tell_all(args, &config, (&workflow, &host), &lines, &says));
    if let Some(remote) = remote {
        runtime.block_on(remote.close());
    }
    told
}

/// Plays the tasks one after the other and prints what was said.
async fn tell_all(
    args: &TestArgs,
    config: &RunConfig,
    (workflow, host): (&Arc<dyn Workflow>, &Host),
    lines: &str,
    says: &Says,
) -> anyhow::Result<()> {
    for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let task = Task::parse(line.as_bytes(), config.run.message_cap.0 as usize)
            .with_context(|| format!("line {} of {}", number + 1, args.task.display()))?;
        let seed = args.seed.unwrap_or(config.run.seed);
        for transcript in play(config, (workflow, host), task, args.members.max(1), seed, says).await? {
            if args.json {
                println!("{}", crate::logs::printable(&serde_json::to_string(&transcript)?));
            } else {
                println!("{}", render(&transcript));
            }
        }
    }
    Ok(())
}

/// What each role may say.
type Says = BTreeMap<String, Vec<String>>;

fn says(given: &[String]) -> anyhow::Result<Says> {
    let mut says = Says::new();
    for one in given {
        let (role, text) = one
            .split_once('=')
            .with_context(|| format!("--say {one}: write ROLE=TEXT"))?;
        says.entry(role.to_owned()).or_default().push(text.to_owned());
    }
    Ok(says)
}

/// Plays a group of `task` to its end: agents say what `says` has, drawn by each turn's seed; programs are asked for real.
pub async fn play(
    config: &RunConfig,
    (workflow, host): (&Arc<dyn Workflow>, &Host),
    task: Task,
    members: u16,
    seed: u64,
    says: &Says,
) -> anyhow::Result<Vec<Transcript>> {
    workflow.check_task(&task).map_err(anyhow::Error::msg)?;
    let task = Arc::new(task);
    let mut run = GroupRun::new(RunSpec {
        workflow: workflow.clone(),
        task: task.clone(),
        task_id: task.id.clone().unwrap_or_else(|| "test".into()),
        run_seed: seed,
        group_size: members,
        retries: config.workflow.retries,
        min_valid: 1,
    });
    while !run.is_done() {
        for wanted in run.take_wanted() {
            let outcome = if host.plays(&wanted.key.role) {
                host.ask(&wanted.key.role, &wanted.ask.messages).await
            } else {
                TurnOutcome::Done(scripted(&wanted, &task, says))
            };
            match outcome {
                TurnOutcome::Done(made) => run.on_result(wanted.key, made).map_err(anyhow::Error::new)?,
                TurnOutcome::Failed { reason, retry } => {
                    run.on_failure(&wanted.key, &reason, retry);
                }
            }
        }
    }
    let rules = Rules::new(&config.workflow, &workflow.roles(), Default::default());
    let ends = run.finish().into_iter().enumerate();
    Ok(ends
        .map(|(member, end)| told(config, &rules, host, &task, member, end))
        .collect())
}

/// An answer without a model, a function of the turn's seed.
fn scripted(wanted: &Wanted, task: &Task, says: &Says) -> Generation {
    let usual = [prompt_text(&task.label), "approve".to_owned(), "reject".to_owned()];
    let role = wanted.key.role.as_str();
    let at_turn = says.get(&format!("{role}@{}", wanted.key.turn));
    let choices = at_turn.or_else(|| says.get(role)).map_or(&usual[..], Vec::as_slice);
    let choice = (wanted.seed % choices.len().max(1) as u64) as usize;
    let version = WeightVersion::default();
    Generation {
        kept: 0,
        prompt_ids: vec![0],
        output_ids: vec![choice as u32],
        logprobs: vec![-(choices.len().max(1) as f32).ln()],
        spans: vec![VersionSpan {
            version,
            start: 0,
            end: 1,
        }],
        oldest_kv: version,
        temperature: 1.0,
        finish: Finish::Stop,
        text: choices.get(choice).cloned().unwrap_or_default(),
    }
}

fn told(config: &RunConfig, rules: &Rules, host: &Host, task: &Task, member: usize, end: MemberEnd) -> Transcript {
    let mut transcript = Transcript {
        conversation: format!("test/{member}"),
        task: task.id.clone().unwrap_or_else(|| "test".into()),
        prompt: serde_json::to_value(&task.prompt).unwrap_or_default(),
        label: task.label.clone(),
        ..Transcript::default()
    };
    let (outcome, turns) = match end {
        MemberEnd::Ended { outcome, turns } => (outcome, turns),
        MemberEnd::Failed { reason } => {
            transcript.status = format!("failed: {reason}");
            return transcript;
        }
    };
    transcript.status = "completed".into();
    let agent = |role: &RoleName| {
        let player = rollout::workflow::player(&config.workflow, host.workflow(), role);
        player.map_or_else(|| host.kind(role).to_owned(), |player| player.agent.to_string())
    };
    let turn = |(key, made): (broker::ids::TurnKey, Generation)| TranscriptTurn {
        agent: agent(&key.role),
        role: key.role.to_string(),
        seat: key.seat,
        turn: key.turn,
        tokens: made.output_ids.len() as u32,
        version: made.oldest_kv.to_string(),
        finish: "stop".into(),
        mean_logprob: made.logprobs.first().copied().unwrap_or(0.0).into(),
        text: made.text,
    };
    transcript.turns = turns.into_iter().map(turn).collect();
    transcript.metrics = outcome
        .metrics
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    for seat in &outcome.rewards {
        let label = if seat.seat == 0 {
            seat.role.to_string()
        } else {
            format!("{}/{}", seat.role, seat.seat)
        };
        let mut parts: BTreeMap<String, f64> = BTreeMap::from([("total".to_owned(), rules.reward(seat))]);
        parts.extend(
            seat.parts
                .iter()
                .map(|part| (part.name.to_owned(), f64::from(part.value))),
        );
        transcript.rewards.insert(label, parts);
    }
    transcript
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// The shipped example; its program by its whole path, for tests run in the crate's own folder.
    fn example(kind: &str) -> RunConfig {
        let text = std::fs::read_to_string(root().join("configs/programs.toml")).unwrap();
        let text = text
            .replace("process:configs/", &format!("process:{}/configs/", root().display()))
            // A busy machine takes its time to start Python.
            .replace("timeout = \"10s\"", "timeout = \"120s\"");
        let mut config = RunConfig::parse(&text, Path::new("programs.toml")).unwrap();
        if kind != "process" {
            config.workflow.kind = kind.into();
            config.workflow.params = "prompts = \"short\"".parse().unwrap();
            let grader = serde_json::from_value(serde_json::json!({"kind": "integer"})).unwrap();
            config.graders.insert("correct".into(), grader);
        }
        config
    }

    async fn played(
        config: &RunConfig,
        task: Task,
        members: u16,
        seed: u64,
        says: &Says,
    ) -> anyhow::Result<Vec<Transcript>> {
        let workflow = rollout::workflow::build(&config.workflow, &config.graders, &config.tools).unwrap();
        let host = Host::start(workflow.clone(), None);
        play(config, (&workflow, &host), task, members, seed, says).await
    }

    fn sum() -> Task {
        Task::parse(br#"{"id": "sum", "prompt": "2+3=", "label": 5}"#, 1000).unwrap()
    }

    fn answers() -> Says {
        says(
            &[
                "solver=5",
                "solver=6",
                "verifier=approve",
                "verifier=reject",
                "verifier=hm",
                "retry=5",
                "retry=7",
            ]
            .map(String::from),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn the_workflow_in_python_plays_as_the_one_in_rust() {
        let python = played(&example("process"), sum(), 16, 3, &answers()).await.unwrap();
        let rust = played(&example("solve-verify"), sum(), 16, 3, &answers())
            .await
            .unwrap();
        assert_eq!((python.len(), rust.len()), (16, 16));
        let mut retries = 0;
        for (python, rust) in python.iter().zip(&rust) {
            assert_eq!(python.status, "completed");
            let said = |transcript: &Transcript| {
                let agents = transcript.turns.iter().filter(|turn| turn.agent != "program");
                agents
                    .map(|turn| (turn.role.clone(), turn.text.clone()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(said(python), said(rust));
            assert_eq!(python.rewards, rust.rewards);
            for (name, value) in &python.metrics {
                assert_eq!(rust.metrics.get(name), Some(value), "{name}");
            }
            retries += usize::from(python.rewards.contains_key("retry"));
        }
        assert!(
            (1..16).contains(&retries),
            "{retries} of 16 retried: the answers reach too little of the workflow"
        );
    }

    #[tokio::test]
    async fn the_reward_in_python_pays_for_the_number_and_takes_for_words() {
        let mut config = example("solve-verify");
        if let Some(grader) = config.graders.get_mut("correct") {
            grader.kind = format!("process:{}/configs/programs/reward.py", root().display());
            grader.timeout = configs::HumanDuration::from_secs(120);
        }
        let says = says(&["solver=it is 5", "verifier=approve"].map(String::from)).unwrap();
        let played = played(&config, sum(), 1, 0, &says).await.unwrap();
        assert!(
            (played[0].rewards["solver"]["correct"] - 0.8).abs() < 1e-6,
            "{:?}",
            played[0].rewards
        );
        assert!(played[0].turns.iter().any(|turn| turn.role == "grade-solver"));
    }

    /// The whole path of a call: documents on disk, a sub agent's conversation, and what is printed of it.
    #[tokio::test]
    async fn tools_are_played_for_real_and_printed() {
        let text = std::fs::read_to_string(root().join("configs/deep-research.toml")).unwrap();
        let stones = format!("corpus:{}/configs/data/stones", root().display());
        let text = text.replace("corpus:configs/data/stones", &stones);
        let config = RunConfig::parse(&text, Path::new("deep-research.toml")).unwrap();
        let call = |name: &str, argument: &str, value: &str| {
            format!("<tool_call>{{\"name\":\"{name}\",\"arguments\":{{\"{argument}\":\"{value}\"}}}}</tool_call>")
        };
        let given = [
            format!("main@0={}", call("research", "task", "amber")),
            format!("sub@0={}", call("search", "query", "amber")),
            format!("sub@1={}", call("visit", "id", "amber.md")),
            "sub@2=<result>yellow</result>".into(),
            "main@1=<answer>yellow</answer>".into(),
        ];
        let task = Task::parse(br#"{"id": "amber", "prompt": "amber", "label": "yellow"}"#, 1000).unwrap();
        let played = played(&config, task, 1, 0, &says(&given).unwrap()).await.unwrap();
        let spoke: Vec<(&str, &str)> = played[0]
            .turns
            .iter()
            .map(|turn| (turn.role.as_str(), turn.agent.as_str()))
            .collect();
        let expected = [
            ("main", "main"),
            ("sub", "sub"),
            ("sub-search", "tool"),
            ("sub", "sub"),
            ("sub-visit", "tool"),
            ("sub", "sub"),
            ("main", "main"),
        ];
        assert_eq!(spoke, expected);
        assert!(
            (played[0].rewards["sub"]["total"] - 1.5).abs() < 1e-6,
            "{:?}",
            played[0].rewards
        );
        let shown = render(&played[0]);
        let found = "  sub-search, tool\n    1. [amber.md] amber\n    amber amber is yellow and light\n";
        assert!(
            shown.contains(found) && shown.contains("\"query\":\"amber\""),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_program_that_fails_leaves_no_reward() {
        let mut config = example("solve-verify");
        if let Some(grader) = config.graders.get_mut("correct") {
            grader.kind = format!("process:{}/configs/programs/reward.py", root().display());
            grader.timeout = configs::HumanDuration::from_secs(120);
        }
        config.workflow.retries = 2;
        // No label: the example's program raises.
        let task = Task::parse(br#"{"id": "sum", "prompt": "2+3=", "label": "five"}"#, 1000).unwrap();
        let says = says(&["solver=5", "verifier=approve"].map(String::from)).unwrap();
        let played = played(&config, task, 1, 0, &says).await.unwrap();
        let status = &played[0].status;
        assert!(
            status.starts_with("failed: ") && status.ends_with("(the last of 2 tries)"),
            "{status}"
        );
        assert!(played[0].rewards.is_empty());
    }
}
