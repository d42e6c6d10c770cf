//! Chooses which of another agent's former weights an agent plays with.
//!
//! The choice is a function of the run's seed and the other agent's step, so that agents and
//! coordinators agree without a message.

use broker::AgentName;
use broker::ids::{Digest, WeightVersion};
use configs::{PastConfig, RunConfig};

/// An agent's choice among another agent's former weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    pub config: PastConfig,
    name: AgentName,
    seed: u64,
}

impl Past {
    /// Returns the choice of the agent `name`, if its configuration has one.
    #[must_use]
    pub fn of(config: &RunConfig, name: &AgentName) -> Option<Self> {
        let past = config.agents.get(name)?.past.clone()?;
        Some(Self {
            config: past,
            name: name.clone(),
            seed: config.run.seed,
        })
    }

    /// Returns the step of the other agent with the weights drawn at this renewal. All entries of
    /// the pool are equally likely.
    #[must_use]
    pub fn drawn(&self, renewal: u64) -> u64 {
        let earliest = self.config.earliest(renewal);
        let digest = Digest::of(format!("past/{}/{}/{renewal}", self.seed, self.name).as_bytes());
        let place = digest.number() % (renewal - earliest + 1);
        self.config.step(earliest + place)
    }

    /// Returns the version under which its engine serves them. Renewals count as lineages, from 1
    /// on: versions rise even where the steps do not.
    #[must_use]
    pub fn version(&self, renewal: u64, step: u64) -> WeightVersion {
        WeightVersion {
            lineage: u32::try_from(renewal + 1).unwrap_or(u32::MAX),
            step,
        }
    }

    /// Returns the version that it serves when the other agent has made `step` steps.
    #[must_use]
    pub fn expected(&self, step: u64) -> WeightVersion {
        let renewal = self.config.renewal(step);
        self.version(renewal, self.drawn(renewal))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn past(name: &str, seed: u64) -> Past {
        Past {
            config: PastConfig {
                of: AgentName::new("a").unwrap(),
                every: 10,
                keep: 3,
            },
            name: AgentName::new(name).unwrap(),
            seed,
        }
    }

    #[test]
    fn every_entry_of_the_pool_is_drawn_and_no_other() {
        let one = past("p", 0);
        assert_eq!(one.drawn(0), 0, "the pool holds only the first policy");
        let mut places = [0; 3];
        for renewal in 2..302 {
            let place = one.drawn(renewal) / 10 - (renewal - 2);
            places[place as usize] += 1;
        }
        // 300 draws; five standard deviations (8.2) from 100.
        assert!(places.iter().all(|count| (59..=141).contains(count)), "{places:?}");
    }

    #[test]
    fn draws_follow_from_seed_and_name_and_versions_rise() {
        let drawn = |past: &Past| (0..50).map(|renewal| past.drawn(renewal)).collect::<Vec<_>>();
        let (one, other) = (past("p", 0), past("q", 0));
        assert_eq!(drawn(&one), drawn(&past("p", 0)));
        assert_ne!(drawn(&one), drawn(&other));
        assert_ne!(drawn(&one), drawn(&past("p", 1)));
        let versions: Vec<WeightVersion> = (0..500).step_by(10).map(|step| one.expected(step)).collect();
        assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
        assert!(
            versions[0] > WeightVersion::default(),
            "an engine's first weights are outside the pool"
        );
        assert_eq!(one.expected(20), one.expected(29), "nothing changes between renewals");
    }
}
