//! The way to a workflow's remote participants, for as long as a test takes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use broker::bus::Bus;
use broker::bus::amqp::redact;
use broker::ids::RunId;
use broker::topology::Topology;
use configs::ParticipantName;
use rollout::workflow::Workflow;
use rollout::workflow::program::Place;
use tokio::time::Instant;

use super::TestArgs;
use crate::cli::failure::{Unavailable, Usage};
use crate::participant::Line;

/// Between two looks whether somebody listens.
const LOOK: Duration = Duration::from_millis(200);

/// Queues of a test, which are gone when it is over.
pub(super) struct Remote {
    pub(super) line: Arc<Line>,
    bus: Arc<dyn Bus>,
    topology: Topology,
    incarnation: String,
    names: BTreeSet<ParticipantName>,
}

/// The remote participants that the workflow asks.
fn names(workflow: &dyn Workflow) -> BTreeSet<ParticipantName> {
    let places = workflow.programs().into_iter().map(|program| program.place);
    places
        .filter_map(|place| match place {
            Place::Remote(name) => Some(name),
            Place::Process(_) | Place::Judge(_) | Place::Agent(..) => None,
        })
        .collect()
}

impl Remote {
    /// None if the workflow asks no remote participant.
    pub(super) async fn open(args: &TestArgs, workflow: &dyn Workflow) -> anyhow::Result<Option<Self>> {
        let names = names(workflow);
        let Some(name) = names.first() else { return Ok(None) };
        let Some(url) = &args.broker else {
            let message = format!("the remote participant {name} is asked over RabbitMQ, and no broker is known");
            return Err(Usage::new(message).hint("give --broker URL or set DYAD_BROKER").into());
        };
        let run = RunId::new(&args.run).ok_or_else(|| Usage::new(format!("{:?} is no run id", args.run)))?;
        let bus = crate::cli::select::connect(url, "workflow test").await?;
        let topology = Topology::new(run);
        // Behind the others: what they give up goes there.
        bus.declare_queue(&topology.dead()).await?;
        let incarnation = crate::ids::incarnation();
        let Some(line) = Line::open(&bus, &topology, &incarnation, &[workflow]).await? else {
            return Ok(None);
        };
        let remote = Self {
            line,
            bus,
            topology,
            incarnation,
            names,
        };
        eprintln!("asking as run {} at {}", args.run, redact(url));
        if let Err(absent) = remote.present(args).await {
            remote.close().await;
            return Err(absent);
        }
        Ok(Some(remote))
    }

    /// Waits until every participant listens.
    async fn present(&self, args: &TestArgs) -> anyhow::Result<()> {
        let until = Instant::now() + args.wait.0;
        for name in &self.names {
            while self.bus.listeners(&self.topology.questions(name)).await == Some(0) {
                if Instant::now() >= until {
                    let message = format!(
                        "nobody listens as participant {name} of run {} within {}",
                        args.run, args.wait
                    );
                    let hint = format!(
                        "start it beside this command, with DYAD_RUN={} and the same DYAD_BROKER, for example \
                         python3 configs/programs/remote_workflow.py {name}; --wait says for how long it is waited for",
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

    /// Takes the queues away that nobody uses.
    pub(super) async fn close(self) {
        let mut queues = vec![self.topology.answers(&self.incarnation)];
        for queue in self
            .names
            .iter()
            .map(|name| self.topology.questions(name))
            .chain([self.topology.dead()])
        {
            let (depth, listeners) = (self.bus.depth(&queue).await, self.bus.listeners(&queue).await);
            if (depth, listeners) == (Some(0), Some(0)) {
                queues.push(queue);
            }
        }
        for queue in queues {
            if let Err(error) = self.bus.delete_queue(&queue).await {
                tracing::warn!(queue = queue.name, %error, "a queue of this test stays");
            }
        }
        self.bus.close().await;
    }
}
