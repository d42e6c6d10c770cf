//! The text of a dialogue so far, how it ended, and the parts read out of it.

use crate::workflow::Event;

/// Markers of an ending, each before a colon of either width.
pub(super) const DIAGNOSIS: &str = "Diagnosis";
pub(super) const RECOMMENDATION: &str = "Recommendation";
const COLONS: [char; 2] = [':', '：'];

/// The dialogue as far as it went.
#[derive(Default)]
pub(super) struct Said<'a> {
    pub(super) doctor: Vec<&'a Event>,
    pub(super) patient: Vec<&'a Event>,
    pub(super) status: Status,
    /// The doctor was asked for its final answer before its last turn, for lack of room.
    pub(super) hurried: bool,
}

/// The end of a dialogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Status {
    /// Ended with the doctor's ending, or with its last turn.
    #[default]
    Completed,
    /// The doctor's turn was cut at its limit, or there was no room to continue.
    Truncated,
    /// The patient's turn was cut at its limit, so the doctor could not end the dialogue.
    Silenced,
    /// The doctor said nothing (`mrlx`).
    Aborted,
}

impl Said<'_> {
    /// Returns the dialogue for a judge of the patient: up to its last reply, without the doctor's
    /// ending.
    pub(super) fn transcript(&self) -> String {
        let rounds = self.doctor.iter().zip(&self.patient);
        rounds
            .map(|(question, reply)| format!("Doctor: {}\nPatient: {}\n", question.text, reply.text))
            .collect()
    }
}

/// Returns the place of a marker, and the text after its colon.
fn mentions<'a>(text: &'a str, marker: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let places = text.match_indices(marker);
    places.filter_map(move |(at, _)| Some((at, text[at + marker.len()..].strip_prefix(COLONS)?)))
}

/// Returns the text after the last occurrence of a marker, up to the next marker or the end. `None`
/// without the marker or without text after it.
pub(super) fn named<'a>(text: &'a str, marker: &'a str) -> Option<&'a str> {
    let (_, rest) = mentions(text, marker).last()?;
    let next = |other| mentions(rest, other).next().map(|(at, _)| at);
    let end = [DIAGNOSIS, RECOMMENDATION].into_iter().filter_map(next).min();
    let found = rest[..end.unwrap_or(rest.len())].trim();
    (!found.is_empty()).then_some(found)
}

/// Returns the first paragraph of a text; the text after a blank line explains it.
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

/// Returns true if the doctor ends the dialogue with this text.
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
