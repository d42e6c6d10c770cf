//! Traces of batches, compared with the agents' metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use tests::trace::train;

use super::otlp::{Span, Traces};
use super::{close, id};

/// Attributes of a batch's root, and the metrics that they equal.
const FIGURES: [(&str, &str); 6] = [
    ("dyad.batch.groups", "groups"),
    ("dyad.batch.samples", "samples"),
    ("dyad.batch.tokens", "tokens"),
    ("dyad.loss", "loss"),
    ("dyad.staleness.mean", "staleness/mean"),
    ("dyad.staleness.max", "staleness/max"),
];

/// Compares the traces of an agent's batches with its metrics. Returns the traces that their links
/// name, each of which was received.
pub(super) fn compare_batches(
    (run, folder): (&str, &Path),
    agent: &str,
    traces: &Traces,
    times: (u64, u64),
) -> BTreeSet<String> {
    let mut linked = BTreeSet::new();
    let lines = train(folder, agent);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        let batch = format!("batch/{run}/{agent}/1/{}", line["step"]);
        let spans = &traces[&id(&batch, 16)];
        let root_id = id(&format!("span/{batch}"), 8);
        let root = &spans[&root_id];
        compare_root(root, agent, line);
        assert!(times.0 <= root.start && root.end <= times.1);
        let mut sum = 0;
        let parts = parts(line);
        assert_eq!(spans.len(), 1 + parts.len(), "{batch}");
        for (part, seconds) in parts {
            let child = &spans[&id(&format!("span/{batch}/{part}"), 8)];
            assert_eq!((child.name.as_str(), child.parent.as_str()), (part, root_id.as_str()));
            assert!(root.start <= child.start && child.end <= root.end, "{part} of {batch}");
            let took = child.end - child.start;
            assert!((took as f64 / 1e9 - seconds).abs() < 1e-6, "{part} of {batch}");
            sum += took;
        }
        assert!(sum <= root.end - root.start, "{batch}");
        for (trace, span) in &root.links {
            let named = &traces[trace][span];
            assert!(named.name.starts_with("invoke_workflow") && named.parent.is_empty());
            assert!(linked.insert(trace.clone()), "no other batch has this conversation");
        }
    }
    linked
}

fn compare_root(root: &Span, agent: &str, line: &Value) {
    assert_eq!(root.name, format!("train {agent} step {}", line["step"]));
    assert_eq!((root.parent.as_str(), root.kind), ("", 1));
    assert_eq!(root.attributes["dyad.agent"], agent);
    assert_eq!(root.attributes["dyad.weights.step"], line["step"]);
    assert_eq!(root.attributes["dyad.weights.lineage"], json!(1));
    for (attribute, metric) in FIGURES {
        assert!(close(&root.attributes[attribute], &line[metric]), "{metric}");
    }
    let roles = root.attributes.iter();
    let roles: Vec<_> = roles
        .filter_map(|(name, reward)| Some((name.strip_prefix("dyad.reward.")?, reward)))
        .collect();
    assert!(!roles.is_empty());
    for (role, reward) in roles {
        assert!(close(reward, &line[format!("reward/{role}")]), "{role}");
    }
}

/// Returns the parts that took time, in seconds.
fn parts(line: &Value) -> BTreeMap<&str, f64> {
    let other = ["train", "elapsed"];
    let parts = line.as_object().unwrap().iter();
    let parts = parts.filter_map(|(name, value)| {
        let part = name.strip_prefix("time/")?.strip_suffix("_s")?;
        Some((part, value.as_f64()?))
    });
    let parts: BTreeMap<&str, f64> = parts
        .filter(|(part, took)| !other.contains(part) && *took > 0.0)
        .collect();
    for always in ["wait", "ledger", "forward_backward", "optimizer", "publish"] {
        assert!(parts.contains_key(always), "{always} in {line}");
    }
    parts
}
