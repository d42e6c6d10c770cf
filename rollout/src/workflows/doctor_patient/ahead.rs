//! Looking ahead: whether the next turn, and another round after it, still fit, from the counts of what was said.
//!
//! Of a partner's turn a seat hears the text, without any reasoning: the tokens that were sampled, or the text's bytes where those
//! are fewer. Where two agents have tokenizers of their own that is an estimate. What a template lays round a turn, and a first
//! message, count by their bytes, which no tokenizer exceeds. A round to come is taken to be as long as the longest so far.

use crate::workflow::Event;
use crate::workflow::room::{AROUND, Room, prompt_after, prompt_of, tokens_of};

/// Whether and how the doctor goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// It may ask, and hear and answer what comes of it.
    Open,
    /// There is room for its final answer alone.
    Last,
    /// There is room for nothing.
    Full,
}

/// Tokens of a partner's turn that a seat hears.
fn heard(event: &Event) -> u64 {
    u64::from(event.tokens).min(tokens_of(&event.text))
}

/// Tokens of a message that a partner's turn stands in.
pub(super) fn told(message: &str, turn: &Event) -> u64 {
    heard(turn) + tokens_of(message).saturating_sub(tokens_of(&turn.text))
}

/// Before the doctor's next turn; at its first one nothing is counted yet. The room's reserve has what the template of the last
/// turn lays round a reply.
pub(super) fn of_doctor(room: Room, doctor: &[&Event], patient: &[&Event]) -> Ahead {
    let Some((question, reply)) = doctor.last().zip(patient.last()) else {
        return Ahead::Open;
    };
    let prompt = prompt_after(question, heard(reply), 1);
    if !room.is_left(prompt) {
        return Ahead::Full;
    }
    let doctor_then = prompt + longest(doctor, sampled) + longest(patient, heard) + AROUND;
    let patient_then = prompt_after(reply, longest(doctor, heard), 1) + longest(patient, sampled);
    if room.is_left(doctor_then) && room.holds(patient_then) {
        Ahead::Open
    } else {
        Ahead::Last
    }
}

/// Tokens that the doctor may say after its last question and a message of `told` tokens. `Some(0)`: it cannot answer; `None`:
/// as many as its agent allows.
pub(super) fn doctor_limit(room: Room, doctor: &[&Event], told: u64) -> Option<u32> {
    room.rest(prompt_of(doctor.last().copied(), told))
}

/// Before the patient's reply to the doctor's last question, which it is told in a message of `told` tokens: tokens that it may
/// say so that it overflows nowhere and leaves the doctor the reserve. `Some(0)`: it cannot reply; `None`: as many as its agent
/// allows.
pub(super) fn patient_limit(room: Room, doctor: &[&Event], patient: &[&Event], told: u64) -> Option<u32> {
    let question = doctor.last()?;
    let by_doctor = room.rest(prompt_after(question, 0, 1).saturating_add(u64::from(room.reserve)))?;
    let own = room.rest(prompt_of(patient.last().copied(), told))?;
    Some(own.min(by_doctor))
}

fn sampled(event: &Event) -> u64 {
    u64::from(event.tokens)
}

fn longest(said: &[&Event], tokens: impl Fn(&Event) -> u64) -> u64 {
    said.iter().copied().map(tokens).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::event;

    const ROOM: Room = Room { most: 200, reserve: 50 };

    /// Of a token a byte, as far as 999.
    fn said(prompt: u32, tokens: u32) -> Event {
        Event {
            prompt,
            tokens,
            ..event("doctor", 0, &"x".repeat(tokens.min(999) as usize))
        }
    }

    #[test]
    fn a_turn_that_does_not_fit_is_seen_before_it_is_asked_for() {
        let question = said(40, 10);
        let ahead = |reply: u32| of_doctor(ROOM, &[&question], &[&said(60, reply)]);
        // The next prompt has 66 and the reply; another round 26 and as long a reply more; the last turn needs 50.
        assert_eq!(ahead(29), Ahead::Open);
        assert_eq!(ahead(30), Ahead::Last, "66 + 30 + 10 + 30 + 16 + 50 is 202");
        assert_eq!((ahead(84), ahead(85)), (Ahead::Last, Ahead::Full));
        assert_eq!(of_doctor(ROOM, &[], &[]), Ahead::Open);
        let open = Room { most: 0, reserve: 50 };
        assert_eq!(of_doctor(open, &[&question], &[&said(60, u32::MAX)]), Ahead::Open);
    }

    #[test]
    fn the_patients_own_context_counts_too() {
        // The doctor's would have room for more: 10 + 5 + 5 + 16, and 5 + 5 + 16 more.
        let ahead = |prompt: u32| of_doctor(ROOM, &[&said(10, 5)], &[&said(prompt, 5)]);
        assert_eq!((ahead(169), ahead(170)), (Ahead::Open, Ahead::Last));
    }

    #[test]
    fn a_reply_leaves_the_doctor_its_reserve() {
        let question = said(40, 10);
        assert_eq!(patient_limit(ROOM, &[&question], &[], 10), Some(84), "200 - 66 - 50");
        assert_eq!(
            patient_limit(ROOM, &[&question], &[&said(150, 4)], 10),
            Some(20),
            "its own prompt has 180"
        );
        assert_eq!(patient_limit(ROOM, &[&said(140, 10)], &[], 10), Some(0));
        assert_eq!(doctor_limit(ROOM, &[&question], 20), Some(114), "200 - 86");
        let open = Room { most: 0, reserve: 50 };
        assert_eq!(patient_limit(open, &[&question], &[], 10), None);
        assert_eq!(doctor_limit(open, &[], 10), None);
    }

    #[test]
    fn first_turns_have_limits_too() {
        assert_eq!(doctor_limit(ROOM, &[], 100), Some(84), "200 - 100 - 16");
        assert_eq!(doctor_limit(ROOM, &[], 184), Some(0));
        assert_eq!(
            patient_limit(ROOM, &[&said(40, 10)], &[], 150),
            Some(34),
            "200 - 150 - 16"
        );
    }

    #[test]
    fn reasoning_that_nobody_hears_does_not_count_and_what_a_template_adds_does() {
        let thought = Event {
            tokens: 500,
            ..event("patient", 0, "High.")
        };
        assert_eq!((heard(&thought), heard(&said(0, 7))), (5, 7));
        assert_eq!(told("It says: High.", &thought), 5 + 9);
        assert_eq!(
            of_doctor(ROOM, &[&said(40, 10)], &[&thought]),
            Ahead::Last,
            "its own context has 505"
        );
        let many_bytes = Event {
            tokens: 2,
            ..event("patient", 0, "High.")
        };
        assert_eq!(told("High.\n", &many_bytes), 3);
    }
}
