//! What has been said in a dialogue, how it ended, and what is read out of it.

use super::Event;

pub(super) const DIAGNOSIS: &str = "Diagnosis:";
pub(super) const RECOMMENDATION: &str = "Recommendation:";

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

/// What follows a marker: up to the next marker, or to the end. `None` without the marker or with nothing behind it.
pub(super) fn named<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let rest = &text[text.rfind(marker)? + marker.len()..];
    let end = [DIAGNOSIS, RECOMMENDATION]
        .iter()
        .filter_map(|other| rest.find(other))
        .min();
    let found = rest[..end.unwrap_or(rest.len())].trim();
    (!found.is_empty()).then_some(found)
}

/// Whether the doctor ends the dialogue with it.
pub(super) fn ends(text: &str) -> bool {
    text.contains(DIAGNOSIS) || text.contains(RECOMMENDATION)
}
