//! The solved share of each task, for `tasks.curriculum`.

use std::collections::BTreeMap;

use rollout::tasks::PassRate;

use super::score::Conversation;

/// The figure that says whether a conversation succeeded.
const SUCCESS: &str = "success";

/// Returns one rate for each task that has a figure, in the order of ids. A rate is the mean over
/// the task's samples, or the value of its greedy conversation if it has no samples. `keys` are the
/// tasks' keys by id.
#[must_use]
pub fn of(conversations: &[Conversation], keys: &BTreeMap<String, String>) -> Vec<PassRate> {
    let sampled = conversations.iter().any(|one| one.sample.is_some());
    let mut sums: BTreeMap<&str, (f64, u64)> = BTreeMap::new();
    for one in conversations.iter().filter(|one| one.sample.is_some() == sampled) {
        if let Some(value) = one.figures.get(SUCCESS) {
            let (sum, all) = sums.entry(one.task.as_str()).or_default();
            *sum += value.clamp(0.0, 1.0);
            *all += 1;
        }
    }
    let line = |(task, (sum, all)): (&str, (f64, u64))| {
        Some(PassRate {
            key: keys.get(task)?.clone(),
            task: task.to_owned(),
            pass_rate: sum / all as f64,
            conversations: all,
        })
    };
    sums.into_iter().filter_map(line).collect()
}

/// Formats the rates as the lines of a file.
///
/// # Errors
/// Fails if no task has a figure `success`.
pub fn lines(rates: &[PassRate]) -> anyhow::Result<String> {
    anyhow::ensure!(
        !rates.is_empty(),
        "no conversation has a figure \"success\", so there are no pass rates: the workflow does not measure it, or every conversation \
         failed"
    );
    let mut text = String::new();
    for rate in rates {
        text += &serde_json::to_string(rate)?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(task: &str, sample: Option<usize>, success: Option<f64>) -> Conversation {
        let figures = success.map(|value| (SUCCESS.to_owned(), value)).into_iter().collect();
        Conversation::bare(task, sample, figures)
    }

    #[test]
    fn the_greedy_conversation_counts_only_without_samples() {
        let keys = [("t", "k1"), ("u", "k2")]
            .map(|(id, key)| (id.to_owned(), key.to_owned()))
            .into();
        let mut list = vec![conversation("t", None, Some(1.0)), conversation("u", None, Some(0.0))];
        let rates = |list: &[Conversation]| -> Vec<(String, f64, u64)> {
            let of = of(list, &keys).into_iter();
            of.map(|rate| (rate.key, rate.pass_rate, rate.conversations)).collect()
        };
        assert_eq!(rates(&list), [("k1".into(), 1.0, 1), ("k2".into(), 0.0, 1)]);
        list.extend([
            conversation("t", Some(0), Some(0.0)),
            conversation("t", Some(1), Some(1.0)),
            conversation("t", Some(2), None),
        ]);
        assert_eq!(
            rates(&list),
            [("k1".into(), 0.5, 2)],
            "failed conversations are in no rate"
        );
        assert!(lines(&[]).unwrap_err().to_string().contains("success"));
        let text = lines(&of(&list, &keys)).unwrap();
        assert_eq!(
            text,
            "{\"key\":\"k1\",\"task\":\"t\",\"pass_rate\":0.5,\"conversations\":2}\n"
        );
    }
}
