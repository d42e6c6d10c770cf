//! Operators on the role totals of a conversation. They decide which reward a role gets.
//!
//! t_r is the total of role r (the weighted sum of its parts; the mean over its seats if it has
//! several). R is the set of roles that earned something:
//!
//! | operator | reward of a seat with total t |
//! |---|---|
//! | `own` | t |
//! | `shared` | mean over R of t_r |
//! | `zero_sum` | t - mean over R without its own role of t_r |
//! | `difference = "OTHER"` | t - t_OTHER |
//!
//! If no other role (or not OTHER) earned anything, nothing is subtracted.
//!
//! Each operator must pay a role for doing well and for nothing else ([`crate::credit`]).
//!
//! A subtracted term must be settled before the role's turn. Otherwise the role is paid for its
//! partner's failure: a verifier would learn to make the solver wrong. A shared term must not fall
//! as the role does better (a partner's gain over the role's answer does). The role must not decide
//! which other roles earn, because that moves the mean.
//!
//! So [`refusal`] allows only the pairs that keep these rules. It also allows the user's own
//! programs, because their author knows the roles.

use std::collections::BTreeMap;

use broker::RoleName;
use configs::{CreditConfig, OwnKinds, PROCESS, REMOTE, WorkflowConfig};

/// Returns the reward of a seat of `role` with total `own`. `totals` has each role that earned
/// something, including `role`.
#[must_use]
pub fn credited(operator: &CreditConfig, role: &RoleName, own: f64, totals: &BTreeMap<RoleName, f64>) -> f64 {
    match operator {
        CreditConfig::Own => own,
        CreditConfig::Shared => mean(totals, None).unwrap_or(own),
        CreditConfig::ZeroSum => own - mean(totals, Some(role)).unwrap_or(0.0),
        CreditConfig::Difference(other) => own - totals.get(other).copied().unwrap_or(0.0),
    }
}

fn mean(totals: &BTreeMap<RoleName, f64>, without: Option<&RoleName>) -> Option<f64> {
    let counted = totals.iter().filter(|&(name, _)| Some(name) != without);
    let values: Vec<f64> = counted.map(|(_, total)| *total).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the reason why `role` may not have this operator in a workflow, if there is one.
/// `weight` is the weight of one part of the role, 0 for a part it does not have.
#[must_use]
pub fn refusal(
    config: &WorkflowConfig,
    role: &RoleName,
    operator: &CreditConfig,
    weight: impl Fn(&str, &str) -> f64,
) -> Option<String> {
    let theirs = config.kind.starts_with(PROCESS) || config.kind.starts_with(REMOTE);
    if theirs || OwnKinds::installed().has_workflow(&config.kind) {
        return None;
    }
    let role = role.as_str();
    match operator {
        CreditConfig::Own => None,
        CreditConfig::Shared => unshared(&config.kind, role, weight),
        CreditConfig::ZeroSum if config.kind == "adversarial" && role == "adversary" => None,
        CreditConfig::ZeroSum if config.kind == "adversarial" => Some(format!(
            "is \"zero_sum\", and {role} is paid at its opponents' cost already: use \"own\""
        )),
        CreditConfig::ZeroSum => Some(format!(
            "is \"zero_sum\", and the other roles of {} are no opponents of {role}: it would be paid for making them fail; use \"own\", or a program of your own",
            config.kind
        )),
        CreditConfig::Difference(other) => {
            let other = other.as_str();
            let fair = match (config.kind.as_str(), role, other) {
                // A term settled before the role's turn is a control variate, unless the role is
                // paid for later events.
                ("sequential", "second", "first") => weight(other, "team") == 0.0,
                ("solve-verify", "verifier" | "retry", "solver") => true,
                ("solve-verify", "retry", "verifier") => weight(other, "gain") == 0.0,
                // Opponents. With a stand-in there would be nothing to subtract.
                ("adversarial", "adversary", "defender") => true,
                ("adversarial", "defender", "adversary") => !config.params.contains_key("opponents"),
                _ => false,
            };
            (!fair).then(|| {
                format!(
                    "subtracts what {other} earns, which {role} can influence: it would be paid for making {other} fail; subtract only what is settled before its turn"
                )
            })
        }
    }
}

/// Returns the reason why a role may not share the mean of all, if there is one.
fn unshared(kind: &str, role: &str, weight: impl Fn(&str, &str) -> f64) -> Option<String> {
    let gains = |names: &[&str]| {
        let gaining = names.iter().find(|name| weight(name, "gain") != 0.0);
        gaining.map(|name| {
            format!("is \"shared\", and {name} earns its gain over {role}: {role} would be paid for being wrong; write workflow.reward.{name}.gain = 0.0")
        })
    };
    let decides = |whom: &str| {
        Some(format!(
            "is \"shared\", and {role} decides whether {whom} earns anything: it would be paid for its choice of partner; use \"own\""
        ))
    };
    match (kind, role) {
        ("solve-verify", "solver") => gains(&["verifier", "retry"]),
        ("sequential", "first") => gains(&["second"]),
        ("solve-verify", "verifier") => decides("retry"),
        ("deep-research", "main") => decides("sub"),
        ("adversarial", _) => Some(format!(
            "is \"shared\", and the rewards of {role}'s opponents are its loss: use \"own\""
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::config;

    fn role(name: &str) -> RoleName {
        RoleName::new(name).unwrap()
    }

    fn difference(other: &str) -> CreditConfig {
        CreditConfig::Difference(role(other))
    }

    #[test]
    fn operators_are_what_the_table_says() {
        let totals = BTreeMap::from([(role("a"), 1.0), (role("b"), 0.5), (role("c"), 0.0)]);
        let of = |operator: &CreditConfig, name: &str| credited(operator, &role(name), totals[&role(name)], &totals);
        let all = |operator: CreditConfig| ["a", "b", "c"].map(|name| of(&operator, name));
        assert_eq!(all(CreditConfig::Own), [1.0, 0.5, 0.0]);
        assert_eq!(all(CreditConfig::Shared), [0.5, 0.5, 0.5]);
        // 1 - (0.5 + 0) / 2; 0.5 - (1 + 0) / 2; 0 - (1 + 0.5) / 2. The sum is 0.
        assert_eq!(all(CreditConfig::ZeroSum), [0.75, 0.0, -0.75]);
        assert_eq!(all(difference("b")), [0.5, 0.0, -0.5]);
        // The seat's own total counts, not its role's mean.
        assert_eq!(credited(&difference("b"), &role("a"), 2.0, &totals), 1.5);
    }

    #[test]
    fn without_another_role_there_is_nothing_to_subtract() {
        let alone = BTreeMap::from([(role("a"), 0.25)]);
        for operator in [CreditConfig::ZeroSum, CreditConfig::Shared, difference("b")] {
            assert_eq!(credited(&operator, &role("a"), 0.25, &alone), 0.25);
        }
    }

    #[test]
    fn what_a_role_can_influence_is_not_subtracted_from_it() {
        let fair = |kind: &str, name: &str, operator: CreditConfig, heavy: &str| {
            let weight = |_: &str, part: &str| if part == heavy { 1.0 } else { 0.0 };
            refusal(&config(kind, &[], ""), &role(name), &operator, weight).is_none()
        };
        for (kind, name, other) in [
            ("sequential", "second", "first"),
            ("solve-verify", "verifier", "solver"),
            ("solve-verify", "retry", "solver"),
            ("solve-verify", "retry", "verifier"),
            ("adversarial", "adversary", "defender"),
            ("adversarial", "defender", "adversary"),
            ("process:game.py", "white", "black"),
        ] {
            assert!(fair(kind, name, difference(other), "correct"), "{name} of {kind}");
        }
        for (kind, name, other) in [
            ("sequential", "first", "second"),
            ("solve-verify", "solver", "verifier"),
            ("solve-verify", "verifier", "retry"),
            ("adversarial", "thinker", "adversary"),
            ("adversarial", "proposer", "solver"),
            ("signal", "speaker", "listener"),
        ] {
            assert!(!fair(kind, name, difference(other), "correct"), "{name} of {kind}");
        }
        // A partner that is paid for later events can be made to lose that pay.
        assert!(!fair("sequential", "second", difference("first"), "team"));
        assert!(!fair("solve-verify", "retry", difference("verifier"), "gain"));
        // The shared term must not fall as the role does better, or depend on which roles it lets
        // speak.
        for (kind, name, heavy, is_fair) in [
            ("solve-verify", "solver", "correct", true),
            ("solve-verify", "solver", "gain", false),
            ("solve-verify", "retry", "gain", true),
            ("solve-verify", "verifier", "", false),
            ("sequential", "first", "team", true),
            ("sequential", "first", "gain", false),
            ("sequential", "second", "gain", true),
            ("deep-research", "main", "", false),
            ("deep-research", "sub", "", true),
            ("adversarial", "solver", "", false),
            ("guess-number", "answerer", "", true),
        ] {
            assert_eq!(
                fair(kind, name, CreditConfig::Shared, heavy),
                is_fair,
                "{name} of {kind}"
            );
        }
        assert!(!fair("solve-verify", "solver", CreditConfig::ZeroSum, ""));
        assert!(fair("adversarial", "adversary", CreditConfig::ZeroSum, ""));
        assert!(fair("remote:game", "white", CreditConfig::ZeroSum, ""));
    }
}
