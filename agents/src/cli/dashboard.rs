//! `dyad dashboard`: shows runs in the browser.

mod changes;
mod listening;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use broker::bus::{Bus, BusHealth};
use broker::ids::RunId;
use broker::topology::Topology;
use clap::Args;
use serde_json::Value;
use tokio::sync::Mutex;

use super::ended::{self, Over};
use super::{audit, compare, select, task_fate, tasks};
use crate::base::log_scope;
use crate::base::signals::Signals;
use crate::dashboard::{
    ADDRESS, ChangeRefused, CommandAnswers, DeadLetter, LetterPage, PageChange, Plan, Runs, Served, TaskOutcome,
    cannot_listen, serve,
};
use crate::report::task_accounts::BrokerCounts;
use crate::run_folder::telemetry::{self, Telemetry};
use crate::run_folder::{KnownConfigs, RunFolder};
use listening::Listening;

/// Show runs in the browser
///
/// Prints the URL, which holds the token, and serves until it is interrupted. It only reads, unless
/// --write is given. `DYAD_DASHBOARD_TOKEN` sets the token; an address that other machines reach
/// needs it.
#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// The run: `latest`, its id or the beginning of it, or its folder; without it all runs
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub listen: SocketAddr,
    /// Folder that holds the run folders
    #[arg(long, env = "DYAD_RUNS", default_value = "runs", value_name = "FOLDER")]
    pub runs: PathBuf,
    /// Let pages publish tasks, handle dead letters, and pause, resume, drain or checkpoint a run
    #[arg(long, conflicts_with = "no_token")]
    pub write: bool,
    /// Broker URL, instead of the runs' own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    /// Broker URL with the publisher's user; default: --broker
    #[arg(long, env = "DYAD_BROKER_PUBLISHER", hide_env_values = true, value_name = "URL")]
    pub publisher: Option<String>,
    /// Broker URL with the operator's user, for dead letters and orders
    #[arg(long, env = "DYAD_BROKER_OPERATOR", hide_env_values = true, value_name = "URL")]
    pub operator: Option<String>,
    /// Name of this host that browsers may use, besides its addresses
    #[arg(long, value_name = "NAME")]
    pub host_name: Vec<String>,
    /// Answer without a token to every user of this machine
    #[arg(long)]
    pub no_token: bool,
}

/// The option `--dashboard` of commands that start a run.
#[derive(Debug, Clone, Default, Args)]
pub struct DashboardOption {
    /// Show the run in the browser; the first line printed is the URL
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = ADDRESS)]
    pub dashboard: Option<SocketAddr>,
}

pub fn run(args: &DashboardArgs) -> anyhow::Result<()> {
    let _telemetry = telemetry::init(Telemetry {
        stderr: Some("warn,agents::dashboard::changes=info"),
        ..Telemetry::of_command("dashboard")
    })?;
    let runs = match &args.run {
        Some(which) => Runs::only(RunFolder::find(&args.runs, which)?),
        None => Runs::below(&args.runs),
    };
    let plan = Plan::new(args.listen, !args.no_token, args.host_name.clone())?.writing(args.write);
    select::block_on(async {
        let mut signals = Signals::listen()?;
        let answers = Answers {
            broker: args.broker.clone(),
            publisher: args.publisher.clone(),
            operator: args.operator.clone(),
            ..Answers::default()
        };
        let served = serve(plan, runs, Arc::new(answers))?;
        println!("{}", served.url);
        signals.next().await;
        served.close().await;
        Ok(())
    })
}

impl DashboardOption {
    /// Checks the token, and that the address is free, before a run begins.
    ///
    /// # Errors
    /// The token is weak, or the address cannot be listened on. The hint says what works.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(address) = self.dashboard else { return Ok(()) };
        Plan::new(address, true, Vec::new())?;
        match std::net::TcpListener::bind(address) {
            Ok(_) => Ok(()),
            Err(error) => Err(cannot_listen(address, &error).into()),
        }
    }

    /// Serves the pages of a run in this process and prints their URL. `bus` holds its messages.
    ///
    /// # Errors
    /// The token is weak, or the address cannot be listened on.
    pub fn serve(&self, folder: &RunFolder, bus: Arc<dyn Bus>) -> anyhow::Result<Option<Served>> {
        let Some(address) = self.dashboard else {
            return Ok(None);
        };
        let answers = Answers {
            own: Some((folder.run().clone(), bus)),
            ..Answers::default()
        };
        let plan = Plan::new(address, true, Vec::new())?;
        let served = serve(plan, Runs::only(folder.clone()), Arc::new(answers))?;
        println!("{}", served.url);
        Ok(Some(served))
    }
}

/// Answers pages, and makes their changes, as the commands do.
#[derive(Default)]
struct Answers {
    /// The run of this process.
    own: Option<(RunId, Arc<dyn Bus>)>,
    /// The broker of all runs, instead of their own.
    broker: Option<String>,
    /// The same broker with the publisher's and the operator's user.
    publisher: Option<String>,
    operator: Option<String>,
    configs: Arc<KnownConfigs>,
    listening: Mutex<HashMap<RunId, Arc<Mutex<Listening>>>>,
}

impl Answers {
    async fn listening(&self, folder: &RunFolder) -> Arc<Mutex<Listening>> {
        let mut listening = self.listening.lock().await;
        listening.entry(folder.run().clone()).or_default().clone()
    }

    fn own(&self, folder: &RunFolder) -> Option<Arc<dyn Bus>> {
        let own = self.own.as_ref().filter(|(run, _)| run == folder.run());
        own.map(|(_, bus)| bus.clone())
    }

    /// Returns how the run is over, if it is, as `dyad status` does. Reads files.
    async fn ended_or_stopped(&self, folder: &RunFolder) -> anyhow::Result<Option<Over>> {
        let (folder, configs) = (folder.clone(), self.configs.clone());
        let over = log_scope::spawn_blocking(move || {
            let config = configs.of(&folder)?;
            ended::over_with(&folder, &config)
        });
        let over = over.await??;
        Ok(over.filter(|over| over.is_final() || self.broker.is_none()))
    }

    async fn connect(&self, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        match self.own(folder) {
            Some(bus) => Ok(bus),
            None => self.connect_as(None, folder).await,
        }
    }

    /// Returns a connection that may read dead letters, and true if it is kept. That of a run that
    /// is over is for one look.
    async fn letters_bus(&self, folder: &RunFolder) -> anyhow::Result<(Arc<dyn Bus>, bool)> {
        if let Some(bus) = self.own(folder) {
            return Ok((bus, true));
        }
        if self.ended_or_stopped(folder).await?.is_some() {
            return Ok((self.connect_as(self.operator.as_ref(), folder).await?, false));
        }
        let listening = self.listening(folder).await;
        let bus = listening.lock().await.letters_bus(self, folder).await?;
        // A look would wait until it is connected again.
        match bus.health() {
            BusHealth::Down(reason) => anyhow::bail!("cannot reach RabbitMQ: {reason}"),
            BusHealth::Up | BusHealth::Blocked(_) => Ok((bus, true)),
        }
    }

    /// Connects to a run's broker, with the given user's URL if there is one.
    async fn connect_as(&self, user: Option<&String>, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        let url = self.url_of(user, folder)?;
        select::connect_within(&url, "dashboard", select::PATIENCE).await
    }

    /// Connects like [`Self::connect_as`] for one change, which sends and receives only messages of
    /// dyad.
    async fn connect_for_change(&self, user: Option<&String>, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        let url = self.url_of(user, folder)?;
        select::connect_small(&url, "dashboard", false).await
    }

    fn url_of(&self, user: Option<&String>, folder: &RunFolder) -> anyhow::Result<String> {
        let given = user.or(self.broker.as_ref()).map(String::as_str);
        select::broker_url(given, Some(folder))
    }
}

#[async_trait]
impl CommandAnswers for Answers {
    async fn status(&self, folder: &RunFolder) -> anyhow::Result<Value> {
        let listening = self.listening(folder).await;
        let mut listening = listening.lock().await;
        listening.status(self, folder).await
    }

    async fn over(&self, folder: &RunFolder) -> anyhow::Result<Option<String>> {
        let over = self.ended_or_stopped(folder).await?;
        Ok(over.map(|over| over.text().to_owned()))
    }

    async fn counts(&self, folder: &RunFolder) -> Option<BrokerCounts> {
        let counted = async {
            let (bus, is_kept) = self.letters_bus(folder).await?;
            let counts = in_time(audit::counts(&bus, folder)).await;
            if !is_kept {
                bus.close().await;
            }
            counts
        };
        let counted: anyhow::Result<BrokerCounts> = counted.await;
        counted
            .inspect_err(|error| tracing::debug!(%error, "the dead letters were not counted"))
            .ok()
    }

    async fn letters(&self, folder: &RunFolder, page: &mut LetterPage) -> anyhow::Result<u64> {
        if self.own(folder).is_none() && self.broker.is_none() {
            let (folder, mut taken) = (folder.clone(), std::mem::take(page));
            let saved = log_scope::spawn_blocking(move || {
                let looked = tasks::saved::look(&folder, |letter| taken.see(&shown(letter)));
                looked.map(|total| (total, taken))
            });
            let (total, taken) = saved.await??;
            *page = taken;
            if let Some(total) = total {
                return Ok(total);
            }
        }
        let topology = Topology::new(folder.run().clone());
        let (bus, is_kept) = self.letters_bus(folder).await?;
        let total = in_time(tasks::look(&bus, &topology, |letter| page.see(&shown(letter)))).await;
        if !is_kept {
            bus.close().await;
        }
        total
    }

    fn outcome(&self, folder: &RunFolder, task: &str) -> anyhow::Result<Option<TaskOutcome>> {
        let Some(fate) = task_fate::of_tasks(folder, &[task.to_owned()])?.pop() else {
            return Ok(None);
        };
        let printed = serde_json::to_value(&fate)?;
        Ok(Some(TaskOutcome {
            outcome: printed["outcome"].as_str().unwrap_or_default().to_owned(),
            text: fate.outcome.text(),
            is_final: fate.outcome.is_final(),
        }))
    }

    fn compare(&self, a: &RunFolder, b: &RunFolder) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(compare::of_two(a, b)?)?)
    }

    async fn bus(&self, folder: &RunFolder) -> anyhow::Result<Arc<dyn Bus>> {
        let listening = self.listening(folder).await;
        let mut listening = listening.lock().await;
        if let Some(over) = self.over(folder).await? {
            anyhow::bail!(over);
        }
        listening.bus(self, folder).await
    }

    async fn change(&self, folder: &RunFolder, change: PageChange) -> Result<Value, ChangeRefused> {
        let only_checks = matches!(change, PageChange::Publish { check: true, .. });
        let made = async {
            match self.over(folder).await? {
                Some(over) if !only_checks => Ok(Err(over)),
                _ => self.make(folder, change).await.map(Ok),
            }
        };
        match made.await {
            Ok(made) => made.map_err(|message| ChangeRefused { status: 409, message }),
            Err(error) => Err(changes::refused(&error)),
        }
    }
}

/// Gives up a look at dead letters that takes too long.
async fn in_time<T>(look: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let looked = tokio::time::timeout(audit::COUNTING, look).await;
    looked.context("the broker did not show its dead letters in time")?
}

fn shown(letter: &tasks::Letter) -> DeadLetter {
    DeadLetter {
        facts: letter.facts.clone(),
        body: letter.body.clone(),
    }
}

#[cfg(test)]
mod tests {
    use broker::bus::memory::MemoryBus;

    use super::super::ended::tests::ended_run;
    use super::*;
    use crate::run_folder::tests::config_in;

    #[tokio::test]
    async fn ended_run_has_a_status_and_no_messages() {
        let base = tempfile::tempdir().unwrap();
        let folder = ended_run(base.path());
        let answers = Answers::default();
        let status = answers.status(&folder).await.unwrap();
        assert!(status["over"].as_str().unwrap().contains("eval.stop_at reached"));
        assert!(status["live"].is_null());
        let error = answers.bus(&folder).await.err().unwrap();
        assert!(error.to_string().contains("eval.stop_at reached"), "{error}");
    }

    #[tokio::test]
    async fn run_of_this_process_is_heard_in_its_memory() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let bus: Arc<dyn Bus> = MemoryBus::new();
        let names = folder.config().unwrap().participants();
        bus.declare(&Topology::new(folder.run().clone()), &names).await.unwrap();
        let answers = Answers {
            own: Some((folder.run().clone(), bus.clone())),
            ..Answers::default()
        };
        let status = answers.status(&folder).await.unwrap();
        assert!(status["live"]["queues"].as_object().unwrap().len() > 2, "{status}");
        let mut page = LetterPage::default();
        assert_eq!(answers.letters(&folder, &mut page).await.unwrap(), 0);
        assert!(Arc::ptr_eq(&answers.bus(&folder).await.unwrap(), &bus));
    }
}
