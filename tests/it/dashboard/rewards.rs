//! Rewards on the live page.

use std::collections::BTreeMap;

use serde_json::Value;

/// The conversations on the live page that have ended: their names, and their rewards as text.
pub(super) const ENDED: &str = "[...document.querySelectorAll('.ended')].map((end) => [
  end.closest('.talk').querySelector('a').hash.split('/').slice(-2).join('/'),
  [...end.querySelectorAll('.chip')].map((chip) => chip.textContent)])";

/// Compares them with the transcripts that were written.
pub(super) fn are_those_of_the_transcripts(ended: &Value, transcripts: &[Value]) {
    let mut compared = 0;
    for [name, rewards] in ended
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one.as_array()?.first_chunk())
    {
        let Some(written) = transcripts.iter().find(|one| one["conversation"] == *name) else {
            continue;
        };
        let rewards = rewards.as_array().unwrap().iter().filter_map(Value::as_str);
        let shown: BTreeMap<&str, f64> = rewards
            .filter_map(|text| text.rsplit_once(' '))
            .map(|(seat, reward)| (seat, reward.parse().unwrap()))
            .collect();
        let total = |(seat, parts): (&String, &Value)| (seat.clone(), parts["total"].as_f64().unwrap());
        let written: BTreeMap<String, f64> = written["rewards"].as_object().unwrap().iter().map(total).collect();
        assert!(shown.keys().eq(written.keys()), "{shown:?} {written:?}");
        assert!(
            shown.values().zip(written.values()).all(|(a, b)| (a - b).abs() < 1e-3),
            "{shown:?} {written:?}"
        );
        compared += 1;
    }
    assert!(compared > 0, "{ended}");
}
