//! Tools that agents call: documents in memory, programs, servers.
//!
//! If every try of a call fails, the agent receives the failure as text, unless the configuration
//! drops its conversation. Either way the machinery goes on. A tool's text is cut to its limit
//! before it is committed.

mod answer;
mod corpus;
mod http;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use broker::RoleName;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Message, TurnOutcome};
use configs::{ByteSize, Missing, ToolConfig, ToolFailure};
use rollout::workflow::program::{Program, ProgramPlace};
use rollout::workflow::tools::{ERROR, ToolPlace, ToolProgram, ToolQuestion};
use rollout::workflow::unanswered::said;
use tokio::sync::{Mutex, OnceCell, Semaphore, mpsc, oneshot};

use super::health::{BrokenProgram, Health};
use super::worker::{ProgramJob, Worker};
use crate::base::log_scope;
use crate::base::retry::Pauses;
pub use answer::ToolAnswer;
use answer::{ToolFault, result_of};
use corpus::Corpus;
use http::ToolServer;

/// The number of calls that wait for a free copy of a program; further callers block.
const WAITING: usize = 1024;
/// Pause before the next try, doubled up to a bound.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The characters of a reason that the agent receives.
const REASON: usize = 200;

/// The tools of a run. Clones share them.
#[derive(Clone)]
pub(super) struct Toolbox(BTreeMap<RoleName, Arc<Tool>>);

struct Tool {
    name: String,
    config: ToolConfig,
    place: Backend,
    /// Limits the calls that run at once.
    free: Semaphore,
}

/// The implementation of a tool.
enum Backend {
    Corpus(Arc<LazyCorpus>),
    Program(mpsc::Sender<ProgramJob>),
    Server(ToolServer),
    /// The tool cannot be used; holds the reason.
    Broken(String),
}

/// A corpus that is read once, for all tools of the folder.
struct LazyCorpus {
    folder: PathBuf,
    corpus: OnceCell<Result<Arc<Corpus>, String>>,
}

impl Backend {
    fn url(&self) -> Option<String> {
        match self {
            Self::Server(server) => Some(server.shown()),
            Self::Corpus(_) | Self::Program(_) | Self::Broken(_) => None,
        }
    }
}

impl Toolbox {
    /// Starts the tools. Programs start with their first question; documents are read at once, in
    /// the background.
    pub(super) fn start(tools: Vec<ToolProgram>, broken: &BrokenProgram) -> Self {
        let (mut by_role, mut corpora) = (BTreeMap::new(), BTreeMap::new());
        for tool in tools {
            let roles = tool.roles.clone();
            let open = Arc::new(Tool::open(tool, &mut corpora, broken));
            by_role.extend(roles.into_iter().map(|role| (role, open.clone())));
        }
        for corpus_of_folder in corpora.into_values() {
            log_scope::spawn(async move { drop(corpus_of_folder.corpus().await) });
        }
        Self(by_role)
    }

    pub(super) fn plays(&self, role: &RoleName) -> bool {
        self.0.contains_key(role)
    }

    /// Makes a call. Ends within the time limits of its tries, plus the wait for a free copy.
    pub(super) async fn ask(&self, role: &RoleName, messages: &[Message]) -> TurnOutcome {
        let failed = |reason: String| TurnOutcome::Failed {
            failure: Failure::other(reason),
            retry: false,
        };
        let Some(tool) = self.0.get(role) else {
            return failed(format!("no tool plays {role}"));
        };
        let line = messages.first().map_or("", |message| message.content.as_str());
        match serde_json::from_str::<ToolQuestion>(line) {
            Ok(question) => tool.call(&question, line).await,
            Err(error) => failed(format!("the call of {role} is broken: {error}")),
        }
    }
}

impl Tool {
    fn open(tool: ToolProgram, corpora: &mut BTreeMap<PathBuf, Arc<LazyCorpus>>, broken: &BrokenProgram) -> Self {
        let ToolProgram {
            name,
            place,
            roles,
            config,
        } = tool;
        let place = match place {
            ToolPlace::Corpus(folder) => {
                let corpus_of_folder = corpora.entry(folder.clone()).or_insert_with(|| {
                    let corpus = OnceCell::new();
                    Arc::new(LazyCorpus { folder, corpus })
                });
                Backend::Corpus(corpus_of_folder.clone())
            }
            ToolPlace::Process(file) => {
                Backend::Program(start_program(file, roles, &config, Health::new(broken.clone())))
            }
            ToolPlace::Http(url) => ToolServer::new(&name, &url).map_or_else(Backend::Broken, Backend::Server),
        };
        Self {
            free: Semaphore::new(usize::from(config.workers.max(1))),
            name,
            config,
            place,
        }
    }

    async fn call(&self, question: &ToolQuestion, line: &str) -> TurnOutcome {
        let mut pauses = Pauses::between(FIRST_PAUSE, LONGEST_PAUSE);
        for left in (0..=self.config.retries).rev() {
            let reason = match self.attempt(question, line).await {
                Ok(answer) => return TurnOutcome::Done(said(cut(answer, self.config.answer))),
                Err(ToolFault::ForAgent(reason)) => return TurnOutcome::Done(said(self.complaint(&reason))),
                Err(ToolFault::Broken(reason)) => {
                    let failure = Failure::other(format_args!("the tool {} cannot be used: {reason}", self.name));
                    return TurnOutcome::Failed { failure, retry: false };
                }
                Err(ToolFault::Failed(reason)) => reason,
            };
            let url = self.place.url();
            tracing::warn!(tool = self.name, url, reason, left, "a call of a tool failed");
            if left > 0 {
                pauses.wait().await;
                continue;
            }
            return match self.config.failure {
                ToolFailure::Tell => TurnOutcome::Done(said(self.complaint(&reason))),
                ToolFailure::Drop => TurnOutcome::Failed {
                    failure: Failure::other(format_args!("the tool {} failed: {reason}", self.name)),
                    retry: false,
                },
            };
        }
        TurnOutcome::Done(said(self.complaint("it was not called")))
    }

    fn complaint(&self, reason: &str) -> String {
        let reason: String = reason.chars().take(REASON).collect();
        cut(format!("{ERROR}{}: {reason}", self.name), self.config.answer)
    }

    /// Makes one try, once there is room for it.
    async fn attempt(&self, question: &ToolQuestion, line: &str) -> Result<String, ToolFault> {
        // The semaphore is never closed.
        let _room = self.free.acquire().await;
        let limit = self.config.timeout;
        let late = || ToolFault::Failed(format!("no answer within {limit}"));
        let timed = |answer: Result<Result<String, ToolFault>, tokio::time::error::Elapsed>| {
            answer.unwrap_or_else(|_| Err(late()))
        };
        match &self.place {
            Backend::Broken(reason) => Err(ToolFault::Broken(reason.clone())),
            Backend::Server(server) => timed(tokio::time::timeout(limit.0, server.call(question)).await),
            Backend::Corpus(corpus_of_folder) => {
                let corpus = corpus_of_folder.corpus().await.map_err(ToolFault::Broken)?;
                let (question, longest) = (question.clone(), self.config.answer.0 as usize);
                let answer = move || corpus.answer(&question.tool, &question.arguments, longest);
                let search = log_scope::spawn_blocking(answer);
                let answer = tokio::time::timeout(limit.0, search).await.map_err(|_| late())?;
                answer.map_err(|_| late())?.map_err(ToolFault::ForAgent)
            }
            // The copy enforces the time limit: a late program is ended.
            Backend::Program(jobs) => {
                let (reply, answered) = oneshot::channel();
                let ended = || ToolFault::Failed("its program has ended".into());
                let job = ProgramJob::new(line.to_owned(), reply);
                jobs.send(job).await.map_err(|_| ended())?;
                let answer = answered.await.map_err(|_| ended())?.map_err(ToolFault::Failed)?;
                let value = serde_json::from_str(&answer).map_err(|error| ToolFault::Failed(error.to_string()))?;
                result_of(value).unwrap_or_else(|| Err(ToolFault::Failed("its answer has no \"result\"".into())))
            }
        }
    }
}

fn start_program(file: String, roles: Vec<RoleName>, config: &ToolConfig, health: Health) -> mpsc::Sender<ProgramJob> {
    let program = Program {
        place: ProgramPlace::Process(file.clone()),
        roles,
        timeout: config.timeout,
        workers: config.workers,
        memory: config.memory,
        missing: Missing::default(),
    };
    let (sender, receiver) = mpsc::channel(WAITING);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..config.workers.max(1) {
        log_scope::spawn(Worker::new(file.clone(), program.clone(), health.clone()).run(receiver.clone()));
    }
    sender
}

impl LazyCorpus {
    async fn corpus(&self) -> Result<Arc<Corpus>, String> {
        let read = || async {
            let folder = self.folder.clone();
            let opened = log_scope::spawn_blocking(move || Corpus::open(&folder)).await;
            let opened = opened.unwrap_or_else(|error| Err(error.to_string()));
            if let Err(reason) = &opened {
                tracing::error!(folder = %self.folder.display(), reason, "documents cannot be searched");
            }
            opened.map(Arc::new)
        };
        self.corpus.get_or_init(read).await.clone()
    }
}

/// The problems with the corpora that these tools search: each folder once, by the first tool that
/// names it.
pub fn check_corpora(tools: &[ToolProgram]) -> Vec<(String, String)> {
    let mut folders: BTreeMap<&PathBuf, &str> = BTreeMap::new();
    for tool in tools {
        if let ToolPlace::Corpus(folder) = &tool.place {
            folders.entry(folder).or_insert(&tool.name);
        }
    }
    let problem = |(folder, name): (&PathBuf, &str)| Some((name.to_owned(), Corpus::open(folder).err()?));
    folders.into_iter().filter_map(problem).collect()
}

/// The problems with the servers that these tools ask, by tool.
pub fn check_servers(tools: &[ToolProgram]) -> Vec<(String, String)> {
    let servers = tools.iter().filter_map(|tool| match &tool.place {
        ToolPlace::Http(url) => Some((tool.name.clone(), ToolServer::new(&tool.name, url).err()?)),
        _ => None,
    });
    servers.collect()
}

/// Cuts a text that is longer than `longest` bytes, and marks the cut.
fn cut(mut text: String, longest: ByteSize) -> String {
    const MARK: &str = "\n[cut]";
    let longest = longest.0 as usize;
    if text.len() > longest {
        let mut end = longest.saturating_sub(MARK.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests;
