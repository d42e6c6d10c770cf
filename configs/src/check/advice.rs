//! Advice for an unknown key: a misspelt neighbour, a key of another table, or the name in another
//! program.

use std::sync::OnceLock;

use toml::{Table, Value};

use super::foreign_keys::FOREIGN;

/// A file with every key set. The known key paths are read from it.
const EVERYTHING: &str = include_str!("everything.toml");

/// Returns the advice for the unknown key at the end of `path`. `known` are the keys of its own
/// table.
pub(super) fn advice(path: &[String], known: &[&str]) -> String {
    let Some((key, table)) = path.split_last() else {
        return "is not known".into();
    };
    // `[defaults]` is merged before the table is read.
    let known = &[known, if table.is_empty() { &["defaults"] } else { &[] }].concat()[..];
    let key_folded = fold(key);
    let same = known.iter().copied().find(|name| fold(name) == key_folded);
    // Too short to be near to anything: `r` of another program is no misspelt `n`.
    let is_other = key.len() <= 2 && foreign(&key_folded).is_some();
    let near = || nearest(key, known.iter().copied()).filter(|_| !is_other);
    if let Some(meant) = same.or_else(near) {
        return format!("is not known here: did you mean {meant:?}?");
    }
    if let Some(ours) = foreign(&key_folded) {
        return format!("is not known: here it is {ours}");
    }
    if let Some(elsewhere) = elsewhere(&key_folded, table) {
        return format!("is not known here: it belongs at {elsewhere}");
    }
    if known.is_empty() {
        return "is not known here: remove it".into();
    }
    format!("is not known here: remove it, or write one of {}", known.join(", "))
}

/// Removes differences of case and hyphens, which do not change a name.
fn fold(key: &str) -> String {
    key.to_lowercase().replace(['-', '.', ' '], "_")
}

fn foreign(key: &str) -> Option<&'static str> {
    let found = FOREIGN.iter().find(|(theirs, _)| theirs.contains(&key));
    found.map(|(_, ours)| *ours)
}

/// Returns the path of the key in another table: one below `table` if there is one, and else one
/// that users write often.
fn elsewhere(key: &str, table: &[String]) -> Option<&'static str> {
    let parts = |path: &'static String| path.split('.').collect::<Vec<_>>();
    let shared = |path: &'static String| {
        let pairs = parts(path).into_iter().zip(table);
        pairs
            .take_while(|(ours, theirs)| *ours == "NAME" || ours == theirs)
            .count()
    };
    let found = known_paths().iter().filter(|path| path.rsplit('.').next() == Some(key));
    let rank = |path: &&'static String| {
        // Suites and warm starts repeat keys of other tables.
        let repeats = path.starts_with("eval.suites.") || path.contains(".warm_start.");
        (std::cmp::Reverse(shared(path)), repeats, parts(path).len())
    };
    found.min_by_key(rank).map(String::as_str)
}

/// Returns every key path, with NAME for the name of an agent, grader, tool or suite.
fn known_paths() -> &'static [String] {
    static PATHS: OnceLock<Vec<String>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let mut paths = Vec::new();
        // A test checks that the file parses.
        collect("", &EVERYTHING.parse().unwrap_or_default(), &mut paths);
        paths
    })
}

fn collect(prefix: &str, table: &Table, paths: &mut Vec<String>) {
    for (key, value) in table {
        let name = if matches!(prefix, "agents" | "graders" | "tools" | "eval.suites") {
            "NAME"
        } else {
            key
        };
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        paths.push(path.clone());
        if let Value::Table(inner) = value {
            collect(&path, inner, paths);
        }
    }
}

/// Returns the name nearest to `key`, if at most a third of its characters differ (at least one
/// may).
pub fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (key.chars().count() / 3).max(1);
    names
        .map(|name| (strsim::osa_distance(key, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["batch_groups", "minibatches", "epochs"];
        assert_eq!(nearest("batch_group", names.into_iter()), Some("batch_groups"));
        assert_eq!(nearest("ephocs", names.into_iter()), Some("epochs"));
        assert_eq!(nearest("temperature", names.into_iter()), None);
    }

    #[test]
    fn every_key_that_is_advised_exists() {
        assert!(EVERYTHING.parse::<Table>().is_ok());
        let known = known_paths();
        for (_, ours) in FOREIGN {
            let path = ours.split([' ', ',']).next().unwrap_or_default();
            let path = path.replace("reward.ROLE", "reward");
            assert!(path == "not" || known.contains(&path), "{path}");
        }
    }

    #[test]
    fn other_programs_names_are_answered_with_ours() {
        for (theirs, ours) in [
            ("n_samples_per_prompt", "workflow.group_size"),
            ("rollout-batch-size", "train.batch_groups"),
            ("num_generations", "workflow.group_size"),
            ("max_tokens_per_gpu", "train.micro_batch_tokens"),
            ("importance_sampling_level", "train.loss.kind (\"gspo\""),
            ("m2_threshold", "train.loss.tau"),
            ("behav_imp_weight_cap", "loss.ratio = \"decoupled\""),
            ("tis_imp_ratio_cap", "loss.weight_cap"),
            ("tis_imp_ratio_cap", "loss.ratio = \"decoupled\""),
            ("use_kl_in_reward", "train.kl.place"),
            ("temperature", "agents.NAME.sampling.temperature"),
            ("apply-chat-template-kwargs", "agents.NAME.template_args"),
            ("date_string", "agents.NAME.template_date"),
        ] {
            let advice = advice(&[theirs.to_owned()], &["name", "seed"]);
            assert!(advice.contains(ours), "{theirs}: {advice}");
        }
    }

    #[test]
    fn key_of_another_table_is_found_near_its_place() {
        for (path, ours) in [
            ("agents.a.train.lr", "agents.NAME.train.optimizer.lr"),
            ("agents.a.lr", "agents.NAME.train.optimizer.lr"),
            ("agents.a.train.kind", "agents.NAME.train.loss.kind"),
            ("agents.a.train.temperature", "agents.NAME.sampling.temperature"),
            ("agents.a.lora.r", "agents.NAME.lora.rank"),
            ("agents.a.lora.target_modules", "agents.NAME.lora.targets"),
            ("run.group_size", "workflow.group_size"),
            ("agents.a.train.optimizer.beta", "did you mean \"beta1\"?"),
            ("defalts", "did you mean \"defaults\"?"),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let advice = advice(&path, &["seed", "beta1", "alpha", "targets", "path"]);
            assert!(advice.contains(ours), "{path:?}: {advice}");
        }
    }
}
