//! The weights of an evaluation, read from what came back and not from what was asked for.

use std::collections::{BTreeMap, BTreeSet};

use broker::AgentName;
use broker::ids::WeightVersion;
use broker::protocol::turn::Generation;
use rollout::group::MemberEnd;

use super::group::turns;
use crate::coordinator::specs::{GroupSpecs, Purpose};

/// Versions by agent.
pub(super) type SeenVersions = BTreeMap<AgentName, BTreeSet<WeightVersion>>;

/// The weights of one evaluation.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The version that each agent held when the evaluation began. Empty if agents were not asked.
    held: BTreeMap<AgentName, WeightVersion>,
    seen: SeenVersions,
}

impl Versions {
    pub(super) fn new(held: BTreeMap<AgentName, WeightVersion>) -> Self {
        Self {
            held,
            seen: SeenVersions::new(),
        }
    }

    /// Adds the versions that generations name.
    pub(super) fn add(&mut self, seen: SeenVersions) {
        for (agent, versions) in seen {
            self.seen.entry(agent).or_default().extend(versions);
        }
    }

    /// Returns true if everything that an agent said is of one version, and of the version that it
    /// held, if it did.
    pub(super) fn pinned(&self) -> bool {
        self.seen.iter().all(|(agent, versions)| match self.held.get(agent) {
            Some(held) => versions.iter().all(|version| version == held),
            None => versions.len() < 2,
        })
    }

    /// The step of each agent's newest weights.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&AgentName, u64)> {
        self.seen
            .iter()
            .filter_map(|(agent, versions)| Some((agent, versions.last()?.step)))
    }

    pub(super) fn into_seen(self) -> SeenVersions {
        self.seen
    }
}

/// The versions that have a part in what the agents of these conversations said.
pub(super) fn seen(specs: &GroupSpecs, purpose: Purpose, members: &[MemberEnd]) -> SeenVersions {
    let mut seen = SeenVersions::new();
    for (key, made) in members.iter().flat_map(turns) {
        if let Some(player) = specs.player(purpose, &key.role) {
            seen.entry(player.agent).or_default().extend(of(made));
        }
    }
    // An agent that was asked and said nothing has no part.
    seen.retain(|_, versions| !versions.is_empty());
    seen
}

/// The versions that sampled a generation's tokens, or computed the keys and values that it was
/// sampled from. An answer of a program has none.
fn of(made: &Generation) -> impl Iterator<Item = WeightVersion> {
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

    /// Tokens of the weights `spans`, over a cache of `oldest_kv`.
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

    /// An evaluation in which agents were asked to hold `held` and said `said`.
    fn of_all(held: &[(&str, WeightVersion)], said: &[(&str, Generation)]) -> Versions {
        let mut found = Versions::new(held.iter().map(|(agent, held)| (name(agent), *held)).collect());
        for (agent, made) in said {
            found.add(SeenVersions::from([(name(agent), of(made).collect())]));
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
        assert!(of_all(&[], &said).pinned(), "no agent was asked, and nothing changed");
        assert!(
            Versions::new(BTreeMap::from([(name("a"), a)])).pinned(),
            "no agent said anything"
        );
    }

    #[test]
    fn a_token_or_a_cache_of_other_weights_is_reported() {
        let (old, new, again) = (version(1, 10), version(1, 11), version(2, 10));
        for other in [
            made(&[old, new], old),
            made(&[new], new),
            // Earlier weights computed its prompt.
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
        /// For every list of tokens: pinned means that only the held weights have a part in it.
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
