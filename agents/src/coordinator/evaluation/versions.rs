//! Which weights an evaluation is of: told by what came back, not by what was asked for.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::turn::Generation;

/// Versions by agent.
pub(in crate::coordinator) type Seen = BTreeMap<AgentName, BTreeSet<WeightVersion>>;

/// The weights of one evaluation.
#[derive(Debug, Default)]
pub(in crate::coordinator) struct Versions {
    /// What agents held when it began; of those that were not asked to, nothing.
    held: BTreeMap<AgentName, WeightVersion>,
    pub(in crate::coordinator) seen: Seen,
}

impl Versions {
    pub(in crate::coordinator) fn new(held: BTreeMap<AgentName, WeightVersion>) -> Self {
        Self {
            held,
            seen: Seen::new(),
        }
    }

    /// Adds what generations say of themselves.
    pub(in crate::coordinator) fn add(&mut self, seen: Seen) {
        for (agent, versions) in seen {
            self.seen.entry(agent).or_default().extend(versions);
        }
    }

    /// Whether all that each agent said is of one version, and of the one that it held, if it did.
    pub(in crate::coordinator) fn pinned(&self) -> bool {
        self.seen.iter().all(|(agent, versions)| match self.held.get(agent) {
            Some(held) => versions.iter().all(|version| version == held),
            None => versions.len() < 2,
        })
    }

    /// Step of the newest weights of each agent.
    pub(in crate::coordinator) fn steps(&self) -> impl Iterator<Item = (&AgentName, u64)> {
        self.seen
            .iter()
            .filter_map(|(agent, versions)| Some((agent, versions.last()?.step)))
    }
}

/// The versions that sampled a generation's tokens or computed the keys and values that it was sampled from. What a program says
/// has none.
pub(in crate::coordinator) fn of(made: &Generation) -> impl Iterator<Item = WeightVersion> {
    let spans = made.spans.iter().map(|span| span.version);
    let cached = (!made.spans.is_empty()).then_some(made.oldest_kv);
    spans.chain(cached)
}

#[cfg(test)]
mod tests {
    use broker::protocol::turn::VersionSpan;
    use proptest::prelude::*;

    use super::*;
    use crate::coordinator::actor::bench::generation;

    fn name(text: &str) -> AgentName {
        AgentName::new(text).unwrap()
    }

    fn version(lineage: u32, step: u64) -> WeightVersion {
        WeightVersion { lineage, step }
    }

    /// Tokens of these weights, over a cache of those.
    fn made(spans: &[WeightVersion], oldest_kv: WeightVersion) -> Generation {
        let span = |(at, version): (u32, &WeightVersion)| VersionSpan {
            version: *version,
            start: at,
            end: at + 1,
        };
        Generation {
            spans: (0..).zip(spans).map(span).collect(),
            oldest_kv,
            ..generation(7)
        }
    }

    /// An evaluation in which agents were to hold `held` and said `said`.
    fn of_all(held: &[(&str, WeightVersion)], said: &[(&str, Generation)]) -> Versions {
        let mut found = Versions::new(held.iter().map(|(agent, held)| (name(agent), *held)).collect());
        for (agent, made) in said {
            found.add(Seen::from([(name(agent), of(made).collect())]));
        }
        found
    }

    #[test]
    fn one_version_of_each_agent_is_pinned() {
        let (a, b) = (version(1, 10), version(2, 7));
        let held = [("a", a), ("b", b)];
        let said = [("a", made(&[a], a)), ("b", made(&[b, b], b)), ("a", made(&[a], a))];
        let found = of_all(&held, &said);
        assert!(found.pinned());
        let steps: Vec<(String, u64)> = found.steps().map(|(agent, step)| (agent.to_string(), step)).collect();
        assert_eq!(steps, [("a".to_owned(), 10), ("b".to_owned(), 7)]);
        assert!(of_all(&[], &said).pinned(), "nobody was asked, and nothing changed");
        assert!(
            Versions::new(BTreeMap::from([(name("a"), a)])).pinned(),
            "nobody said anything"
        );
    }

    #[test]
    fn a_token_or_a_cache_of_other_weights_is_told() {
        let (old, new, again) = (version(1, 10), version(1, 11), version(2, 10));
        for other in [
            made(&[old, new], old),
            made(&[new], new),
            // Its prompt was computed by weights of before.
            made(&[old], version(1, 9)),
            // The agent was started again: the same step, and perhaps other weights.
            made(&[again], again),
        ] {
            let said = [("a", made(&[old], old)), ("a", other.clone())];
            for held in [&[("a", old)][..], &[]] {
                let found = of_all(held, &said);
                assert!(!found.pinned(), "{other:?}");
                assert!(found.seen[&name("a")].len() > 1);
            }
        }
        let moved = of_all(&[("a", old)], &[("a", made(&[new], new))]);
        assert!(!moved.pinned(), "one version, and not the one that was held");
    }

    #[test]
    fn what_no_weights_said_counts_for_none() {
        let silent = made(&[], WeightVersion::default());
        assert_eq!(of(&silent).count(), 0);
    }

    proptest! {
        /// Said of every list of tokens: pinned is the same as that no weights but those held have a part in any.
        #[test]
        fn pinned_means_that_nothing_else_has_a_part(
            said in prop::collection::vec((prop::collection::vec(0..2u64, 0..4), 0..2u64), 0..8)
        ) {
            let held = version(1, 1);
            let said: Vec<(&str, Generation)> = said
                .iter()
                .map(|(steps, oldest)| {
                    let spans: Vec<WeightVersion> = steps.iter().map(|step| version(1, *step)).collect();
                    ("a", made(&spans, version(1, *oldest)))
                })
                .collect();
            let alone = |made: &Generation| {
                made.spans.is_empty() || (made.oldest_kv == held && made.spans.iter().all(|span| span.version == held))
            };
            let expected = said.iter().all(|(_, made)| alone(made));
            prop_assert_eq!(of_all(&[("a", held)], &said).pinned(), expected);
        }
    }
}
