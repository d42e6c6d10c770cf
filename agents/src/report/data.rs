//! The figures of a run, from its metrics files.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::chart::Series;
use super::error::ReportError;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::read_json_lines;
use crate::stats::summary::{self, Evaluation};

/// A figure at the beginning and at the end: in the first and the last evaluation, or as means over
/// a tenth of the training steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Improvement {
    pub name: String,
    /// The evaluation's metric; empty for a figure of training.
    pub metric: String,
    pub first: f64,
    pub last: f64,
}

/// Values of one metric by step. A step that was trained again after a restart has its last value.
type BySteps = BTreeMap<u64, f64>;

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// By agent, then by metric.
    pub(crate) train: BTreeMap<String, BTreeMap<String, BySteps>>,
    /// By metric.
    pub(crate) eval: BTreeMap<String, BySteps>,
    /// Totals of each coordinator process: (seconds, conversations, turns).
    coordinators: BTreeMap<String, Vec<(f64, f64, f64)>>,
}

pub(crate) fn read(folder: &RunFolder) -> Result<Data, ReportError> {
    let mut data = Data::default();
    for path in folder.files("metrics")? {
        let lines: Vec<Map<String, Value>> = read_json_lines(&path).map_err(|source| ReportError::Io {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        let process = path.file_stem().unwrap_or_default().to_string_lossy();
        lines.iter().for_each(|line| data.add(&process, line));
    }
    for (step, evaluation) in summary::evaluations(folder)? {
        data.take_evaluation(step, &evaluation);
    }
    Ok(data)
}

impl Data {
    fn add(&mut self, process: &str, line: &Map<String, Value>) {
        let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        let step = line.get("step").and_then(Value::as_u64).unwrap_or(0);
        let metrics = match text("kind") {
            "train" => self.train.entry(text("agent").to_owned()).or_default(),
            "eval" => &mut self.eval,
            "coordinator" => {
                let total = |name: &str| number(name).unwrap_or(0.0);
                let point = (total("time/elapsed_s"), total("conversations"), total("turns"));
                self.coordinators.entry(process.to_owned()).or_default().push(point);
                return;
            }
            _ => return,
        };
        for (name, value) in line.iter().filter(|(name, _)| *name != "step") {
            if let Some(value) = value.as_f64() {
                metrics.entry(name.clone()).or_default().insert(step, value);
            }
        }
    }

    /// Takes the means of an evaluation. The summary of a run takes the same file, so that a figure
    /// has the same value everywhere.
    fn take_evaluation(&mut self, step: u64, evaluation: &Evaluation) {
        for name in evaluation.values.keys() {
            if let Some(mean) = evaluation.mean(name) {
                self.eval.entry(name.clone()).or_default().insert(step, mean);
            }
        }
    }

    /// One metric of every agent that has it.
    pub(crate) fn by_agent(&self, metric: &str) -> Vec<Series> {
        let series = |(agent, metrics): (&String, &BTreeMap<String, BySteps>)| {
            Some(Series::new(agent, steps(metrics.get(metric)?)))
        };
        self.train.iter().filter_map(series).collect()
    }

    /// All metrics of the evaluations, `success` first.
    pub(crate) fn evaluations(&self) -> Vec<Series> {
        let mut names: Vec<&String> = self
            .eval
            .keys()
            .filter(|name| !name.contains('/') || name.ends_with("/success"))
            .collect();
        names.sort_by_key(|name| (*name != "success", *name));
        names
            .into_iter()
            .map(|name| Series::new(name, steps(&self.eval[name])))
            .collect()
    }

    /// Several metrics of every agent that has them, each named with its agent.
    pub(crate) fn by_agent_and(&self, metrics: &[(&str, &str)]) -> Vec<Series> {
        let named = |(metric, name): &(&str, &str)| {
            let series = self.by_agent(metric).into_iter();
            let name = (*name).to_owned();
            series.map(move |series| Series::new(&format!("{} {name}", series.name), series.points))
        };
        metrics.iter().flat_map(named).collect()
    }

    /// Seconds of each step in which an agent trained, and in which it waited for its batch.
    pub(crate) fn step_times(&self) -> Vec<Series> {
        let mut all = self.by_agent_and(&[("time/train_s", "trains")]);
        for (agent, metrics) in &self.train {
            let (Some(trained), Some(ends)) = (metrics.get("time/train_s"), metrics.get("time/elapsed_s")) else {
                continue;
            };
            let pairs = ends.iter().zip(ends.iter().skip(1));
            // After a restart the clock begins again.
            let waits = pairs
                .filter(|(before, end)| end.1 > before.1)
                .filter_map(|(before, end)| {
                    let waited = end.1 - before.1 - trained.get(end.0)?;
                    Some((*end.0 as f64, waited.max(0.0)))
                });
            all.push(Series::new(&format!("{agent} waits"), waits.collect()));
        }
        all
    }

    /// Trained tokens per second, by agent.
    pub(crate) fn token_rates(&self) -> Vec<Series> {
        let rate = |(agent, metrics): (&String, &BTreeMap<String, BySteps>)| {
            let (tokens, seconds) = (metrics.get("tokens")?, metrics.get("time/elapsed_s")?);
            let times: Vec<(f64, f64)> = tokens
                .iter()
                .filter_map(|(step, tokens)| Some((*seconds.get(step)?, *tokens)))
                .collect();
            let rates = times.windows(2).filter(|pair| pair[1].0 > pair[0].0);
            Some(Series::new(
                agent,
                rates
                    .map(|pair| (pair[1].0, pair[1].1 / (pair[1].0 - pair[0].0)))
                    .collect(),
            ))
        };
        self.train.iter().filter_map(rate).collect()
    }

    /// Finished conversations per second, by coordinator; then turns.
    pub(crate) fn coordinator_rates(&self) -> (Vec<Series>, Vec<Series>) {
        let rate = |name: &str, points: &[(f64, f64, f64)], value: fn(&(f64, f64, f64)) -> f64| {
            // After its last conversation a coordinator waits for agents, and has no rate.
            let last = points.last().map_or(0.0, value);
            let over = points.iter().position(|point| value(point) >= last);
            let points = &points[..over.map_or(0, |at| at + 1)];
            let rates = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
            let rates = rates.map(|pair| (pair[1].0, (value(&pair[1]) - value(&pair[0])) / (pair[1].0 - pair[0].0)));
            Series::new(name, rates.collect())
        };
        let each = |value: fn(&(f64, f64, f64)) -> f64| {
            self.coordinators
                .iter()
                .map(|(name, points)| rate(name, points, value))
                .collect()
        };
        (each(|point| point.1), each(|point| point.2))
    }

    /// Conversations of all coordinators.
    pub(crate) fn conversations(&self) -> u64 {
        let last = self.coordinators.values().filter_map(|points| points.last());
        last.map(|point| point.1 as u64).sum()
    }

    /// Turns of all coordinators.
    pub(crate) fn turns(&self) -> u64 {
        let last = self.coordinators.values().filter_map(|points| points.last());
        last.map(|point| point.2 as u64).sum()
    }

    /// A metric of an agent summed over its steps.
    pub(crate) fn total(&self, agent: &str, metric: &str) -> f64 {
        let values = self.train.get(agent).and_then(|metrics| metrics.get(metric));
        values.map_or(0.0, |values| values.values().sum())
    }

    /// Seconds from the first to the last figure.
    pub(crate) fn seconds(&self) -> f64 {
        let trained = self
            .train
            .values()
            .filter_map(|m| m.get("time/elapsed_s")?.values().copied().reduce(f64::max));
        let coordinated = self.coordinators.values().filter_map(|points| Some(points.last()?.0));
        trained.chain(coordinated).fold(0.0, f64::max)
    }

    /// The changes of rewards by agent, then those of evaluated figures.
    pub(crate) fn improvements(&self) -> Vec<Improvement> {
        let rewards = self.train.keys().filter_map(|agent| self.reward_change(agent));
        let figures = self.evaluations().into_iter();
        let figures = figures.filter_map(|series| self.evaluated_change(&series.name, &series.name));
        rewards.chain(figures).collect()
    }

    /// The change of an agent's reward: between evaluations, or in training if there are not two.
    pub(crate) fn reward_change(&self, agent: &str) -> Option<Improvement> {
        self.evaluated_change(&format!("reward/{agent}"), &format!("reward of {agent}, evaluated"))
            .or_else(|| {
                let (first, last) = self.first_and_last(agent, "reward/mean")?;
                let name = format!("reward of {agent}, training");
                let metric = String::new();
                Some(Improvement {
                    name,
                    metric,
                    first,
                    last,
                })
            })
    }

    /// The change of a figure from the first evaluation to the last one, if there are two.
    pub(crate) fn evaluated_change(&self, metric: &str, name: &str) -> Option<Improvement> {
        let steps = self.eval.get(metric).filter(|steps| steps.len() > 1)?;
        let (first, last) = (*steps.first_key_value()?.1, *steps.last_key_value()?.1);
        let (name, metric) = (name.to_owned(), metric.to_owned());
        Some(Improvement {
            name,
            metric,
            first,
            last,
        })
    }

    /// The mean of a metric over the first and over the last tenth of an agent's steps.
    pub(crate) fn first_and_last(&self, agent: &str, metric: &str) -> Option<(f64, f64)> {
        let values: Vec<f64> = self.train.get(agent)?.get(metric)?.values().copied().collect();
        let few = (values.len() / 10).max(1);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then(|| (mean(&values[..few]), mean(&values[values.len() - few..])))
    }
}

fn steps(values: &BySteps) -> Vec<(f64, f64)> {
    values.iter().map(|(step, value)| (*step as f64, *value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluated_reward_has_one_before() {
        let mut data = Data::default();
        for (step, reward) in [(1, 0.4), (2, 0.8)] {
            let line = serde_json::json!({"kind": "train", "agent": "a", "step": step, "reward/mean": reward});
            data.add("p", line.as_object().unwrap());
        }
        for (step, mean) in [(0, 0.25), (2, 0.75)] {
            let values = [("reward/a".to_owned(), [("t".to_owned(), mean)].into())].into();
            let evaluation = Evaluation {
                values,
                ..Evaluation::default()
            };
            data.take_evaluation(step, &evaluation);
        }
        let found = data.improvements();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].first, found[0].last), (0.25, 0.75));
    }

    #[test]
    fn time_between_batches_is_training_and_waiting() {
        let mut data = Data::default();
        for (step, seconds) in [(1, 1.0), (2, 4.0), (3, 0.5), (4, 2.5)] {
            let line = serde_json::json!({
                "kind": "train", "agent": "a", "step": step, "time/train_s": 0.5, "time/elapsed_s": seconds,
            });
            data.add("p", line.as_object().unwrap());
        }
        let times = data.step_times();
        assert_eq!(times[0].name, "a trains");
        let waits = (times[1].name.as_str(), times[1].points.as_slice());
        assert_eq!(
            waits,
            ("a waits", [(2.0, 2.5), (4.0, 1.5)].as_slice()),
            "step 3 began a new clock"
        );
    }

    #[test]
    fn a_replayed_step_counts_once_and_rates_are_differences() {
        let mut data = Data::default();
        let mut add = |line: Value| data.add("p", line.as_object().unwrap());
        for (step, reward, seconds) in [(1, 0.1, 1.0), (2, 0.9, 2.0), (2, 0.2, 3.0), (3, 0.4, 5.0)] {
            add(serde_json::json!({
                "kind": "train", "agent": "a", "step": step, "reward/mean": reward, "tokens": 100, "time/elapsed_s": seconds,
            }));
        }
        for (seconds, conversations) in [(1.0, 0), (2.0, 50), (4.0, 250)] {
            add(
                serde_json::json!({"kind": "coordinator", "step": 0, "conversations": conversations, "time/elapsed_s": seconds}),
            );
        }
        assert_eq!(
            data.by_agent("reward/mean")[0].points,
            [(1.0, 0.1), (2.0, 0.2), (3.0, 0.4)]
        );
        assert_eq!(data.token_rates()[0].points, [(3.0, 50.0), (5.0, 50.0)]);
        assert_eq!(data.coordinator_rates().0[0].points, [(2.0, 50.0), (4.0, 100.0)]);
        let mut add = |line: Value| data.add("p", line.as_object().unwrap());
        add(serde_json::json!({"kind": "coordinator", "step": 0, "conversations": 250, "time/elapsed_s": 5.0}));
        assert_eq!(data.coordinator_rates().0[0].points.len(), 2, "no drop to 0 at the end");
        assert_eq!(data.first_and_last("a", "reward/mean"), Some((0.1, 0.4)));
        assert_eq!((data.conversations(), data.seconds()), (250, 5.0));
        let mut add = |line: Value| data.add("p", line.as_object().unwrap());
        add(serde_json::json!({"kind": "eval", "step": 0, "success": 0.25}));
        add(serde_json::json!({"kind": "eval", "step": 9, "success": 0.75, "majority": 0.5}));
        let names: Vec<String> = data.improvements().into_iter().map(|figure| figure.name).collect();
        assert_eq!(
            names,
            ["reward of a, training", "success"],
            "a figure that was evaluated once has no change"
        );
    }
}
