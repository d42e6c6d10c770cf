//! `/metrics` of the dashboard: what no process knows of itself, for every live run.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use actix_web::web::Data;
use broker::topology::{Plane, Queue, Topology};
use futures_util::future::join_all;
use serde_json::Value;

use super::answer::{ApiError, whole};
use super::runs::{State, state};
use super::server::Server;
use crate::base::log_scope;
use crate::observe::CONTENT_TYPE;
use crate::observe::table::{Labelled, Level, SeriesTable};
use crate::report::audit;
use crate::run_folder::RunFolder;

/// The most live runs that are shown.
const MOST: usize = 32;
/// An audit reads whole ledgers. It begins at the earliest after this time, and after the time that
/// the last one took, times this factor.
const AUDIT_PAUSE: Duration = Duration::from_secs(300);
const AUDIT_SHARE: u32 = 50;

/// State kept from earlier scrapes.
#[derive(Default)]
pub(crate) struct Watched {
    /// When each process of a run last sent a heartbeat, by run and process.
    last_beats: Mutex<HashMap<(String, String), Instant>>,
    audits: Mutex<HashMap<String, Audited>>,
    /// Held by the audit that runs: one at a time.
    auditing: tokio::sync::Mutex<()>,
}

/// The last audit of a run.
#[derive(Clone, Copy)]
struct Audited {
    /// Violations; none before the first audit has ended.
    found: Option<usize>,
    /// The time of the next audit; none while one runs.
    next: Option<Instant>,
}

/// The series; every one has the label `run`.
pub(crate) struct WatchSeries {
    queues: Labelled<Level, 3>,
    limits: Labelled<Level, 4>,
    dead: Labelled<Level, 1>,
    silent: Labelled<Level, 2>,
    violations: Labelled<Level, 1>,
}

impl WatchSeries {
    pub(crate) fn register(table: &mut SeriesTable) -> Self {
        Self {
            queues: table.gauge(
                "dyad_queue_messages",
                ["run", "plane", "agent"],
                "messages ready; agent is empty for shared queues",
            ),
            limits: table.gauge(
                "dyad_queue_limit_bytes",
                ["run", "plane", "agent", "queue"],
                "bytes of ready messages that a queue holds; `queue` is its name in RabbitMQ",
            ),
            dead: table.gauge("dyad_dead_letters", ["run"], "dead letters"),
            silent: table.gauge(
                "dyad_process_silent_seconds",
                ["run", "process"],
                "since the last heartbeat of an agent or of any `coordinator`",
            ),
            violations: table.gauge(
                "dyad_audit_violations",
                ["run"],
                "broken promises that `dyad audit` finds",
            ),
        }
    }

    fn show(&self, folder: &RunFolder, found: &LiveRun, watched: &Watched) -> anyhow::Result<()> {
        let (run, config) = (folder.run().as_str(), folder.config()?);
        let live = &found.status["live"];
        let topology = Topology::new(folder.run().clone());
        let shared = [
            (topology.tasks(), Plane::Tasks, ""),
            (topology.reclaim(), Plane::Reclaim, ""),
        ];
        let own = config.agents.keys().flat_map(|agent| {
            let queues = [
                (topology.reserve(agent), Plane::Reserve),
                (topology.turns(agent), Plane::Turns),
                (topology.samples(agent), Plane::Samples),
            ];
            queues.map(|(queue, plane)| (queue, plane, agent.as_str()))
        });
        for (queue, plane, agent) in shared.into_iter().chain(own) {
            if let Some(messages) = live["queues"][&queue.name].as_f64() {
                self.queues.of([run, plane.as_str(), agent]).set(messages);
            }
            self.show_limit([run, plane.as_str(), agent], &queue);
        }
        let dead = topology.dead();
        if let Some(letters) = live["queues"][&dead.name].as_f64() {
            self.dead.of([run]).set(letters);
        }
        self.show_limit([run, Plane::Dead.as_str(), ""], &dead);
        let is_alive = |name: &str| !live["agents"][name].is_null();
        for agent in config.participants() {
            self.show_silence(run, agent.as_str(), is_alive(agent.as_str()), watched);
        }
        let coordinators = live["coordinators"].as_object();
        self.show_silence(
            run,
            "coordinator",
            coordinators.is_some_and(|all| !all.is_empty()),
            watched,
        );
        if let Some(violations) = found.violations {
            self.violations.of([run]).set(violations as f64);
        }
        Ok(())
    }

    fn show_limit(&self, [run, plane, agent]: [&str; 3], queue: &Queue) {
        let limit = self.limits.of([run, plane, agent, &queue.name]);
        limit.set(queue.max_bytes as f64);
    }

    fn show_silence(&self, run: &str, process: &str, is_alive: bool, watched: &Watched) {
        let silent = watched.silent_for(run, process, is_alive, Instant::now());
        self.silent.of([run, process]).set(silent.as_secs_f64());
    }
}

impl Watched {
    /// Returns how long a process has sent no heartbeat, as far as this dashboard knows.
    fn silent_for(&self, run: &str, process: &str, is_alive: bool, now: Instant) -> Duration {
        let mut last_beats = self
            .last_beats
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = last_beats.entry((run.to_owned(), process.to_owned())).or_insert(now);
        if is_alive {
            *last = now;
        }
        now.saturating_duration_since(*last)
    }

    /// Returns the violations that the last audit of a run found, and true if the caller must begin
    /// the next one. Scrapes never wait for an audit.
    fn audited(&self, run: &str, now: Instant) -> (Option<usize>, bool) {
        let mut audits = self.audits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = audits.entry(run.to_owned()).or_insert(Audited {
            found: None,
            next: Some(now),
        });
        let is_due = known.next.is_some_and(|next| next <= now);
        if is_due {
            known.next = None;
        }
        (known.found, is_due)
    }

    /// Takes the result of an audit that took `time`. After a failure the earlier number stays.
    fn end_audit(&self, run: &str, found: Option<usize>, time: Duration) {
        let mut audits = self.audits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = audits.get_mut(run) {
            known.found = found.or(known.found);
            known.next = Some(Instant::now() + AUDIT_PAUSE.max(time * AUDIT_SHARE));
        }
    }
}

/// Audits a run, after the audits that wait already.
async fn audit_soon(server: Data<Server>, folder: RunFolder) {
    let run = folder.run().to_string();
    let _turn = server.watched.auditing.lock().await;
    let begun = Instant::now();
    let audited = log_scope::spawn_blocking(move || audit::audit(&folder, None)).await;
    let found = match audited.map_err(anyhow::Error::from).and_then(|audit| Ok(audit?)) {
        Ok(audit) => Some(audit.violations().len()),
        Err(error) => {
            tracing::warn!(
                run_id = run,
                error = format!("{error:#}"),
                "a run could not be audited for /metrics"
            );
            None
        }
    };
    server.watched.end_audit(&run, found, begun.elapsed());
}

/// Figures read of a live run.
struct LiveRun {
    status: Value,
    violations: Option<usize>,
}

/// Answers `/metrics`. A run that cannot be read is left out, and the log says why.
pub(crate) async fn metrics(server: Data<Server>) -> Result<HttpResponse, ApiError> {
    let page = whole(async move {
        let is_live = |folder: &RunFolder| matches!(state(folder), Ok((State::Live | State::Silent, _)));
        let runs: Vec<RunFolder> = server.runs.all().into_iter().filter(is_live).take(MOST).collect();
        let found = join_all(runs.iter().map(|folder| read(&server, folder))).await;
        let mut table = SeriesTable::of_several_runs();
        let series = WatchSeries::register(&mut table);
        for (folder, found) in runs.iter().zip(found) {
            let shown = found.and_then(|found| series.show(folder, &found, &server.watched));
            if let Err(error) = shown {
                tracing::warn!(run_id = %folder.run(), error = format!("{error:#}"), "a run is left out of /metrics");
            }
        }
        table.page()
    });
    Ok(HttpResponse::Ok().content_type(CONTENT_TYPE).body(page.await?))
}

async fn read(server: &Data<Server>, folder: &RunFolder) -> anyhow::Result<LiveRun> {
    let status = server.commands.status(folder).await?;
    let (violations, is_due) = server.watched.audited(folder.run().as_str(), Instant::now());
    if is_due {
        log_scope::spawn(audit_soon(server.clone(), folder.clone()));
    }
    Ok(LiveRun { status, violations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;
    use serde_json::json;

    #[test]
    fn silence_counts_from_the_last_heartbeat() {
        let (watched, start) = (Watched::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let silent = |is_alive, seconds| watched.silent_for("r", "a", is_alive, at(seconds)).as_secs();
        assert_eq!((silent(false, 0), silent(false, 5), silent(true, 9)), (0, 5, 0));
        assert_eq!((silent(false, 40), silent(true, 41)), (31, 0));
    }

    #[test]
    fn one_audit_of_a_run_begins_at_a_time_and_a_long_one_is_rare() {
        let (watched, now) = (Watched::default(), Instant::now());
        let at = |seconds: u64| watched.audited("r", now + Duration::from_secs(seconds));
        assert_eq!((at(0), at(15), at(900)), ((None, true), (None, false), (None, false)));
        watched.end_audit("r", Some(2), Duration::from_secs(1));
        assert_eq!((at(290), at(310)), ((Some(2), false), (Some(2), true)));
        watched.end_audit("r", None, Duration::from_secs(60));
        let after_a_failure = (at(2900), at(3100));
        assert_eq!(after_a_failure, ((Some(2), false), (Some(2), true)));
    }

    #[test]
    fn queues_have_planes_and_dead_letters_a_series_of_their_own() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let topology = Topology::new(folder.run().clone());
        let agent = broker::AgentName::new("a").unwrap();
        let (turns, dead) = (topology.turns(&agent).name, topology.dead().name);
        let found = LiveRun {
            status: json!({"live": {"queues": {&turns: 3, dead: 2}, "agents": {"a": {}}, "coordinators": {}}}),
            violations: Some(1),
        };
        let mut table = SeriesTable::of_several_runs();
        let series = WatchSeries::register(&mut table);
        series.show(&folder, &found, &Watched::default()).unwrap();
        let (page, run) = (table.page(), folder.run());
        for line in [
            format!("dyad_queue_messages{{run=\"{run}\",plane=\"turns\",agent=\"a\"}} 3"),
            format!("dyad_queue_limit_bytes{{run=\"{run}\",plane=\"turns\",agent=\"a\",queue=\"{turns}\"}} 536870912"),
            format!("dyad_dead_letters{{run=\"{run}\"}} 2"),
            format!("dyad_audit_violations{{run=\"{run}\"}} 1"),
            format!("dyad_process_silent_seconds{{run=\"{run}\",process=\"coordinator\"}} 0"),
        ] {
            assert!(page.contains(&line), "{line}:\n{page}");
        }
        let unknown = format!("dyad_queue_messages{{run=\"{run}\",plane=\"tasks\"");
        assert!(!page.contains(&unknown), "an unknown depth is no 0");
    }
}
