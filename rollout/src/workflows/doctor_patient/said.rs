//! What has been said in a dialogue, how it ended, and what is read out of it.

use crate::workflow::Event;

/// Markers of an ending, each before a colon of either width.
pub(super) const DIAGNOSIS: &str = "Diagnosis";
pub(super) const RECOMMENDATION: &str = "Recommendation";
const COLONS: [char; 2] = [':', '：'];

/// What has been said, as far as it went.
#[derive(Default)]
pub(super) struct Said<'a> {
    pub(super) doctor: Vec<&'a Event>,
    pub(super) patient: Vec<&'a Event>,
    pub(super) status: Status,
    /// The doctor was asked for its final answer before its last turn, for want of room.
    pub(super) hurried: bool,
}

/// How a dialogue ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Status {
    /// With the doctor's ending, or its last turn.
    #[default]
    Completed,
    /// The doctor's turn was cut at its limit, or there was no room to go on.
    Truncated,
    /// The patient's turn was cut at its limit: the doctor could not end it.
    Silenced,
    /// The doctor said nothing (`mrlx`).
    Aborted,
}

impl Said<'_> {
    /// The dialogue as a judge of the patient reads it: up to its last reply, without what the doctor made of it.
    pub(super) fn transcript(&self) -> String {
        let rounds = self.doctor.iter().zip(&self.patient);
        rounds
            .map(|(question, reply)| format!("Doctor: {}\nPatient: {}\n", question.text, reply.text))
            .collect()
    }
}

/// Where a marker stands, and what follows its colon.
fn mentions<'a>(text: &'a str, marker: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let places = text.match_indices(marker);
    places.filter_map(move |(at, _)| Some((at, text[at + marker.len()..].strip_prefix(COLONS)?)))
}

/// What follows the last of a marker: up to the next marker, or to the end. `None` without the marker or with nothing behind it.
pub(super) fn named<'a>(text: &'a str, marker: &'a str) -> Option<&'a str> {
    let (_, rest) = mentions(text, marker).last()?;
    let next = |other| mentions(rest, other).next().map(|(at, _)| at);
    let end = [DIAGNOSIS, RECOMMENDATION].into_iter().filter_map(next).min();
    let found = rest[..end.unwrap_or(rest.len())].trim();
    (!found.is_empty()).then_some(found)
}

/// The paragraph that a text begins with: what stands behind a blank line explains it.
pub(super) fn paragraph(text: &str) -> &str {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            break;
        }
        length += line.len();
    }
    text[..length].trim_end()
}

/// Whether the doctor ends the dialogue with it.
pub(super) fn ends(text: &str) -> bool {
    let said = |marker| mentions(text, marker).next().is_some();
    said(DIAGNOSIS) || said(RECOMMENDATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_read_behind_either_colon() {
        for text in [
            "Diagnosis: flu\nRecommendation: rest",
            "Diagnosis： flu\nRecommendation：rest",
            "Recommendation: rest\nDiagnosis：flu",
            "Diagnosis: cold? No. Diagnosis: flu\nRecommendation: rest",
        ] {
            assert!(ends(text), "{text}");
            assert_eq!(
                (named(text, DIAGNOSIS), named(text, RECOMMENDATION)),
                (Some("flu"), Some("rest")),
                "{text}"
            );
        }
        for text in ["", "Diagnosis", "My Recommendation is rest", "diagnosis: flu"] {
            assert!(!ends(text) && named(text, DIAGNOSIS).is_none(), "{text}");
        }
        assert!(ends("Diagnosis:") && named("Diagnosis: \n", DIAGNOSIS).is_none());
    }

    #[test]
    fn a_paragraph_ends_at_a_blank_line() {
        assert_eq!(paragraph("rest\n\nExplanation: ..."), "rest");
        assert_eq!(paragraph("- rest\n- drink\n \nWhy"), "- rest\n- drink");
        assert_eq!((paragraph("rest"), paragraph("")), ("rest", ""));
    }
}
