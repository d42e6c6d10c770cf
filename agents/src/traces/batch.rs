//! The spans of a trained batch: a root, and a child for each part of its step. Links name the
//! conversations of the batch.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::AgentName;
use broker::ids::{GroupId, RunId, WeightVersion};

use super::ids::{self, BatchIds, Sampler, TraceId};
use super::names;
use super::wire::{INTERNAL, KeyValue, Link, Span};

/// The most conversations that a batch names.
const LINKS: usize = 128;

/// A batch that has been trained, as its trace needs it.
#[derive(Debug)]
pub(crate) struct TrainedStep {
    pub(crate) agent: AgentName,
    /// The weights that the batch led to.
    pub(crate) version: WeightVersion,
    pub(crate) groups: u64,
    pub(crate) samples: u64,
    pub(crate) tokens: u64,
    pub(crate) loss: f64,
    /// The mean reward of each role.
    pub(crate) rewards: BTreeMap<String, f64>,
    pub(crate) mean_staleness: Option<f64>,
    pub(crate) max_staleness: u64,
    /// The conversations of the batch, each once.
    pub(crate) conversations: Vec<(GroupId, u16)>,
    /// The time spent in each part, in the order in which the parts begin.
    pub(crate) parts: Vec<(&'static str, Duration)>,
    /// The wall time of the step, with all its parts.
    pub(crate) took: Duration,
    pub(crate) ended_at: SystemTime,
}

/// Returns the spans of a batch, the root first. Links name only conversations whose traces are
/// sent.
///
/// The parts of a step take turns, and each is timed as a whole. So the child of a part shows how
/// long it took, not when: children follow each other from the beginning of the step.
pub(super) fn spans(run: &RunId, sampler: Sampler, step: &TrainedStep) -> Vec<Span> {
    let ids = BatchIds::new(run, &step.agent, step.version);
    let ended = step.ended_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut at = ended.saturating_sub(step.took);
    let mut all = vec![root(run, sampler, step, &ids, (at, ended))];
    for (part, took) in step.parts.iter().filter(|(_, took)| !took.is_zero()) {
        let began = at;
        at += *took;
        all.push(Span {
            span_id: ids.part(part),
            parent_span_id: ids.root(),
            name: (*part).to_owned(),
            attributes: place(step).into(),
            ..span(&ids, (began, at))
        });
    }
    all
}

fn root(run: &RunId, sampler: Sampler, step: &TrainedStep, ids: &BatchIds, times: (Duration, Duration)) -> Span {
    let mut attributes = Vec::from(place(step));
    attributes.extend([
        KeyValue::new(names::GROUPS, step.groups),
        KeyValue::new(names::SAMPLES, step.samples),
        KeyValue::new(names::TOKENS, step.tokens),
        KeyValue::new(names::STALENESS_MAX, step.max_staleness),
    ]);
    let figures = [
        (names::LOSS, Some(step.loss)),
        (names::STALENESS_MEAN, step.mean_staleness),
    ];
    let figures = figures
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let rewards = step.rewards.iter();
    let rewards = rewards.map(|(role, reward)| (format!("{}.{role}", names::REWARD), *reward));
    let finite = figures.chain(rewards).filter(|(_, value)| value.is_finite());
    attributes.extend(finite.map(|(name, value)| KeyValue::new(name, value)));
    let mut links: Vec<Link> = step
        .conversations
        .iter()
        .filter_map(|(group, member)| link(run, sampler, *group, *member))
        .collect();
    let dropped = links.len().saturating_sub(LINKS);
    links.truncate(LINKS);
    Span {
        span_id: ids.root(),
        name: format!("{} {} step {}", names::TRAIN, step.agent, step.version.step),
        attributes,
        links,
        dropped_links_count: u32::try_from(dropped).unwrap_or(u32::MAX),
        ..span(ids, times)
    }
}

/// The parts that all spans of a batch have. `times` are since 1970.
fn span(ids: &BatchIds, (began, ended): (Duration, Duration)) -> Span {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Span {
        trace_id: ids.trace().0.to_vec(),
        kind: INTERNAL,
        start_time_unix_nano: nanos(began),
        end_time_unix_nano: nanos(ended),
        ..Span::default()
    }
}

fn place(step: &TrainedStep) -> [KeyValue; 3] {
    [
        KeyValue::new(names::TRAINED_AGENT, step.agent.as_str()),
        KeyValue::new(names::WEIGHTS_STEP, step.version.step),
        KeyValue::new(names::WEIGHTS_LINEAGE, step.version.lineage),
    ]
}

/// Returns a link to a conversation's root span, if its trace is sent.
fn link(run: &RunId, sampler: Sampler, group: GroupId, member: u16) -> Option<Link> {
    let trace = TraceId::new(run, group, member);
    sampler.takes(trace).then(|| Link {
        trace_id: trace.0.to_vec(),
        span_id: ids::root(run, &format!("{group}/{member}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::wire::Value;

    const GROUP: GroupId = GroupId([0xab; 16]);

    fn run() -> RunId {
        RunId::new("r").unwrap()
    }

    fn step(conversations: u16) -> TrainedStep {
        TrainedStep {
            agent: AgentName::new("a").unwrap(),
            version: WeightVersion { lineage: 2, step: 7 },
            groups: 4,
            samples: 12,
            tokens: 90,
            loss: 0.25,
            rewards: [("speaker".to_owned(), 0.5), ("judge".to_owned(), f64::NAN)].into(),
            mean_staleness: Some(1.5),
            max_staleness: 3,
            conversations: (0..conversations).map(|member| (GROUP, member)).collect(),
            parts: vec![
                ("wait", Duration::from_millis(40)),
                ("old_logprobs", Duration::ZERO),
                ("optimizer", Duration::from_millis(5)),
            ],
            took: Duration::from_millis(50),
            ended_at: UNIX_EPOCH + Duration::from_secs(100),
        }
    }

    fn made(ratio: f64, conversations: u16) -> Vec<Span> {
        spans(&run(), Sampler { ratio }, &step(conversations))
    }

    #[test]
    fn a_root_has_the_figures_of_its_batch() {
        let root = &made(1.0, 3)[0];
        assert_eq!((root.name.as_str(), root.kind), ("train a step 7", 1));
        assert!(root.parent_span_id.is_empty());
        let figure = |name: &str| {
            let found = root.attributes.iter().find(|attribute| attribute.key == name);
            found.and_then(|attribute| attribute.value.clone()?.value)
        };
        let numbers = [
            ("dyad.batch.groups", 4),
            ("dyad.batch.samples", 12),
            ("dyad.batch.tokens", 90),
        ];
        let ages = [
            ("dyad.staleness.max", 3),
            ("dyad.weights.step", 7),
            ("dyad.weights.lineage", 2),
        ];
        for (name, number) in numbers.into_iter().chain(ages) {
            assert_eq!(figure(name), Some(Value::Int(number)), "{name}");
        }
        let figures = [
            ("dyad.loss", 0.25),
            ("dyad.reward.speaker", 0.5),
            ("dyad.staleness.mean", 1.5),
        ];
        for (name, value) in figures {
            assert_eq!(figure(name), Some(Value::Double(value)), "{name}");
        }
        assert_eq!(figure("dyad.agent"), Some("a".into()));
        assert_eq!(figure("dyad.reward.judge"), None, "it is no number");
    }

    #[test]
    fn parts_follow_each_other_within_the_step() {
        let all = made(1.0, 0);
        let names: Vec<&str> = all.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(
            names,
            ["train a step 7", "wait", "optimizer"],
            "a part that took no time has no span"
        );
        let ms = |span: &Span| {
            let since = |nanos: u64| (nanos as i64 - 100_000_000_000) / 1_000_000;
            (since(span.start_time_unix_nano), since(span.end_time_unix_nano))
        };
        let times: Vec<(i64, i64)> = all.iter().map(ms).collect();
        assert_eq!(times, [(-50, 0), (-50, -10), (-10, -5)]);
        for child in &all[1..] {
            assert_eq!(
                (&child.trace_id, &child.parent_span_id),
                (&all[0].trace_id, &all[0].span_id)
            );
        }
    }

    #[test]
    fn links_name_only_conversations_that_are_sent_and_at_most_128() {
        let linked = |ratio, conversations| {
            let root = made(ratio, conversations).swap_remove(0);
            (root.links.len(), root.dropped_links_count)
        };
        assert_eq!(linked(1.0, 3), (3, 0));
        assert_eq!(linked(0.0, 3), (0, 0));
        assert_eq!(linked(1.0, 130), (LINKS, 2));
        let half = Sampler { ratio: 0.5 };
        let sent: Vec<Vec<u8>> = (0..100)
            .map(|member| TraceId::new(&run(), GROUP, member))
            .filter(|trace| half.takes(*trace))
            .map(|trace| trace.0.to_vec())
            .collect();
        let links = made(0.5, 100).swap_remove(0).links;
        let named: Vec<Vec<u8>> = links.iter().map(|link| link.trace_id.clone()).collect();
        assert_eq!(named, sent);
        let first = &made(1.0, 1)[0].links[0];
        assert_eq!(first.span_id, ids::root(&run(), &format!("{GROUP}/0")));
    }
}
