//! Starts the programs of a run, a few copies of each, and knows which program plays which role.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Message, TurnOutcome};
use configs::{Missing, REMOTE};
use rollout::workflow::Workflow;
use rollout::workflow::program::{Fault, ProgramPlace, Question, read_answer};
use rollout::workflow::unanswered::{said, unanswered};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::health::{BrokenProgram, Health};
use super::judge::Caller;
use super::remote::RemoteConnection;
use super::tools::Toolbox;
use super::worker::{ProgramJob, Worker};
use crate::base::log_scope;

/// The number of questions that wait for a free copy; further askers block.
const WAITING: usize = 1024;

/// The speakers in a transcript that are no agents.
pub const PROGRAM: &str = "program";
pub const TOOL: &str = "tool";

/// The outcome of a question.
pub type ProgramReply = TurnOutcome;

/// The programs of a run.
pub struct Host {
    workflow: Arc<dyn Workflow>,
    by_role: BTreeMap<RoleName, Asked>,
    tools: Toolbox,
    broken: BrokenProgram,
}

/// The program that plays a role.
#[derive(Clone)]
struct Asked {
    jobs: mpsc::Sender<ProgramJob>,
    missing: Missing,
    /// The program's name in messages.
    named: String,
}

impl Host {
    /// Starts the programs that the workflow names. A program itself starts with its first
    /// question; remote ones are asked over `line`.
    #[must_use]
    pub fn start(workflow: Arc<dyn Workflow>, line: Option<Arc<RemoteConnection>>) -> Self {
        let broken = BrokenProgram::default();
        let tools = Toolbox::start(workflow.tools(), &broken);
        Self::with(workflow, tools, broken, line)
    }

    /// The programs of another workflow with the same tools, for example with another grader.
    #[must_use]
    pub fn with_same_tools(&self, workflow: Arc<dyn Workflow>, line: Option<Arc<RemoteConnection>>) -> Self {
        Self::with(workflow, self.tools.clone(), self.broken.clone(), line)
    }

    fn with(
        workflow: Arc<dyn Workflow>,
        tools: Toolbox,
        broken: BrokenProgram,
        line: Option<Arc<RemoteConnection>>,
    ) -> Self {
        let mut by_role = BTreeMap::new();
        for program in workflow
            .programs()
            .into_iter()
            .filter(|program| !program.place.is_agent())
        {
            let (sender, receiver) = mpsc::channel(WAITING);
            let receiver = Arc::new(Mutex::new(receiver));
            let health = Health::new(broken.clone());
            for _ in 0..program.workers.max(1) {
                let jobs = receiver.clone();
                match (program.place.clone(), line.clone()) {
                    (ProgramPlace::Process(file), _) => {
                        let worker = Worker::new(file, program.clone(), health.clone());
                        drop(log_scope::spawn(worker.run(jobs)))
                    }
                    (ProgramPlace::Judge(judge), _) => {
                        drop(log_scope::spawn(Caller::new(judge, program.timeout).run(jobs)))
                    }
                    // Agents are no programs: the filter above removes them.
                    (ProgramPlace::Agent(..), _) => {}
                    (ProgramPlace::Remote(name), Some(line)) => {
                        drop(log_scope::spawn(line.run(name, program.timeout, jobs)))
                    }
                    // Every question fails: the dropped receiver reports that the program has
                    // ended.
                    (ProgramPlace::Remote(name), None) => {
                        tracing::error!(participant = %name, "this process has no broker, so it cannot ask the participant");
                    }
                }
            }
            let named = match &program.place {
                ProgramPlace::Process(file) => file.clone(),
                ProgramPlace::Remote(name) => format!("{REMOTE}{name}"),
                ProgramPlace::Judge(_) | ProgramPlace::Agent(..) => "the judge".into(),
            };
            for role in program.roles {
                let (jobs, missing, named) = (sender.clone(), program.missing, named.clone());
                by_role.insert(role, Asked { jobs, missing, named });
            }
        }
        Self {
            workflow,
            by_role,
            tools,
            broken,
        }
    }

    /// A host with one role. The returned channel carries the places for its answers.
    #[cfg(test)]
    pub(crate) fn silent(
        workflow: Arc<dyn Workflow>,
        role: &RoleName,
    ) -> (Self, mpsc::UnboundedReceiver<oneshot::Sender<Result<String, String>>>) {
        let (jobs, mut questions) = mpsc::channel::<ProgramJob>(WAITING);
        let (replies, asked) = mpsc::unbounded_channel();
        log_scope::spawn(async move {
            while let Some(job) = questions.recv().await {
                let _ = replies.send(job.reply);
            }
        });
        let missing = Missing::Retry;
        let host = Self {
            tools: Toolbox::start(workflow.tools(), &BrokenProgram::default()),
            broken: BrokenProgram::default(),
            workflow,
            by_role: BTreeMap::from([(
                role.clone(),
                Asked {
                    jobs,
                    missing,
                    named: String::new(),
                },
            )]),
        };
        (host, asked)
    }

    /// The workflow that these programs belong to.
    #[must_use]
    pub fn workflow(&self) -> &dyn Workflow {
        &*self.workflow
    }

    /// Returns why a program of this process cannot be used: it failed many times and never
    /// answered. Returns it once.
    #[must_use]
    pub fn take_broken(&self) -> Option<String> {
        self.broken.take()
    }

    /// Returns true if a program or a tool plays this role.
    #[must_use]
    pub fn plays(&self, role: &RoleName) -> bool {
        self.by_role.contains_key(role) || self.tools.plays(role)
    }

    /// The kind of speaker for a role that no agent plays.
    #[must_use]
    pub fn kind(&self, role: &RoleName) -> &'static str {
        if self.tools.plays(role) { TOOL } else { PROGRAM }
    }

    /// Asks the program or the tool of `role`. Ends within its time limit, plus the wait for a free
    /// copy.
    pub async fn ask(&self, role: &RoleName, messages: &[Message]) -> ProgramReply {
        if self.tools.plays(role) {
            return self.tools.ask(role, messages).await;
        }
        match self.answer(role, messages).await {
            Ok(text) => TurnOutcome::Done(said(text)),
            Err(fault) => self.failed(role, &fault),
        }
    }

    /// The outcome of a question without an answer: a grade may be missing for good, and is never a
    /// 0. With [`Missing::Tombstone`] the first failure is final; for a judge behind a server, the
    /// failure of its last try.
    fn failed(&self, role: &RoleName, fault: &Fault) -> ProgramReply {
        let missing = self.by_role.get(role).map_or(Missing::Retry, |asked| asked.missing);
        if missing == Missing::Tombstone {
            tracing::warn!(%role, reason = %fault, "an answer gets no grade");
        }
        unanswered(missing, Failure::other(fault), *fault != Fault::Missing)
    }

    async fn answer(&self, role: &RoleName, messages: &[Message]) -> Result<String, Fault> {
        let failed = |message: String| Fault::Failed(message);
        let line = messages.first().map_or("", |message| message.content.as_str());
        let question: Question = serde_json::from_str(line)
            .map_err(|error| failed(format!("the question for {role} is broken: {error}")))?;
        let asked = self.by_role.get(role);
        let Asked {
            jobs: sender, named, ..
        } = asked.ok_or_else(|| failed(format!("no program plays {role}")))?;
        let (reply, answered) = oneshot::channel();
        let job = ProgramJob::new(line.to_owned(), reply);
        let ended = |_| failed(format!("the program of {role} has ended"));
        sender.send(job).await.map_err(|_| ended(()))?;
        let answer = answered.await.map_err(|_| ended(()))?.map_err(failed)?;
        let text = read_answer(&question, &answer).map_err(|fault| match fault {
            Fault::Failed(why) => failed(format!("{named}: {why}")),
            Fault::Missing => Fault::Missing,
        })?;
        let usable = self.workflow.check_answer(&question, &text);
        usable.map_err(|why| failed(format!("the program of {role} gave an invalid answer: {why}")))?;
        Ok(text)
    }
}
