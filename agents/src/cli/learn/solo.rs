//! A team of solve-verify against its solver alone, at equal tokens.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use configs::{RoleName, RunConfig};

use super::runs::{self, PlayedRun};
use crate::report;
use crate::stats::summary;
use crate::stats::summary::Evaluation;

/// The role that plays alone.
const SOLVER: &str = "solver";

/// The figures of one run.
#[derive(Debug, Clone, PartialEq)]
struct Figures {
    /// Tokens trained on, over all agents.
    trained: f64,
    /// Share of right first answers of the solver, greedy, before and after.
    first: (f64, f64),
    /// Share of right final answers: the team after its retry, the solver alone by majority vote.
    success: f64,
    /// Tokens per task that all roles spent on those answers.
    said: f64,
    seconds: f64,
}

/// Trains the solver alone once per team, with the same number of tokens, and prints the comparison
/// after each run.
pub(super) fn compare(teams: &[PlayedRun], base: &Path) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for team in teams {
        let seed = team.config.run.seed;
        let of_team = figures(team, "success")?;
        let alone = solo(&team.config, &runs::last_evaluation(&team.folder)?, of_team.trained)?;
        let alone = runs::play(&alone, base, &format!("solo-{seed}"))?;
        rows.push((seed, of_team, figures(&alone, "majority")?));
        print!("\n{}\n", table(&rows));
    }
    Ok(())
}

/// Returns the configuration of the solver alone. It trains on as many tokens as the team, and its
/// votes use as many tokens as the team's conversations.
fn solo(team: &RunConfig, found: &Evaluation, trained: f64) -> anyhow::Result<RunConfig> {
    let role = RoleName::new(SOLVER)?;
    let agent = team
        .workflow
        .roles
        .get(&role)
        .context("no agent plays the solver")?
        .clone();
    let answer = per_task(found, &format!("tokens/{SOLVER}")).context("the team's evaluation has no answers")?;
    let mut config = team.clone();
    config.agents.retain(|name, _| *name == agent);
    config.workflow.kind = "solo".into();
    config.workflow.profile = "dyad".into();
    config.workflow.roles = [(role.clone(), agent.clone())].into();
    config.workflow.reward.retain(|name, _| *name == role);
    config.workflow.shaping.retain(|name, _| *name == role);
    // A single role cannot share its reward.
    config.workflow.credit.clear();
    config.workflow.tools.retain(|name, _| *name == role);
    let called = config.workflow.tools.get(&role).cloned().unwrap_or_default();
    config.tools.retain(|name, _| called.contains(name));
    config.eval.pool = None;
    config.eval.votes = Some((said(found, &["tokens/votes"]) / answer).round().clamp(1.0, 1000.0) as u16);
    config.run.lead = Some(agent.clone());
    let batch = config.agents.get(&agent).map_or(1, |agent| agent.train.batch_groups);
    let step = (batch * usize::from(config.workflow.group_size)) as f64 * answer;
    config.run.train_steps = (trained / step).round().max(1.0) as u64;
    // The same number of evaluations as the team had over the whole run.
    config.eval.every =
        (config.run.train_steps * team.eval.every / team.run.train_steps.max(1)).max(team.eval.every.min(1));
    Ok(config)
}

fn figures(played: &PlayedRun, success: &str) -> anyhow::Result<Figures> {
    let found = runs::last_evaluation(&played.folder)?;
    let first = summary::read(&played.folder)?
        .into_iter()
        .find(|change| change.metric == "solver_first");
    let first = first.context("the run has no evaluations of the solver")?;
    Ok(Figures {
        trained: report::trained_tokens(&played.folder)?,
        first: (first.before, first.after),
        success: found
            .mean(success)
            .with_context(|| format!("the last evaluation has no {success}"))?,
        said: if success == "majority" {
            per_task(&found, "tokens/votes").unwrap_or(0.0)
        } else {
            said(&found, &["tokens/votes"])
        },
        seconds: played.seconds,
    })
}

/// Returns a metric's sum divided by the number of evaluated tasks, including tasks without the
/// metric.
fn per_task(found: &Evaluation, metric: &str) -> Option<f64> {
    let tasks = found.values.get("success")?.len().max(1) as f64;
    Some(found.values.get(metric)?.values().sum::<f64>() / tasks)
}

/// Returns the tokens of all roles per task, without the metrics in `except`.
fn said(found: &Evaluation, except: &[&str]) -> f64 {
    let of_roles = |name: &&String| name.starts_with("tokens/") && !except.contains(&name.as_str());
    found
        .values
        .keys()
        .filter(of_roles)
        .filter_map(|name| per_task(found, name))
        .sum()
}

/// Formats all seeds and their means.
fn table(rows: &[(u64, Figures, Figures)]) -> String {
    let mut text =
        String::from("seed  who    trained tokens  first answer right   right in the end  tokens said/task  seconds\n");
    let mut line = |seed: &str, who: &str, f: &Figures| {
        let _ = writeln!(
            text,
            "{seed:<5} {who:<6} {:>14.0}  {:.3} -> {:.3}       {:>16.3}  {:>16.1}  {:>7.0}",
            f.trained, f.first.0, f.first.1, f.success, f.said, f.seconds
        );
    };
    for (seed, team, solo) in rows {
        line(&seed.to_string(), "team", team);
        line("", "solo", solo);
    }
    let mean = |side: fn(&(u64, Figures, Figures)) -> &Figures| {
        let n = rows.len().max(1) as f64;
        let of = |value: fn(&Figures) -> f64| rows.iter().map(|row| value(side(row))).sum::<f64>() / n;
        Figures {
            trained: of(|f| f.trained),
            first: (of(|f| f.first.0), of(|f| f.first.1)),
            success: of(|f| f.success),
            said: of(|f| f.said),
            seconds: of(|f| f.seconds),
        }
    };
    let (team, solo) = (mean(|row| &row.1), mean(|row| &row.2));
    line("mean", "team", &team);
    line("", "solo", &solo);
    let wins = rows
        .iter()
        .filter(|(_, team, solo)| team.success > solo.success)
        .count();
    let gap = team.success - solo.success;
    let _ = writeln!(
        text,
        "right in the end: the team after its retry, the solver alone by majority vote. The team is ahead in {wins} of {} \
         seeds, by {gap:+.3} on average.",
        rows.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn team() -> RunConfig {
        let text = include_str!("../../../../configs/arithmetic.toml");
        RunConfig::parse(text, Path::new("arithmetic.toml")).unwrap()
    }

    fn found(metrics: &[(&str, &[f64])]) -> Evaluation {
        let values = |list: &[f64]| {
            list.iter()
                .enumerate()
                .map(|(i, value)| (i.to_string(), *value))
                .collect()
        };
        let values: BTreeMap<_, _> = metrics
            .iter()
            .map(|(name, list)| ((*name).to_owned(), values(list)))
            .collect();
        Evaluation {
            step: 1,
            values,
            ..Evaluation::default()
        }
    }

    #[test]
    fn solver_alone_gets_equal_tokens_and_a_valid_configuration() {
        // 4 tokens per answer, 10 per verdict, and every second conversation has a retry of 4: 16
        // per task.
        let found = found(&[
            ("success", &[1.0, 0.0]),
            ("tokens/solver", &[4.0, 4.0]),
            ("tokens/verifier", &[10.0, 10.0]),
            ("tokens/retry", &[4.0]),
        ]);
        let team = team();
        let alone = solo(&team, &found, 1e6).unwrap();
        assert_eq!(alone.eval.votes, Some(4));
        let batch = team.agents.values().next().unwrap().train.batch_groups * usize::from(team.workflow.group_size);
        assert_eq!(alone.run.train_steps, (1e6 / (batch * 4) as f64).round() as u64);
        assert!(alone.eval.every > team.eval.every && alone.run.seed == team.run.seed);
        let text = toml::to_string(&alone).unwrap();
        let read = RunConfig::parse(&text, Path::new("solo.toml")).unwrap();
        assert_eq!(read.participants().len(), 1);
        rollout::workflows::build(&read.workflow, &read.graders, &read.tools)
            .map(|_| ())
            .unwrap();
        assert!(solo(&team, &Evaluation::default(), 1e6).is_err());
    }

    #[test]
    fn table_counts_the_seeds_in_which_the_team_is_ahead() {
        let figures = |success| Figures {
            trained: 1e6,
            first: (0.5, 0.75),
            success,
            said: 16.0,
            seconds: 60.0,
        };
        let text = table(&[(0, figures(0.9), figures(0.8)), (1, figures(0.5), figures(0.8))]);
        assert!(text.contains("ahead in 1 of 2 seeds, by -0.100 on average"), "{text}");
        assert!(
            text.lines()
                .any(|line| line.starts_with("1     team") && line.contains("0.500 -> 0.750")),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| line.contains(" solo ")).count(), 3);
    }
}
