//! Pass rates: they select the tasks within a band, and order them from easy to hard.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};

use broker::protocol::task::Task;
use configs::{CurriculumConfig, Unmeasured};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::TasksError;
use crate::random::Random;

/// The rate of tasks that have none.
const MIDDLE: f32 = 0.5;

/// How often a task was solved: one line of the output of `dyad eval --pass-rates`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PassRate {
    /// The [`task_key`] of the task.
    pub key: String,
    /// Its id when it was measured, for people.
    #[serde(default)]
    pub task: String,
    /// The share of its conversations that succeeded, 0 to 1.
    pub pass_rate: f64,
    /// The number of conversations measured.
    #[serde(default)]
    pub conversations: u64,
}

/// Returns the key that identifies a task, independent of its id and place. It is 32 hex digits
/// that follow from prompt and label, and from metadata and list of tools if the task has them.
/// With other metadata or tools it is a different task.
#[must_use]
pub fn task_key(task: &Task) -> String {
    let (prompt, label) = (&task.prompt, &task.label);
    // Text, numbers and maps of text are always JSON.
    let hash = |domain: &str, content: serde_json::Result<Vec<u8>>| {
        blake3::Hash::from(blake3::derive_key(domain, &content.unwrap_or_default()))
    };
    let hash = match &task.tools {
        tools if !task.metadata.is_empty() => {
            // The order of a row's keys does not matter.
            let metadata: BTreeMap<&String, &Value> = task.metadata.iter().collect();
            let content = serde_json::to_vec(&(prompt, label, tools, metadata));
            hash("dyad task content v2", content)
        }
        None => hash("dyad task content v1", serde_json::to_vec(&(prompt, label))),
        Some(tools) => hash("dyad task content v1", serde_json::to_vec(&(prompt, label, tools))),
    };
    hash.to_hex().chars().take(32).collect()
}

/// Pass rates while rows are chosen.
pub(super) struct Rates {
    config: CurriculumConfig,
    known: HashMap<String, f32>,
    /// Rates of the tasks that were taken.
    taken: Vec<f32>,
    unmeasured: u64,
}

impl Rates {
    /// Reads the file. The error names its key. Several lines for one task count as their mean,
    /// weighted by conversations.
    pub(super) fn open(config: &CurriculumConfig) -> Result<Self, TasksError> {
        let path = &config.pass_rates;
        let shown = path.display();
        let wrong = |message: String| TasksError::Config {
            key: "tasks.curriculum.pass_rates".into(),
            message,
        };
        let read = |error: std::io::Error| wrong(format!("cannot read {shown}: {error}"));
        let mut sums: HashMap<String, (f64, f64)> = HashMap::new();
        for (number, line) in (1..).zip(BufReader::new(File::open(path).map_err(read)?).lines()) {
            let line = line.map_err(read)?;
            if line.trim().is_empty() {
                continue;
            }
            let rate: PassRate = serde_json::from_str(&line)
                .map_err(|error| error.to_string())
                .and_then(|rate: PassRate| {
                    let sound = (0.0..=1.0).contains(&rate.pass_rate);
                    sound
                        .then_some(rate)
                        .ok_or_else(|| "pass_rate is not from 0 to 1".into())
                })
                .map_err(|message| {
                    wrong(format!(
                        "{shown}, line {number}: no line of dyad eval --pass-rates: {message}"
                    ))
                })?;
            let weight = rate.conversations.max(1) as f64;
            let (sum, all) = sums.entry(rate.key).or_default();
            *sum += rate.pass_rate * weight;
            *all += weight;
        }
        Ok(Self {
            config: config.clone(),
            known: sums
                .into_iter()
                .map(|(key, (sum, all))| (key, (sum / all) as f32))
                .collect(),
            taken: Vec::new(),
            unmeasured: 0,
        })
    }

    /// Returns true if the task is in the band, and then keeps its rate.
    pub(super) fn takes(&mut self, task: &Task) -> bool {
        let Some(rate) = self.known.get(&task_key(task)).copied() else {
            self.unmeasured += 1;
            let keep = self.config.unmeasured == Unmeasured::Keep;
            self.taken.extend(keep.then_some(MIDDLE));
            return keep;
        };
        // The comparison is in the file's precision: a rate of 0.1 is within min = 0.1.
        let min = self.config.min.is_none_or(|min| rate >= min as f32);
        let max = self.config.max.is_none_or(|max| rate <= max as f32);
        self.taken.extend((min && max).then_some(rate));
        min && max
    }

    /// Returns the rates of the tasks that were taken, in order.
    pub(super) fn done(self, name: &str) -> Result<Vec<f32>, TasksError> {
        if self.unmeasured > 0 && self.config.unmeasured == Unmeasured::Error {
            let file = self.config.pass_rates.display();
            return Err(TasksError::Config {
                key: "tasks.curriculum".into(),
                message: format!(
                    "{} tasks of {name} have no pass rate in {file}: measure them with dyad eval --own-tasks --pass-rates FILE, or say \
                     what becomes of them with unmeasured = \"keep\" or \"drop\"",
                    self.unmeasured
                ),
            });
        }
        Ok(self.taken)
    }
}

/// Items from the easiest to the hardest, cut into stages. The sizes of stages differ by at most
/// one. Equal rates keep their order.
#[derive(Debug, Clone)]
pub(super) struct Stages {
    stages: Vec<Vec<u32>>,
    /// Passes in this order; 0 means all.
    passes: u32,
}

impl Stages {
    /// Returns `None` if the configuration asks for no order.
    pub(super) fn new(config: &CurriculumConfig, rates: &[f32]) -> Option<Self> {
        let count = config.stages as usize;
        if count == 0 || rates.is_empty() {
            return None;
        }
        let mut order: Vec<u32> = (0..rates.len() as u32).collect();
        let rate = |item: u32| rates.get(item as usize).copied().unwrap_or(MIDDLE);
        order.sort_by(|a, b| rate(*b).total_cmp(&rate(*a)));
        let cut = |stage: usize| order.len() * stage / count;
        let stages = (0..count).map(|stage| order.get(cut(stage)..cut(stage + 1)).unwrap_or_default().to_vec());
        Some(Self {
            stages: stages.collect(),
            passes: config.passes,
        })
    }

    /// Returns the order of a pass, with each stage shuffled by `random` if it is given; `None` if
    /// this pass is not in stages.
    pub(super) fn order(&self, pass: u32, mut random: Option<Random>) -> Option<Vec<u32>> {
        if self.passes > 0 && pass >= self.passes {
            return None;
        }
        let mut order = Vec::new();
        for stage in &self.stages {
            match &mut random {
                None => {
                    // The file's own order.
                    let mut items = stage.clone();
                    items.sort_unstable();
                    order.extend(items);
                }
                Some(random) => {
                    let shuffled = random.permutation(stage.len());
                    order.extend(shuffled.iter().filter_map(|at| stage.get(*at as usize)));
                }
            }
        }
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> CurriculumConfig {
        toml::from_str(&format!("pass_rates = \"rates.jsonl\"\n{text}")).unwrap()
    }

    #[test]
    fn a_task_is_another_one_with_other_tools() {
        let key = |tools: serde_json::Value| {
            let mut task = serde_json::json!({"prompt": "x", "label": 1, "tools": tools});
            if task["tools"].is_null() {
                task.as_object_mut().unwrap().remove("tools");
            }
            task_key(&serde_json::from_value(task).unwrap())
        };
        let (all, none) = (key(serde_json::json!(null)), key(serde_json::json!([])));
        let bound = |corpus: &str| key(serde_json::json!([{"name": "search", "bind": {"corpus": corpus}}]));
        let keys = [all.clone(), none, bound("one"), bound("two")];
        assert_eq!(
            keys.iter().collect::<std::collections::BTreeSet<_>>().len(),
            4,
            "{keys:?}"
        );
        // Keys measured before tasks had tools are still valid.
        let content = serde_json::to_vec(&("x", 1)).unwrap();
        let hash = blake3::Hash::from(blake3::derive_key("dyad task content v1", &content));
        assert_eq!(all, hash.to_hex()[..32]);
    }

    /// A dialogue's prompt may be the same in all tasks, and the tasks may differ in their metadata
    /// alone.
    #[test]
    fn a_task_is_another_one_with_other_metadata() {
        let key = |text: &str| task_key(&serde_json::from_str(text).unwrap());
        let one = key(r#"{"prompt": "x", "label": 1, "metadata": {"case": "flu", "age": 7}}"#);
        let turned = key(r#"{"prompt": "x", "label": 1, "metadata": {"age": 7, "case": "flu"}}"#);
        assert_eq!(one, turned);
        let others = [
            r#"{"prompt": "x", "label": 1, "metadata": {"case": "cold", "age": 7}}"#,
            r#"{"prompt": "x", "label": 1, "metadata": {"case": "flu", "age": 7}, "tools": []}"#,
            r#"{"prompt": "x", "label": 1}"#,
        ];
        assert!(others.iter().all(|other| key(other) != one));
        assert_eq!(
            key(r#"{"prompt": "x", "label": 1, "metadata": {}}"#),
            key(others[2]),
            "what was measured of tasks without any is still known"
        );
    }

    #[test]
    fn stages_go_from_easy_to_hard_and_hold_each_task_once() {
        let rates = [0.0, 1.0, 0.5, 0.9, 0.1, 0.5, 0.2];
        let stages = Stages::new(&config("stages = 3"), &rates).unwrap();
        assert_eq!(stages.order(0, None).unwrap(), [1, 3, 2, 5, 0, 4, 6]);
        assert!(stages.order(1, None).is_none(), "one pass by default");
        let all = Stages::new(&config("stages = 3\npasses = 0"), &rates).unwrap();
        let shuffled = all.order(9, Some(Random::new("test", 1, &[]))).unwrap();
        let stage = |order: &[u32], range: std::ops::Range<usize>| {
            let mut items = order[range].to_vec();
            items.sort_unstable();
            items
        };
        assert_eq!(stage(&shuffled, 0..2), [1, 3]);
        assert_eq!(stage(&shuffled, 2..4), [2, 5]);
        assert_eq!(stage(&shuffled, 4..7), [0, 4, 6]);
        assert!(Stages::new(&config(""), &rates).is_none());
        let more = Stages::new(&config("stages = 20"), &rates).unwrap();
        assert_eq!(more.order(0, None).unwrap(), [1, 3, 2, 5, 6, 4, 0]);
    }
}
