//! The figures of an evaluation that is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::AgentName;
use broker::ids::WeightVersion;

use super::current::Current;
use crate::coordinator::specs::GroupSpecs;
use crate::run_folder::logs::Transcript;
use crate::run_folder::metrics::Metrics;
use crate::stats::summary::Evaluation;

/// The record of an evaluation: figures, a line of metrics, and transcripts.
pub(crate) struct EvalReport {
    evaluation: Evaluation,
    line: Metrics,
    transcripts: Vec<Transcript>,
}

impl EvalReport {
    /// `held`: how long agents were asked to hold.
    pub(super) fn of(current: Current, specs: &GroupSpecs, held: Option<Duration>) -> Self {
        let current = current.into_found();
        let mut found = current.found;
        let failed = current.failed + current.program.report(specs.suites(), &mut found);
        let mut line = Metrics::eval(found.step).with("conversations/failed", failed);
        for name in found.values.keys() {
            line.set(name, found.mean(name));
        }
        let eval = &specs.config().eval;
        let low = below_floor(&found, &eval.floors);
        for (metric, value, floor) in &low {
            tracing::warn!(
                step = found.step,
                metric,
                value,
                floor,
                "an evaluation is below its floor: see eval.floors"
            );
        }
        for metric in unknown_floors(&found, &eval.floors) {
            let known: Vec<&str> = found.values.keys().map(String::as_str).collect();
            tracing::warn!(
                metric,
                known = known.join(", "),
                "eval.floors names a figure that the first evaluation does not have: correct the name, unless a later one has it"
            );
        }
        line.set("collapse/alarms", low.len());
        let pinned = current.versions.pinned();
        line.set("weights/pinned", u64::from(pinned));
        for (agent, step) in current.versions.steps() {
            line.set(&format!("weights/step/{agent}"), step);
        }
        if let Some(held) = held {
            line.set("time/held_s", held.as_secs_f64());
        }
        (found.pinned, found.versions) = (Some(pinned), current.versions.into_seen());
        if !pinned && eval.hold {
            let (step, versions) = (found.step, versions_text(&found));
            tracing::warn!(step, versions, "an evaluation is of several versions of weights");
        }
        let success = found.mean("success");
        tracing::info!(step = found.step, success, pinned, "evaluated");
        Self {
            evaluation: found,
            line,
            transcripts: current.transcripts,
        }
    }

    #[must_use]
    pub(crate) fn evaluation(&self) -> &Evaluation {
        &self.evaluation
    }

    #[must_use]
    pub(crate) fn transcripts(&self) -> &[Transcript] {
        &self.transcripts
    }

    /// The evaluation and its line of metrics.
    #[must_use]
    pub(crate) fn into_parts(self) -> (Evaluation, Metrics) {
        (self.evaluation, self.line)
    }
}

/// (metric, value, floor) of every figure below its floor. Figures that the evaluation does not
/// have are left out.
fn below_floor<'a>(found: &Evaluation, floors: &'a BTreeMap<String, f64>) -> Vec<(&'a str, f64, f64)> {
    let low = |(metric, floor): (&'a String, &f64)| {
        let value = found.mean(metric).filter(|value| value < floor)?;
        Some((metric.as_str(), value, *floor))
    };
    floors.iter().filter_map(low).collect()
}

/// Returns the floors of figures that the first evaluation, which plays every suite, does not have.
/// Nothing checks them if no later evaluation has the figure.
fn unknown_floors<'a>(found: &Evaluation, floors: &'a BTreeMap<String, f64>) -> Vec<&'a str> {
    let unknown = floors
        .keys()
        .filter(|name| found.step == 0 && found.mean(name).is_none());
    unknown.map(String::as_str).collect()
}

/// The weights of an evaluation, for people.
fn versions_text(found: &Evaluation) -> String {
    let of_agent = |(agent, versions): (&AgentName, &BTreeSet<WeightVersion>)| {
        let versions: Vec<String> = versions.iter().map(WeightVersion::to_string).collect();
        format!("{agent}: {}", versions.join(", "))
    };
    let agents: Vec<String> = found.versions.iter().map(of_agent).collect();
    agents.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_below_their_floor_are_found() {
        let values = |value: f64| BTreeMap::from([("t".to_owned(), value)]);
        let found = Evaluation {
            values: BTreeMap::from([
                ("win_fixed".to_owned(), values(0.25)),
                ("success".to_owned(), values(0.5)),
            ]),
            ..Evaluation::default()
        };
        let floors = |list: &[(&str, f64)]| list.iter().map(|(name, floor)| ((*name).to_owned(), *floor)).collect();
        let wanted = floors(&[("win_fixed", 0.3), ("success", 0.5), ("absent", 1.0)]);
        assert_eq!(below_floor(&found, &wanted), [("win_fixed", 0.25, 0.3)]);
        assert_eq!(below_floor(&found, &BTreeMap::new()), []);
        assert_eq!(unknown_floors(&found, &wanted), ["absent"]);
        let later = Evaluation { step: 10, ..found };
        assert_eq!(unknown_floors(&later, &wanted), [""; 0]);
    }
}
