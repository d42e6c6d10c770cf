//! `dyad topology export`: one server user for each kind of process, with the permissions it needs.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use broker::AgentName;
use broker::bus::amqp::{redact, vhost};
use broker::ids::RunId;
use broker::local::process::{private_folder, random_secret, write_private};
use broker::seal::{self, SealKey};
use broker::topology::{Principal, Topology};
use broker::users::{User, acl, definitions};
use clap::{Args, Subcommand};
use configs::{ParticipantName, RunConfig};

use crate::base::fault::Usage;
use crate::run_folder::RunFolder;

/// Names of the files that the servers load.
const DEFINITIONS: &str = "rabbitmq.json";
const ACL: &str = "users.acl";
/// File with all URLs, one variable each.
const COMPOSE: &str = "compose.env";

/// Manage the server users of a run
#[derive(Debug, Args)]
pub struct TopologyArgs {
    #[command(subcommand)]
    command: TopologyCommand,
}

#[derive(Debug, Subcommand)]
enum TopologyCommand {
    Export(TopologyExportArgs),
}

/// Write RabbitMQ and Redis users with minimal permissions for one run
///
/// rabbitmq.json has users, permissions, exchanges and queues (`rabbitmqctl import_definitions`, or
/// `load_definitions` in rabbitmq.conf). users.acl is Redis's ACL file (`aclfile` in redis.conf).
/// Both have hashes only. NAME.env has the URLs of one kind of process, with its password: give
/// each process its own file and no other. The coordinator's file also has DYAD_TASK_KEY, with
/// which coordinators verify tasks that agents return. Passwords are random, unless these variables
/// are set: DYAD_PASSWORD_COORDINATOR, DYAD_PASSWORD_AGENT_A, DYAD_PASSWORD_PUBLISHER,
/// DYAD_PASSWORD_OPERATOR, DYAD_PASSWORD_ONLOOKER, DYAD_TASK_KEY; for a remote participant judge,
/// DYAD_PASSWORD_PARTICIPANT_JUDGE.
#[derive(Debug, Args)]
pub struct TopologyExportArgs {
    /// The run: its folder, or with --config the id that its processes are given
    #[arg(long, env = "DYAD_RUN")]
    pub run: String,
    /// The run's configuration, if there is no run folder yet
    #[arg(long, env = "DYAD_CONFIG")]
    pub config: Option<PathBuf>,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// RabbitMQ's URL for the processes, instead of the configuration's; its user is replaced
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Redis's URL for the coordinator, instead of the configuration's; its user is replaced
    #[arg(long, env = "DYAD_STATE", hide_env_values = true, value_name = "URL")]
    pub state: Option<String>,
    /// Folder for the files; created with access for its owner only
    #[arg(long, default_value = "users", value_name = "DIR")]
    pub out: PathBuf,
    /// Replace passwords and DYAD_TASK_KEY; coordinators still accept the earlier keys
    #[arg(long)]
    pub replace: bool,
}

pub fn run(args: &TopologyArgs) -> anyhow::Result<()> {
    let TopologyCommand::Export(args) = &args.command;
    let (run, config) = args.of()?;
    let topology = Topology::new(run.clone());
    let broker = server(
        args.broker.as_deref(),
        &config.run.broker,
        "broker",
        "amqp://127.0.0.1:5672/%2f",
    )?;
    let state = server(
        args.state.as_deref(),
        &config.run.state,
        "state",
        "redis://127.0.0.1:6379/0",
    )?;
    let agents = config.participants();
    let users = users(&topology, &agents, config.remotes())?;
    let task_key = task_key(&args.out.join("coordinator.env"))?;
    let vhost = vhost(&broker)?;
    if args.out.join(DEFINITIONS).exists() && !args.replace {
        return Err(Usage::new(format!("{} already has users", args.out.display()))
            .hint("--replace makes new passwords: then give the new files to the servers and all processes")
            .into());
    }
    let definitions = serde_json::to_string_pretty(&definitions(&topology, &agents, &vhost, &users)?)?;
    private_folder(&args.out)?;
    // The files are readable inside a private folder, because servers in containers run under their
    // own users.
    write_readable(&args.out.join(DEFINITIONS), &format!("{definitions}\n"))?;
    write_readable(&args.out.join(ACL), &acl(&run, &users))?;
    let mut all = String::new();
    for user in &users {
        let urls = Urls::of(user, &broker, &state);
        let (mut own, among_all) = (urls.own(), urls.among_all(&user.who));
        all.push_str(&among_all);
        if user.who.uses_the_store() {
            let _ = writeln!(own, "{}={task_key}", seal::VARIABLE);
        }
        write_private(&args.out.join(format!("{}.env", user.who.label())), &own)?;
    }
    let _ = writeln!(all, "{}={task_key}", seal::VARIABLE);
    write_private(&args.out.join(COMPOSE), &all)?;
    println!("{}", summary(&args.out, &run, &broker, &users));
    Ok(())
}

impl TopologyExportArgs {
    fn of(&self) -> anyhow::Result<(RunId, RunConfig)> {
        let Some(path) = &self.config else {
            let folder = RunFolder::find(&self.runs, &self.run)?;
            return Ok((folder.run().clone(), folder.config()?));
        };
        let run = RunId::new(&self.run)
            .ok_or_else(|| Usage::new(format!("{:?} is not a run id: use a-z, 0-9, '-' and '_'", self.run)))?;
        Ok((run, RunConfig::load(path)?))
    }
}

/// Returns the server's URL, given or configured.
fn server(given: Option<&str>, configured: &str, option: &str, example: &str) -> anyhow::Result<String> {
    let url = given.unwrap_or(configured);
    if url == "memory:" || url == "local:" {
        return Err(Usage::new(format!("run.{option} is {url:?}, which has no users"))
            .hint(format!("give the server's URL: --{option} {example}"))
            .into());
    }
    Ok(url.to_owned())
}

fn users(
    topology: &Topology,
    agents: &[AgentName],
    participants: BTreeSet<ParticipantName>,
) -> anyhow::Result<Vec<User>> {
    let everybody = Principal::all(agents, participants);
    let mut variables = BTreeSet::new();
    let mut users = Vec::new();
    for who in &everybody {
        let variable = variable("DYAD_PASSWORD", who);
        if !variables.insert(variable.clone()) {
            return Err(Usage::new(format!(
                "{variable} would stand for two agents or participants: their names differ only in '-' and '_'"
            ))
            .hint("rename one of them")
            .into());
        }
        let given = std::env::var(&variable).ok().filter(|password| !password.is_empty());
        let user = User::new(topology, who.clone(), given);
        users.push(user.map_err(|error| Usage::new(format!("the password in {variable}: {error}")))?);
    }
    Ok(users)
}

/// Returns the coordinators' secret, given or random. The secrets of earlier exports follow it, so
/// that tasks in custody under them are still accepted.
fn task_key(before: &Path) -> anyhow::Result<String> {
    let given = std::env::var(seal::VARIABLE).ok().filter(|secret| !secret.is_empty());
    let newest = match given {
        Some(secret) => secret,
        None => random_secret()?,
    };
    let mut keys: Vec<String> = newest.split(',').map(str::to_owned).collect();
    for old in task_keys_in(before) {
        if !keys.contains(&old) {
            keys.push(old);
        }
    }
    let secret = keys.join(",");
    SealKey::new(&secret).map_err(|error| Usage::new(error.to_string()))?;
    if secret.contains(char::is_whitespace) || secret.contains(['$', '#', '"', '\'', '\\']) {
        let problem = "has characters that an .env file cannot hold: use letters and digits";
        return Err(Usage::new(format!("{} {problem}", seal::VARIABLE)).into());
    }
    Ok(secret)
}

/// Returns the secrets of an earlier export, the newest first.
fn task_keys_in(environment: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(environment).unwrap_or_default();
    let keys = text.lines().find_map(|line| line.strip_prefix("DYAD_TASK_KEY="));
    keys.iter()
        .flat_map(|keys| keys.split(','))
        .map(str::to_owned)
        .collect()
}

/// Returns a variable's name, for example `DYAD_PASSWORD_AGENT_A`.
fn variable(begin: &str, who: &Principal) -> String {
    format!("{begin}_{}", who.label().to_uppercase().replace('-', "_"))
}

/// A user's URLs, with passwords. Never print them.
struct Urls {
    broker: String,
    state: Option<String>,
}

impl Urls {
    fn of(user: &User, broker: &str, state: &str) -> Self {
        Self {
            broker: user.url(broker),
            state: user.who.uses_the_store().then(|| user.url(state)),
        }
    }

    /// Returns the variables that the process itself reads.
    fn own(&self) -> String {
        let mut text = format!("DYAD_BROKER={}\n", self.broker);
        if let Some(state) = &self.state {
            let _ = writeln!(text, "DYAD_STATE={state}");
        }
        text
    }

    /// Returns the variables that compose.users.yaml reads.
    fn among_all(&self, who: &Principal) -> String {
        let mut text = format!("{}={}\n", variable("DYAD_BROKER", who), self.broker);
        if let Some(state) = &self.state {
            let _ = writeln!(text, "{}={state}", variable("DYAD_STATE", who));
        }
        text
    }
}

fn write_readable(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o644)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn summary(out: &Path, run: &RunId, broker: &str, users: &[User]) -> String {
    let at = |name: &str| out.join(name).display().to_string();
    let mut text = format!("users of run {run} at {}\n", redact(broker));
    for user in users {
        let _ = writeln!(text, "  {:24} {}", user.name, at(&format!("{}.env", user.who.label())));
    }
    let _ = write!(
        text,
        "then: rabbitmqctl import_definitions {}\n      redis-server ... --aclfile {}",
        at(DEFINITIONS),
        at(ACL)
    );
    text
}
