//! The metrics of one finished conversation.

use std::collections::BTreeMap;

use broker::ids::TurnKey;
use broker::protocol::turn::Generation;
use rollout::group::Rules;
use rollout::workflow::Outcome;

/// Returns the workflow's metrics, `reward/AGENT` and `tokens/ROLE`. `reward/AGENT` is the mean
/// over the agent's seats; an agent with several roles also has `reward/AGENT/ROLE`. `tokens/ROLE`
/// counts all tokens that the role generated.
#[must_use]
pub fn of(rules: &Rules, outcome: &Outcome, turns: &[(TurnKey, Generation)]) -> BTreeMap<String, f64> {
    let mut figures = rewards(rules, outcome);
    for (key, made) in turns {
        *figures.entry(format!("tokens/{}", key.role)).or_default() += made.output_ids.len() as f64;
    }
    figures.extend(outcome.metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    figures
}

/// A seat without a reward is left out, as in training.
fn rewards(rules: &Rules, outcome: &Outcome) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for seat in outcome.rewards.iter().filter(|seat| !seat.parts.is_empty()) {
        let value = rules.reward(seat);
        let Some(agent) = rules.roles.get(&seat.role).filter(|_| value.is_finite()) else {
            continue;
        };
        let several = rules.roles.values().filter(|other| *other == agent).count() > 1;
        let of_role = several.then(|| format!("reward/{agent}/{}", seat.role));
        for name in std::iter::once(format!("reward/{agent}")).chain(of_role) {
            let (sum, count) = sums.entry(name).or_default();
            *sum += value;
            *count += 1.0;
        }
    }
    sums.into_iter()
        .map(|(name, (sum, count))| (name, sum / count))
        .collect()
}

/// The share of conversations that a workflow calls right.
pub const SUCCESS: &str = "success";

/// Returns true if a figure is a share: `success` of a conversation, of a suite
/// (`SUITE/avg@K/success`) or of repeated samples (pass@k, maj@k).
#[must_use]
pub fn is_share(figure: &str) -> bool {
    let counted = |part: &str| part == "reward" || part == "tokens";
    figure.rsplit('/').next() == Some(SUCCESS) && !figure.split('/').any(counted)
}

/// Returns the tokens of all roles in metrics made by [`of`].
#[must_use]
pub fn said(figures: &BTreeMap<String, f64>) -> f64 {
    figures
        .iter()
        .filter(|(name, _)| name.starts_with("tokens/"))
        .map(|(_, tokens)| tokens)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::{AgentName, RoleName};
    use rollout::workflow::{Part, SeatReward};

    fn seat(role: &str, seat: u16, value: f32) -> SeatReward {
        SeatReward {
            role: RoleName::new(role).unwrap(),
            seat,
            subkey: String::new(),
            target: None,
            parts: vec![Part { name: "correct", value }],
        }
    }

    #[test]
    fn shares_are_known_by_their_last_name() {
        for share in [
            "success",
            "math500/success",
            "math500/avg@4/success",
            "pass@2/success",
            "maj@4/success",
        ] {
            assert!(is_share(share), "{share}");
        }
        for other in [
            "reward/a",
            "avg@4/reward/a",
            "tokens",
            "truncated",
            "success/gain",
            "reward/success",
        ] {
            assert!(!is_share(other), "{other}");
        }
    }

    #[test]
    fn an_agents_reward_is_the_weighted_mean_over_its_seats() {
        let role = |name: &str| RoleName::new(name).unwrap();
        let agent = |name: &str| AgentName::new(name).unwrap();
        let rules = Rules {
            roles: [("solver", "a"), ("retry", "a"), ("verifier", "b")]
                .map(|(played, by)| (role(played), agent(by)))
                .into(),
            training: Default::default(),
            weights: [(role("retry"), [("correct".to_owned(), 0.5)].into())].into(),
            compared: Default::default(),
            whole_turns: Default::default(),
            min_valid: 1,
        };
        let outcome = Outcome {
            rewards: vec![
                seat("solver", 0, 1.0),
                seat("solver", 1, 0.0),
                seat("retry", 0, 1.0),
                seat("verifier", 0, 0.25),
                seat("verifier", 1, f32::NAN),
            ],
            metrics: vec![("success", 1.0)],
        };
        let found = of(&rules, &outcome, &[]);
        let expected: BTreeMap<String, f64> = [
            ("reward/a", 0.5),
            ("reward/a/retry", 0.5),
            ("reward/a/solver", 0.5),
            ("reward/b", 0.25),
            ("success", 1.0),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert_eq!(found, expected);
    }
}
