//! The sets of tasks that `dyad eval` plays.

use std::path::Path;

use configs::{LEAST_TEMPERATURE, RunConfig, SuiteConfig};

use super::EvalArgs;
use crate::base::fault::Usage;
use crate::eval::suites::{self, Set};

/// Returns an error if samples cannot be drawn at the temperature.
fn sampled_at(temperature: Option<f64>) -> Result<(), Usage> {
    let wrong = match temperature {
        Some(value) if !(value.is_finite() && value > 0.0) => "--temperature must be above 0".to_owned(),
        Some(value) if value < f64::from(LEAST_TEMPERATURE) => {
            format!("--temperature is {value:?}: logits are divided by it, and below {LEAST_TEMPERATURE} they overflow")
        }
        _ => return Ok(()),
    };
    Err(Usage::new(wrong).hint("the greedy conversation is always played; samples need a temperature, for example 0.6"))
}

pub(super) fn sets(args: &EvalArgs, config: &RunConfig) -> anyhow::Result<Vec<Set>> {
    sampled_at(args.temperature)?;
    let suite = |name: &str, suite: &SuiteConfig| suites::of_suite(config, name, suite, args.samples, args.temperature);
    let mut sets = Vec::new();
    if args.own_tasks {
        let (samples, temperature) = (args.samples.unwrap_or(0), args.temperature.unwrap_or(1.0));
        sets.push(suites::of_own(config, samples, temperature)?);
    }
    if args.suites.is_empty() {
        if args.own_tasks {
            return Ok(sets);
        }
        if suites::has_tasks(config) || config.eval.suites.is_empty() {
            let (samples, temperature) = (args.samples.unwrap_or(0), args.temperature.unwrap_or(1.0));
            sets.push(suites::of_eval(config, samples, temperature)?);
        }
        for (name, one) in &config.eval.suites {
            sets.push(suite(name, one)?);
        }
        return Ok(sets);
    }
    let wanted = |text: &String| {
        let (name, file) = text
            .split_once('=')
            .map_or((text.as_str(), None), |(name, file)| (name, Some(file)));
        let configured = config.eval.suites.get(name);
        let source = file.map(|file| {
            if file.contains(':') {
                file.to_owned()
            } else if Path::new(file).is_dir() {
                format!("hf:{file}")
            } else if file.ends_with(".parquet") {
                format!("parquet:{file}")
            } else if file.ends_with(".arrow") {
                format!("arrow:{file}")
            } else {
                format!("jsonl:{file}")
            }
        });
        let one = match (configured, source) {
            (Some(one), None) => one.clone(),
            (Some(one), Some(source)) => SuiteConfig { source, ..one.clone() },
            (None, Some(source)) => SuiteConfig::on(name, source),
            (None, None) => {
                let known: Vec<&str> = config.eval.suites.keys().map(String::as_str).collect();
                let hint = format!(
                    "it has: {}; for your own suite write --suite NAME=FILE, with presets for {}",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    },
                    configs::suites::presets().join(", ")
                );
                return Err(Usage::new(format!("the configuration has no suite {name:?}"))
                    .hint(hint)
                    .into());
            }
        };
        let set = suite(name, &one)?;
        match suites::unplayable(config, &set) {
            None => Ok(set),
            Some(why) => Err(anyhow::Error::from(Usage::new(format!(
                "suite {name}: {}: {why}",
                one.source
            )))),
        }
    };
    for text in &args.suites {
        sets.push(wanted(text)?);
    }
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_that_makes_logits_infinite_is_rejected() {
        for good in [None, Some(0.01), Some(0.6), Some(10.0)] {
            assert!(sampled_at(good).is_ok(), "{good:?}");
        }
        for (wrong, says) in [
            (0.0, "must be above 0"),
            (f64::NAN, "must be above 0"),
            (f64::INFINITY, "must be above 0"),
            (1e-38, "is 1e-38: logits are divided by it"),
            (0.009, "below 0.01"),
        ] {
            let said = sampled_at(Some(wrong)).unwrap_err().message;
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }
}
