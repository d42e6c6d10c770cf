//! Which program answers which role, and a few copies of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::RoleName;
use broker::ids::WeightVersion;
use broker::protocol::turn::{Finish, Generation, Message, TurnOutcome};
use rollout::workflow::Workflow;
use rollout::workflow::program::{Fault, Question, read_answer};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::worker::{Job, Worker};

/// Questions that wait for a free copy; who asks more waits.
const WAITING: usize = 1024;

/// What became of a question.
pub type Reply = TurnOutcome;

/// The programs of a run.
pub struct Host {
    workflow: Arc<dyn Workflow>,
    by_role: BTreeMap<RoleName, mpsc::Sender<Job>>,
}

impl Host {
    /// Starts what the workflow names. Programs themselves start with their first question.
    #[must_use]
    pub fn start(workflow: Arc<dyn Workflow>) -> Self {
        let mut by_role = BTreeMap::new();
        for program in workflow.programs() {
            let (sender, receiver) = mpsc::channel(WAITING);
            let receiver = Arc::new(Mutex::new(receiver));
            for _ in 0..program.workers.max(1) {
                tokio::spawn(Worker::new(program.clone()).run(receiver.clone()));
            }
            for role in program.roles {
                by_role.insert(role, sender.clone());
            }
        }
        Self { workflow, by_role }
    }

    /// Whether a program plays this role.
    #[must_use]
    pub fn plays(&self, role: &RoleName) -> bool {
        self.by_role.contains_key(role)
    }

    /// Asks the program of `role`. Ends within its time limit, its waiting line apart.
    pub async fn ask(&self, role: &RoleName, messages: &[Message]) -> Reply {
        match self.answer(role, messages).await {
            Ok(text) => TurnOutcome::Done(said(text)),
            Err(fault) => TurnOutcome::Failed {
                retry: fault != Fault::Missing,
                reason: fault.to_string(),
            },
        }
    }

    async fn answer(&self, role: &RoleName, messages: &[Message]) -> Result<String, Fault> {
        let failed = |message: String| Fault::Failed(message);
        let line = messages.first().map_or("", |message| message.content.as_str());
        let question: Question = serde_json::from_str(line)
            .map_err(|error| failed(format!("the question for {role} is broken: {error}")))?;
        let sender = self
            .by_role
            .get(role)
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

/// A program's answer in the form of a generation: text without tokens.
fn said(text: String) -> Generation {
    Generation {
        kept: 0,
        prompt_ids: Vec::new(),
        output_ids: Vec::new(),
        logprobs: Vec::new(),
        spans: Vec::new(),
        oldest_kv: WeightVersion::default(),
        temperature: 0.0,
        finish: Finish::Stop,
        text,
    }
}
