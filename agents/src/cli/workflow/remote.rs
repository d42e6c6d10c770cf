//! The connection to a workflow's remote participants during a test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use broker::bus::Bus;
use broker::bus::amqp::redact;
use broker::ids::RunId;
use broker::topology::{Queue, Topology};
use configs::ParticipantName;
use rollout::workflow::Workflow;
use rollout::workflow::program::ProgramPlace;
use tokio::time::Instant;

use super::TestArgs;
use crate::base::fault::{Unavailable, Usage};
use crate::participant::RemoteConnection;

/// Time between two checks for listeners.
const LOOK: Duration = Duration::from_millis(200);

/// The remote participants of a test.
pub(super) struct Remote {
    pub(super) line: Arc<RemoteConnection>,
    queues: Queues,
}

/// The queues of a test, which are deleted at its end.
struct Queues {
    bus: Arc<dyn Bus>,
    topology: Topology,
    incarnation: String,
    names: BTreeSet<ParticipantName>,
    /// Queues that the test created; the others belong to a run.
    own: Vec<Queue>,
}

/// Returns the remote participants that the workflow asks.
fn names(workflow: &dyn Workflow) -> BTreeSet<ParticipantName> {
    let places = workflow.programs().into_iter().map(|program| program.place);
    places
        .filter_map(|place| match place {
            ProgramPlace::Remote(name) => Some(name),
            ProgramPlace::Process(_) | ProgramPlace::Judge(_) | ProgramPlace::Agent(..) => None,
        })
        .collect()
}

impl Remote {
    /// Connects, or returns `None` if the workflow asks no remote participant.
    pub(super) async fn open(args: &TestArgs, workflow: &dyn Workflow) -> anyhow::Result<Option<Self>> {
        let names = names(workflow);
        let Some(name) = names.first() else { return Ok(None) };
        let Some(url) = &args.broker else {
            let message = format!("remote participant {name} is asked over RabbitMQ, but no broker is known");
            return Err(Usage::new(message).hint("give --broker URL or set DYAD_BROKER").into());
        };
        let run = RunId::new(&args.run).ok_or_else(|| Usage::new(format!("{:?} is not a run id", args.run)))?;
        let bus = crate::cli::select::connect(url, "workflow test").await?;
        let mut queues = Queues {
            bus,
            topology: Topology::new(run),
            incarnation: crate::base::ids::incarnation(),
            names,
            own: Vec::new(),
        };
        let opened = queues.open(args, workflow).await;
        match opened {
            Ok(line) => Ok(line.map(|line| Self { line, queues })),
            Err(error) => {
                queues.close().await;
                Err(error)
            }
        }
    }

    pub(super) async fn close(self) {
        self.queues.close().await;
    }
}

impl Queues {
    async fn open(
        &mut self,
        args: &TestArgs,
        workflow: &dyn Workflow,
    ) -> anyhow::Result<Option<Arc<RemoteConnection>>> {
        self.own.push(self.topology.answers(&self.incarnation));
        let questions = self.names.iter().map(|name| self.topology.questions(name));
        let shared: Vec<Queue> = questions.chain([self.topology.dead()]).collect();
        for queue in shared {
            if !self.bus.exists(&queue).await? {
                self.own.push(queue);
            }
        }
        // Declared last: the other queues move their rejected messages to it.
        self.bus.declare_queue(&self.topology.dead()).await?;
        let Some(line) = RemoteConnection::open(&self.bus, &self.topology, &self.incarnation, &[workflow]).await?
        else {
            return Ok(None);
        };
        line.bear_absence(args.wait);
        let url = args.broker.as_deref().unwrap_or_default();
        eprintln!("asking as run {} at {}", args.run, redact(url));
        self.present(args).await?;
        Ok(Some(line))
    }

    /// Waits until every participant listens.
    async fn present(&self, args: &TestArgs) -> anyhow::Result<()> {
        let until = Instant::now() + args.wait.0;
        for name in &self.names {
            let queue = self.topology.questions(name);
            // A broker without this figure counts as having no listener.
            while self.bus.listeners(&queue).await.is_none_or(|count| count == 0) {
                if Instant::now() >= until {
                    let message = format!(
                        "no program listens as participant {name} of run {} within {}",
                        args.run, args.wait
                    );
                    let hint = format!(
                        "start it next to this command, with DYAD_RUN={} and the same DYAD_BROKER, for example \
                         python3 configs/programs/remote_workflow.py {name}; --wait sets how long this command waits",
                        args.run
                    );
                    let hint = Some(hint);
                    return Err(Unavailable { message, hint }.into());
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Deletes the test's queues even if a participant still listens. The dead-letter queue is
    /// deleted only if it is empty and unused.
    async fn close(&self) {
        let dead = self.topology.dead();
        for queue in &self.own {
            // The broker cannot delete quorum queues under such conditions itself.
            if queue.name == dead.name
                && (self.bus.depth(queue).await, self.bus.listeners(queue).await) != (Some(0), Some(0))
            {
                continue;
            }
            if let Err(error) = self.bus.delete_queue(queue).await {
                tracing::warn!(queue = queue.name, %error, "a queue of this test stays");
            }
        }
        self.bus.close().await;
    }
}
