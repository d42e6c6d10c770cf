//! Explains what each process of a run does or waits for, from the newest heartbeats.

use broker::AgentName;
use broker::bus::blocked;
use broker::protocol::control::{CoordinatorBeat, Heartbeat, RunPhase};
use configs::RunConfig;

use super::listener::LiveState;

const NO_MESSAGES: &str = "no heartbeat: RabbitMQ accepts no messages";
const PAUSED: &str = "waits for `dyad resume`: the run is paused";

/// Returns one line for each agent, then one for each coordinator: its name and what it does.
#[must_use]
pub(super) fn waits(live: &LiveState, config: &RunConfig) -> Vec<(String, String)> {
    let around = Around { live, config };
    let names = config.participants();
    let agents = names.iter().map(|name| (format!("agent {name}"), around.agent(name)));
    let coordinators = live.coordinators.values();
    let coordinators = coordinators.map(|beat| ("coordinator".to_owned(), around.coordinator(beat)));
    let mut lines: Vec<_> = agents.chain(coordinators).collect();
    if live.coordinators.is_empty() {
        let absent = live.alarm.as_ref().map_or(
            "no heartbeat: it starts, or it is gone (see `dyad logs coordinator`)",
            |_| NO_MESSAGES,
        );
        lines.push(("coordinator".into(), absent.into()));
    }
    if let Some(reason) = &live.alarm {
        lines.insert(0, ("RabbitMQ".into(), blocked::advice(reason)));
    }
    lines
}

struct Around<'a> {
    live: &'a LiveState,
    config: &'a RunConfig,
}

impl Around<'_> {
    fn agent(&self, name: &AgentName) -> String {
        let Some(beat) = self.live.agents.get(name.as_str()) else {
            return match &self.live.alarm {
                Some(_) => NO_MESSAGES.into(),
                None => format!("no heartbeat: it loads its model, or it is gone (see `dyad logs {name}`)"),
            };
        };
        let requested = self.requested(name);
        if requested > 0 && !beat.holding.is_empty() {
            return format!("generates {} of an evaluation", count(requested, "turn"));
        }
        if let Some(own) = self.own_work(beat) {
            return own;
        }
        if requested > 0 {
            return format!("generates {} for the coordinator", count(requested, "turn"));
        }
        if beat.run.phase == RunPhase::Paused {
            return PAUSED.into();
        }
        match (self.live.coordinators.is_empty(), self.batch(name)) {
            (true, _) => "waits for a coordinator: none sends heartbeats".into(),
            (_, None) => "waits for the coordinator to request turns".into(),
            (_, Some(batch)) => format!(
                "waits for the coordinator: {} open, {} of {batch} closed for its next batch",
                count(beat.reserved, "group"),
                beat.ready
            ),
        }
    }

    /// Returns the agent's own work, or the reason why it cannot take turns now.
    fn own_work(&self, beat: &Heartbeat) -> Option<String> {
        if beat.phase == RunPhase::Closed {
            return Some("has finished, and serves until every agent has finished".into());
        }
        if !beat.serving {
            return Some("loads its weights: it serves no turns yet".into());
        }
        if !beat.holding.is_empty() {
            return Some("waits for the coordinator: it keeps its weights for an evaluation".into());
        }
        if self.is_full(beat) {
            return Some(format!("trains: {} ready", count(beat.ready, "group")));
        }
        (self.batch(&beat.agent).is_some() && beat.version.step != beat.step)
            .then(|| format!("gives the weights of step {} to its engine", beat.step))
    }

    fn coordinator(&self, beat: &CoordinatorBeat) -> String {
        let absent = self.agents(|beat| beat.is_none_or(|beat| !beat.serving));
        match beat.phase {
            RunPhase::Closed => return "has finished".into(),
            RunPhase::Paused => return PAUSED.into(),
            RunPhase::Starting if absent.is_empty() => return "starts".into(),
            RunPhase::Starting => return format!("starts; waits for {} to serve", absent.join(", ")),
            RunPhase::Running | RunPhase::Draining => {}
        }
        let moves = |beat: &Heartbeat| beat.holding.is_empty() && self.batch(&beat.agent).is_some();
        let moving = self.agents(|beat| beat.is_some_and(moves));
        let plays = if beat.evaluating { "evaluates; waits" } else { "waits" };
        let requested = beat.requested.iter().filter(|(_, turns)| **turns > 0);
        let requested: Vec<String> = requested
            .map(|(agent, turns)| format!("agent {agent} ({})", count(*turns, "turn")))
            .collect();
        let busy = self.agents(|beat| beat.is_some_and(|beat| self.own_work(beat).is_some()));
        if beat.hold.is_some() && !beat.evaluating && !moving.is_empty() {
            format!("waits for {} to keep its weights for an evaluation", moving.join(", "))
        } else if !requested.is_empty() {
            format!("{plays} for {}", requested.join(", "))
        } else if beat.snapshot.is_some() {
            "waits for the agents' checkpoints".into()
        } else if !absent.is_empty() {
            format!(
                "{plays} for {}: no heartbeat, or it does not serve yet",
                absent.join(", ")
            )
        } else if beat.evaluating {
            "evaluates: no turn is requested now".into()
        } else if beat.open_groups > 0 {
            format!("plays {}: no turn is requested now", count(beat.open_groups, "group"))
        } else if !busy.is_empty() {
            format!("waits for {} before it opens groups", busy.join(", "))
        } else {
            "waits for tasks".into()
        }
    }

    /// Returns the agents with a matching heartbeat; None is an absent heartbeat.
    fn agents(&self, matches: impl Fn(Option<&Heartbeat>) -> bool) -> Vec<String> {
        let names = self.config.participants().into_iter();
        let found = names.filter(|name| matches(self.live.agents.get(name.as_str())));
        found.map(|name| format!("agent {name}")).collect()
    }

    /// The number of groups in a batch of an agent that trains.
    fn batch(&self, name: &AgentName) -> Option<u64> {
        let train = &self.config.agents.get(name)?.train;
        train.enabled.then_some(train.batch_groups as u64)
    }

    fn is_full(&self, beat: &Heartbeat) -> bool {
        self.batch(&beat.agent).is_some_and(|batch| beat.ready >= batch)
    }

    fn requested(&self, name: &AgentName) -> u64 {
        let coordinators = self.live.coordinators.values();
        coordinators.filter_map(|beat| beat.requested.get(name)).sum()
    }
}

fn count(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
