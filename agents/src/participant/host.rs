//! Which program answers which role, and a few copies of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::RoleName;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Message, TurnOutcome};
use configs::Missing;
use rollout::workflow::Workflow;
use rollout::workflow::program::{Fault, Place, Question, read_answer};
use rollout::workflow::unanswered::{said, unanswered};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::judge::Caller;
use super::remote::Line;
use super::tools::Toolbox;
use super::worker::{Job, Worker};

/// Questions that wait for a free copy; who asks more waits.
const WAITING: usize = 1024;

/// Who speaks in a transcript, where it is no agent.
pub const PROGRAM: &str = "program";
pub const TOOL: &str = "tool";

/// What became of a question.
pub type Reply = TurnOutcome;

/// The programs of a run.
pub struct Host {
    workflow: Arc<dyn Workflow>,
    by_role: BTreeMap<RoleName, Asked>,
    tools: Toolbox,
}

/// Who plays a role.
#[derive(Clone)]
struct Asked {
    jobs: mpsc::Sender<Job>,
    missing: Missing,
}

impl Host {
    /// Starts what the workflow names. Programs themselves start with their first question; remote ones are asked over `line`.
    #[must_use]
    pub fn start(workflow: Arc<dyn Workflow>, line: Option<Arc<Line>>) -> Self {
        let tools = Toolbox::start(workflow.tools());
        Self::with(workflow, tools, line)
    }

    /// The programs of another workflow with the same tools, such as one that grades otherwise.
    #[must_use]
    pub fn beside(&self, workflow: Arc<dyn Workflow>, line: Option<Arc<Line>>) -> Self {
        Self::with(workflow, self.tools.clone(), line)
    }

    fn with(workflow: Arc<dyn Workflow>, tools: Toolbox, line: Option<Arc<Line>>) -> Self {
        let mut by_role = BTreeMap::new();
        for program in workflow
            .programs()
            .into_iter()
            .filter(|program| !program.place.is_agent())
        {
            let (sender, receiver) = mpsc::channel(WAITING);
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..program.workers.max(1) {
                let jobs = receiver.clone();
                match (program.place.clone(), line.clone()) {
                    (Place::Process(file), _) => drop(tokio::spawn(Worker::new(file, program.clone()).run(jobs))),
                    (Place::Judge(judge), _) => drop(tokio::spawn(Caller::new(judge, program.timeout).run(jobs))),
                    // Agents are no programs: see the filter.
                    (Place::Agent(..), _) => {}
                    (Place::Remote(name), Some(line)) => drop(tokio::spawn(line.run(name, program.timeout, jobs))),
                    // Its questions are answered with the failure that nobody takes them.
                    (Place::Remote(name), None) => {
                        tracing::error!(participant = %name, "this process has no broker to ask a participant over");
                    }
                }
            }
            for role in program.roles {
                let (jobs, missing) = (sender.clone(), program.missing);
                by_role.insert(role, Asked { jobs, missing });
            }
        }
        Self {
            workflow,
            by_role,
            tools,
        }
    }

    /// One whose only role is played by whoever takes what waits for the answers.
    #[cfg(test)]
    pub(crate) fn silent(
        workflow: Arc<dyn Workflow>,
        role: &RoleName,
    ) -> (Self, mpsc::UnboundedReceiver<oneshot::Sender<Result<String, String>>>) {
        let (jobs, mut questions) = mpsc::channel::<Job>(WAITING);
        let (replies, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(job) = questions.recv().await {
                let _ = replies.send(job.reply);
            }
        });
        let missing = Missing::Retry;
        let host = Self {
            tools: Toolbox::start(workflow.tools()),
            workflow,
            by_role: BTreeMap::from([(role.clone(), Asked { jobs, missing })]),
        };
        (host, asked)
    }

    /// Whose roles these are.
    #[must_use]
    pub fn workflow(&self) -> &dyn Workflow {
        &*self.workflow
    }

    /// Whether a program or a tool plays this role.
    #[must_use]
    pub fn plays(&self, role: &RoleName) -> bool {
        self.by_role.contains_key(role) || self.tools.plays(role)
    }

    /// What answers for this role, where no agent plays it.
    #[must_use]
    pub fn kind(&self, role: &RoleName) -> &'static str {
        if self.tools.plays(role) { TOOL } else { PROGRAM }
    }

    /// Asks the program or the tool of `role`. Ends within its time limit, its waiting line apart.
    pub async fn ask(&self, role: &RoleName, messages: &[Message]) -> Reply {
        if self.tools.plays(role) {
            return self.tools.ask(role, messages).await;
        }
        match self.answer(role, messages).await {
            Ok(text) => TurnOutcome::Done(said(text)),
            Err(fault) => self.failed(role, &fault),
        }
    }

    /// What becomes of a question without an answer: a grade may be missing for good, and is never a 0. With
    /// [`Missing::Tombstone`] the first failure gives it up, of a judge behind a server that of its last try.
    fn failed(&self, role: &RoleName, fault: &Fault) -> Reply {
        let missing = self.by_role.get(role).map_or(Missing::Retry, |asked| asked.missing);
        if missing == Missing::Tombstone {
            tracing::warn!(%role, reason = %fault, "an answer stays without a grade");
        }
        unanswered(missing, Failure::other(fault), *fault != Fault::Missing)
    }

    async fn answer(&self, role: &RoleName, messages: &[Message]) -> Result<String, Fault> {
        let failed = |message: String| Fault::Failed(message);
        let line = messages.first().map_or("", |message| message.content.as_str());
        let question: Question = serde_json::from_str(line)
            .map_err(|error| failed(format!("the question for {role} is broken: {error}")))?;
        let asked = self.by_role.get(role);
        let sender = asked
            .map(|asked| &asked.jobs)
            .ok_or_else(|| failed(format!("no program plays {role}")))?;
        let (reply, answered) = oneshot::channel();
        let job = Job {
            line: line.to_owned(),
            reply,
        };
        let ended = |_| failed(format!("the program of {role} has ended"));
        sender.send(job).await.map_err(|_| ended(()))?;
        let answer = answered.await.map_err(|_| ended(()))?.map_err(failed)?;
        let text = read_answer(&question, &answer)?;
        let usable = self.workflow.check_answer(&question, &text);
        usable.map_err(|why| failed(format!("the program of {role} answered what cannot be: {why}")))?;
        Ok(text)
    }
}
