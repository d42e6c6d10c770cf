//! Signs that a policy collapses: repetition inside an answer, and equal answers.

use std::collections::{BTreeMap, BTreeSet};

use broker::protocol::bundle::{Row, Sample};

/// The length of the token runs that are compared.
const RUN: usize = 3;

/// Returns the fraction of an answer's runs of three tokens that occurred earlier in it. Returns
/// `None` for fewer than two runs.
pub(super) fn repetition(sample: &Sample) -> Option<f64> {
    let said = said(sample);
    let runs = (said.len() + 1).checked_sub(RUN).filter(|runs| *runs > 1)?;
    let distinct: BTreeSet<&[u32]> = said.windows(RUN).collect();
    Some((runs - distinct.len()) as f64 / (runs - 1) as f64)
}

/// Returns a value for every key (role, subkey) of a group with at least two samples. It is 0 if
/// all answers differ, and 1 if all are equal.
pub(super) fn sameness<'a>(samples: impl Iterator<Item = &'a Sample>) -> Vec<f64> {
    let mut keys: BTreeMap<(&str, &str), Vec<Vec<u32>>> = BTreeMap::new();
    for sample in samples {
        let key = (sample.role.as_str(), sample.subkey.as_str());
        keys.entry(key).or_default().push(said(sample));
    }
    let same = |answers: Vec<Vec<u32>>| {
        let count = answers.len();
        let distinct: BTreeSet<Vec<u32>> = answers.into_iter().collect();
        (count > 1).then(|| (count - distinct.len()) as f64 / (count - 1) as f64)
    };
    keys.into_values().filter_map(same).collect()
}

/// Returns all sampled tokens of a sample, over its turns.
fn said(sample: &Sample) -> Vec<u32> {
    let of = |row: &Row| -> Vec<u32> {
        let places = |start: u32, len: u32| start as usize..(start + len) as usize;
        let parts = row.segments.iter().filter_map(|s| row.ids.get(places(s.start, s.len)));
        parts.flatten().copied().collect()
    };
    sample.rows.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sample, turn};
    use super::*;

    #[test]
    fn circles_and_echoes_are_measured() {
        let said = |output: &[u32]| sample(0, "solver", 0.0, &[turn("solver", output)]);
        assert_eq!(repetition(&said(&[7, 8, 9])), None);
        assert_eq!(repetition(&said(&[7, 8, 9, 10])), Some(0.0));
        assert_eq!(repetition(&said(&[7; 12])), Some(1.0));
        // 1 2 3, 2 3 1, 3 1 2, 1 2 3: the last run repeats the first.
        assert_eq!(repetition(&said(&[1, 2, 3, 1, 2, 3])), Some(1.0 / 3.0));

        let group = [
            said(&[1]),
            said(&[1]),
            said(&[2]),
            sample(1, "other", 0.0, &[turn("other", &[1])]),
        ];
        assert_eq!(
            sameness(group.iter()),
            [0.5],
            "a role with one sample has no other answer to repeat"
        );
        assert_eq!(sameness([said(&[1]), said(&[2])].iter()), [0.0]);
        assert_eq!(sameness([said(&[1]), said(&[1])].iter()), [1.0]);
        let key = |subkey: &str| Sample {
            subkey: subkey.into(),
            ..said(&[1])
        };
        let different = sameness([key("3+4="), key("1+1=")].iter());
        assert!(different.is_empty(), "answers to different problems");
    }
}
