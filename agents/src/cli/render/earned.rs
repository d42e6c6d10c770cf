//! A seat's reward as text.

use std::fmt::Write;

use configs::CreditConfig;

use crate::run_folder::logs::{Compared, Credited, Earned};

/// Indentation of the lines under a role.
const INDENT: &str = "                 ";

/// Formats the reward as a sum, then the operator's credit and the comparison, one line each.
pub fn earned(label: &str, earned: &Earned) -> String {
    let mut text = format!("    {label:12} {} = {:.3}\n", sum(earned), earned.total);
    if let Some(credit) = &earned.credit {
        let _ = writeln!(text, "{INDENT}{}", credited(credit));
    }
    if let Some(found) = &earned.compared {
        let _ = writeln!(text, "{INDENT}{}", compared(found, earned.total));
    }
    if let Some(why) = &earned.not_compared {
        let _ = writeln!(text, "{INDENT}no advantage: {why}");
    }
    text
}

/// `correct 1.000 x 1 + length -0.200 x 0.5`. A weight of -0 is shown as 0.
fn sum(earned: &Earned) -> String {
    let parts = earned.parts.iter();
    let parts: Vec<String> = parts
        .map(|part| format!("{} {:.3} x {}", part.name, part.value, part.weight + 0.0))
        .collect();
    if parts.is_empty() {
        "nothing".into()
    } else {
        parts.join(" + ")
    }
}

fn credited(credit: &Credited) -> String {
    let operator = match &credit.operator {
        CreditConfig::Own => "own".to_owned(),
        CreditConfig::Shared => "shared".to_owned(),
        CreditConfig::ZeroSum => "zero_sum".to_owned(),
        CreditConfig::Difference(other) => format!("difference from {other}"),
    };
    format!(
        "credit {:.3} by {operator}, instead of its own {:.3}",
        credit.credit, credit.own
    )
}

fn compared(found: &Compared, reward: f64) -> String {
    let kind = serde_json::to_value(found.kind).unwrap_or_default();
    let scaled = if found.scale == 1.0 {
        format!("{reward:.3} - {:.3}", found.baseline)
    } else {
        format!("({reward:.3} - {:.3}) / {:.3}", found.baseline, found.scale)
    };
    // With one conversation, or equal rewards, the formula does not apply.
    let made = match found.advantage {
        0.0 if found.conversations < 2 => "nothing to compare with".to_owned(),
        _ => scaled,
    };
    let then = found.then.iter().map(|what| format!("; then {what}"));
    format!(
        "advantage {:.3} = {made} ({}, {} in the group: mean {:.3}, std {:.3}){}",
        found.advantage,
        kind.as_str().unwrap_or_default(),
        found.conversations,
        found.mean,
        found.std,
        then.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::logs::EarnedPart;
    use configs::{Advantage, RoleName};

    fn part(name: &str, value: f64, weight: f64) -> EarnedPart {
        EarnedPart {
            name: name.into(),
            value,
            weight,
        }
    }

    #[test]
    fn reward_shows_weights_operator_and_group() {
        let reward = Earned {
            parts: vec![
                part("correct", 1.0, 0.0),
                part("own", 1.0, 0.0),
                part("credit", 0.5, 1.0),
            ],
            total: 0.5,
            credit: Some(Credited {
                operator: CreditConfig::Difference(RoleName::new("solver").unwrap()),
                own: 1.0,
                credit: 0.5,
            }),
            compared: Some(Compared {
                kind: Advantage::Astraflow,
                conversations: 4,
                mean: 0.25,
                std: 0.5,
                baseline: 0.25,
                scale: 0.5,
                advantage: 0.5,
                then: vec!["z-score over the batch's tokens".into()],
            }),
            not_compared: None,
        };
        let expected = "    retry        correct 1.000 x 0 + own 1.000 x 0 + credit 0.500 x 1 = 0.500\n                 \
                        credit 0.500 by difference from solver, in the place of its own 1.000\n                 \
                        advantage 0.500 = (0.500 - 0.250) / 0.500 (astraflow, 4 in the group: mean 0.250, std 0.500); \
                        then z-score over the batch's tokens\n";
        assert_eq!(earned("retry", &reward), expected);
    }

    #[test]
    fn single_or_untrained_seat_has_a_note() {
        let alone = Earned {
            parts: vec![part("success", 1.0, 2.0)],
            total: 2.0,
            compared: Some(Compared {
                conversations: 1,
                mean: 2.0,
                scale: 1.0,
                ..Compared::default()
            }),
            ..Earned::default()
        };
        assert!(earned("speaker", &alone).contains("advantage 0.000 = nothing to compare with (loo, 1 in the group"));
        let frozen = Earned {
            not_compared: Some("its agent does not train".into()),
            ..Earned::default()
        };
        let expected = "    listener     nothing = 0.000\n                 no advantage: its agent does not train\n";
        assert_eq!(earned("listener", &frozen), expected);
    }
}
