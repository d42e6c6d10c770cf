//! Progress of a run: a live view on a terminal, else a line from time to time. While agents of
//! this process start, it shows their stages. Commands that only load agents print these alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::AgentName;
use broker::bus::{Bus, verified};
use broker::protocol::control::{Beat, CoordinatorBeat, Heartbeat, RunPhase};
use broker::topology::Topology;
use configs::RunConfig;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::startup::{self, Stages, StartupStage};

/// Time between two lines if the output is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at agents that start.
const START_EVERY: Duration = Duration::from_secs(1);

/// The newest heartbeats.
#[derive(Default)]
struct NewestBeats {
    agents: BTreeMap<AgentName, Heartbeat>,
    coordinators: BTreeMap<String, CoordinatorBeat>,
}

/// Shows progress until the bus closes. `listener` must differ for every process.
pub async fn watch(
    bus: Arc<dyn Bus>,
    topology: &Topology,
    config: Arc<RunConfig>,
    listener: &str,
) -> anyhow::Result<()> {
    let queue = topology.control(listener);
    bus.declare_queue(&queue).await?;
    let mut beats = bus.consume(&queue, 256).await?;
    let topology = topology.clone();
    tokio::spawn(async move {
        let mut view = View::new(config);
        let mut newest = NewestBeats::default();
        let mut stages = startup::stages();
        loop {
            let starting = !stages.borrow().is_empty();
            let delivery = tokio::select! {
                delivery = beats.next() => delivery,
                _ = stages.changed() => {
                    view.show_start(&stages.borrow_and_update());
                    continue;
                }
                () = tokio::time::sleep(START_EVERY), if starting => {
                    view.show_start(&stages.borrow());
                    continue;
                }
            };
            let Some(delivery) = delivery else { return };
            delivery.ack().await;
            match verified::beat(&topology, &delivery) {
                Ok(Beat::Agent(beat)) => {
                    newest.agents.insert(beat.agent.clone(), beat);
                }
                Ok(Beat::Coordinator(beat)) => {
                    newest.coordinators.insert(beat.incarnation.clone(), beat);
                }
                Err(_) => continue,
            }
            if !starting {
                view.show(&newest);
            }
        }
    });
    Ok(())
}

struct View {
    config: Arc<RunConfig>,
    started: Instant,
    last: Option<Instant>,
    last_start: Option<Instant>,
    live: bool,
    bars: MultiProgress,
    run: ProgressBar,
    agents: BTreeMap<AgentName, ProgressBar>,
}

impl View {
    fn new(config: Arc<RunConfig>) -> Self {
        use std::io::IsTerminal;
        let live = std::io::stderr().is_terminal();
        let target = if live {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let run = bars.add(ProgressBar::new(config.run.train_steps));
        if let Ok(style) = ProgressStyle::with_template("{bar:32} step {pos}/{len}  {msg}") {
            run.set_style(style);
        }
        let agents = config
            .participants()
            .into_iter()
            .map(|name| {
                let bar = bars.add(ProgressBar::no_length());
                if let Ok(style) = ProgressStyle::with_template("  {prefix:>12}  {msg}") {
                    bar.set_style(style);
                }
                bar.set_prefix(name.to_string());
                (name, bar)
            })
            .collect();
        Self {
            config,
            started: Instant::now(),
            last: None,
            last_start: None,
            live,
            bars,
            run,
            agents,
        }
    }

    /// Shows what the agents of this process do while some of them start.
    fn show_start(&mut self, stages: &Stages) {
        if stages.is_empty() {
            return;
        }
        if self.live {
            self.run.set_message("starting");
            for (name, bar) in &self.agents {
                bar.set_message(stages.get(name).map_or_else(|| "started".into(), stage_text));
            }
        } else if self.last_start.is_none_or(|at| at.elapsed() >= startup::LOG_EVERY) {
            self.last_start = Some(Instant::now());
            say(&start_line(stages));
        }
    }

    fn show(&mut self, newest: &NewestBeats) {
        let lead = self
            .config
            .lead()
            .and_then(|lead| newest.agents.get(lead))
            .map_or(0, |beat| beat.step);
        let summary = summary(newest, self.started.elapsed(), lead, self.config.run.train_steps);
        if self.live {
            self.run.set_position(lead);
            self.run.set_message(summary);
            for (name, bar) in &self.agents {
                if let Some(beat) = newest.agents.get(name) {
                    bar.set_message(agent_line(beat));
                }
            }
        } else if self.last.is_none_or(|at| at.elapsed() >= PLAIN_EVERY) {
            self.last = Some(Instant::now());
            let agents: Vec<String> = newest
                .agents
                .values()
                .map(|beat| format!("{}: {}", beat.agent, agent_line(beat)))
                .collect();
            let steps = self.config.run.train_steps;
            say(&format!("step {lead}/{steps}  {summary}  {}\n", agents.join("  ")));
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.bars.clear().ok();
    }
}

/// Writes to standard error. A closed pipe must not end the run.
fn say(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// Prints the stages of agents that start in this process: at once, then from time to time.
pub async fn print_starts() {
    let mut stages = startup::stages();
    loop {
        let line = match stages.wait_for(|stages| !stages.is_empty()).await {
            Ok(now) => start_line(&now),
            Err(_) => return,
        };
        say(&line);
        tokio::time::sleep(startup::LOG_EVERY).await;
    }
}

fn start_line(stages: &Stages) -> String {
    let stages: Vec<String> = stages
        .iter()
        .map(|(name, stage)| format!("{name}: {}", stage_text(stage)))
        .collect();
    format!("starting  {}\n", stages.join("  "))
}

fn stage_text(stage: &StartupStage) -> String {
    format!("{} ({} s)", stage.text, stage.since.elapsed().as_secs())
}

fn summary(newest: &NewestBeats, elapsed: Duration, step: u64, steps: u64) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let turns: u64 = newest.coordinators.values().map(|beat| beat.turns).sum();
    let conversations: u64 = newest
        .coordinators
        .values()
        .map(|beat| beat.finished_conversations)
        .sum();
    let paused = newest
        .coordinators
        .values()
        .any(|beat| beat.run.phase == RunPhase::Paused);
    let left = if paused {
        "paused until `dyad resume`".into()
    } else if step > 0 {
        format!("{:.0}s left", seconds / step as f64 * steps.saturating_sub(step) as f64)
    } else {
        "-".into()
    };
    let evaluates = newest.coordinators.values().any(|beat| beat.evaluating);
    let evaluates = match (evaluates, step) {
        (false, _) => "",
        (true, 0) => "  first evaluation",
        (true, _) => "  evaluating",
    };
    format!(
        "{:.0} turns/s  {:.0} conversations/s  {:.0}s, {left}{evaluates}",
        turns as f64 / seconds,
        conversations as f64 / seconds,
        seconds
    )
}

fn agent_line(beat: &Heartbeat) -> String {
    let reward = beat.reward.map_or_else(|| "-".into(), |reward| format!("{reward:.3}"));
    format!(
        "reward {reward}  weights {}  ready {}  reserved {}",
        beat.version, beat.ready, beat.reserved
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_run_has_no_time_left() {
        let said = |phase: RunPhase| {
            let mut beat = crate::testing::coordinator_beat("c1");
            beat.run.phase = phase;
            let mut newest = NewestBeats::default();
            newest.coordinators.insert("c1".into(), beat);
            summary(&newest, Duration::from_secs(10), 5, 10)
        };
        assert!(said(RunPhase::Running).ends_with("10s, 10s left"));
        assert!(said(RunPhase::Paused).ends_with("10s, paused until `dyad resume`"));
    }
}
