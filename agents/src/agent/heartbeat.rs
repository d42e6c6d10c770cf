//! The agent's heartbeat, sent after every change and at least twice a second. A task of its own
//! sends it, so that it goes on during a long training step.

use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Outgoing, PublishError};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::control::{Beat, Heartbeat};
use broker::topology::Speaker;

use super::Agent;
use crate::base::log_scope;
use crate::engine::{EngineClient, EnginePresence, EngineProgress};
use crate::observe::series::AllSeries;
use crate::observe::series::standing::{AgentStanding, OwnEngine};

/// The time after which a heartbeat is sent without a change.
const WITHOUT_CHANGE: Duration = Duration::from_millis(400);
/// The shortest pause between two heartbeats. Changes within it share a heartbeat.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

/// Sends heartbeats until the process ends.
pub fn start(agent: Arc<Agent>, engine: Arc<dyn EngineClient>) {
    let (mut changed, mut status, mut version) =
        (agent.changed.subscribe(), agent.status.subscribe(), engine.versions());
    let series = agent.observer.series();
    let mut standing = series.map(|series| {
        let engines = engine.presences();
        (standing(&agent, series, &engines), engines)
    });
    log_scope::spawn(async move {
        for seq in 0.. {
            let shown = |beat: &Heartbeat| {
                if let Some((standing, engines)) = &mut standing {
                    let own = engine.progress().map(own_engine);
                    standing.set(beat, own, engines.iter().map(|engine| (engine.answers)()));
                }
            };
            if let Err(error) = beat(&agent, engine.as_ref(), seq, shown).await {
                if matches!(error.downcast_ref(), Some(PublishError::Closed)) {
                    // The process is ending and has closed its bus.
                    return;
                }
                tracing::warn!(%error, "cannot send a heartbeat: the agent tries again within half a second");
            }
            tokio::time::sleep(SHORTEST_PAUSE).await;
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                _ = status.changed() => {}
                _ = version.changed() => {}
                () = tokio::time::sleep(WITHOUT_CHANGE) => {}
            }
        }
    });
}

/// Returns the numbers that the metrics of an engine show.
pub(crate) fn own_engine(progress: EngineProgress) -> OwnEngine {
    OwnEngine {
        marks: progress.marks,
        cache_usage: progress.cache_usage,
        steps: progress.steps,
    }
}

/// Returns the series of the agent's heartbeat.
fn standing(agent: &Agent, series: &AllSeries, engines: &[EnginePresence]) -> AgentStanding {
    let name = agent.name.as_str();
    let roles = agent
        .config
        .workflow
        .roles
        .iter()
        .filter(|(_, plays)| **plays == agent.name);
    let answered = series.engine.answered(name, roles.map(|(role, _)| role.as_str()));
    let engines = engines.iter().map(|engine| engine.engine.as_str());
    series.standing.of_agent(name, engines, answered)
}

/// Sends one heartbeat, after `shown` has seen it.
async fn beat(
    agent: &Agent,
    engine: &dyn EngineClient,
    seq: u64,
    shown: impl FnOnce(&Heartbeat),
) -> anyhow::Result<()> {
    // The order matters: read the counts, then the step, then the engine's version. A batch raises
    // the step before its verdicts free capacity, and the engine gets the weights later. So a
    // heartbeat that shows the freed capacity shows the raised step too.
    let (counts, next_order) = agent.ledger.standing().await?;
    let status = agent.status.borrow().clone();
    let version = *engine.versions().borrow();
    let beat = Heartbeat {
        agent: agent.name.clone(),
        incarnation: agent.incarnation.clone(),
        seq,
        phase: status.phase,
        version,
        step: status.step,
        capacity: i64::try_from(agent.window).unwrap_or(i64::MAX)
            - i64::try_from(counts.ready + counts.reserved).unwrap_or(i64::MAX),
        ready: counts.ready,
        reserved: counts.reserved,
        closed: counts.closed + counts.dead,
        serving: status.serving,
        next_order,
        run: status.run,
        saved: status.saved,
        holding: status.holding,
        reward: status.reward,
        idle_groups: status.idle_groups,
        pid: std::process::id(),
    };
    shown(&beat);
    let beat = Beat::Agent(beat);
    let message = Outgoing {
        to: agent.topology.to_control(Speaker::Agent(&agent.name)),
        kind: Kind::Heartbeat,
        message_id: format!("{}-{}-{seq}", agent.name, agent.incarnation),
        correlation_id: None,
        headers: vec![
            ("run".into(), agent.run.to_string()),
            ("agent".into(), agent.name.to_string()),
        ],
        body: codec::encode_json(&beat).into(),
        durable: false,
    };
    agent.bus.publish(message).await?;
    Ok(())
}
