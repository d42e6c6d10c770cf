//! Lookahead: whether the next turn, and a further round after it, still fit, from the token counts
//! so far.
//!
//! A seat receives the text of its partner's turn, without reasoning. Its size is the number of
//! sampled tokens, or the text's bytes where those are fewer. If the two agents have different
//! tokenizers, this is an estimate. The template's text around a turn, and a first message, count
//! by their bytes, which no tokenizer exceeds. A future round is assumed to be as long as the
//! longest so far.

use crate::workflow::Event;
use crate::workflow::room::{AROUND, Room, prompt_after, prompt_of, tokens_of};

/// How the doctor continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// There is room for a question, its reply, and the doctor's answer to it.
    Open,
    /// There is room only for the final answer.
    Last,
    /// There is no room.
    Full,
}

/// Returns the tokens of a partner's turn that a seat receives.
fn received(event: &Event) -> u64 {
    u64::from(event.tokens).min(tokens_of(&event.text))
}

/// Returns the tokens of a message that holds a partner's turn.
pub(super) fn message_tokens(message: &str, turn: &Event) -> u64 {
    received(turn) + tokens_of(message).saturating_sub(tokens_of(&turn.text))
}

/// Decides before the doctor's next turn; at its first turn there is no count yet. The room's
/// reserve includes the text that the template of the last turn adds around a reply.
pub(super) fn of_doctor(room: Room, doctor: &[&Event], patient: &[&Event]) -> Ahead {
    let Some((question, reply)) = doctor.last().zip(patient.last()) else {
        return Ahead::Open;
    };
    let prompt = prompt_after(question, received(reply), 1);
    if !room.is_left(prompt) {
        return Ahead::Full;
    }
    let doctor_then = prompt + longest(doctor, sampled) + longest(patient, received) + AROUND;
    let patient_then = prompt_after(reply, longest(doctor, received), 1) + longest(patient, sampled);
    if room.is_left(doctor_then) && room.holds(patient_then) {
        Ahead::Open
    } else {
        Ahead::Last
    }
}

/// Returns the limit of tokens for the doctor after its last question and a message of `message`
/// tokens. `Some(0)`: it cannot answer; `None`: as many as its agent allows.
pub(super) fn doctor_limit(room: Room, doctor: &[&Event], message: u64) -> Option<u32> {
    room.rest(prompt_of(doctor.last().copied(), message))
}

/// Returns the limit of tokens for the patient's reply to the doctor's last question, which comes
/// in a message of `message` tokens. Within the limit it overflows no context and leaves the doctor
/// the reserve. `Some(0)`: it cannot reply; `None`: as many as its agent allows.
pub(super) fn patient_limit(room: Room, doctor: &[&Event], patient: &[&Event], message: u64) -> Option<u32> {
    let question = doctor.last()?;
    let by_doctor = room.rest(prompt_after(question, 0, 1).saturating_add(u64::from(room.reserve)))?;
    let own = room.rest(prompt_of(patient.last().copied(), message))?;
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

    /// A text with one byte per token, up to 999.
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
        // The next prompt has 66 and the reply; a further round has 26 and a reply of the same
        // length; the last turn needs 50.
        assert_eq!(ahead(29), Ahead::Open);
        assert_eq!(ahead(30), Ahead::Last, "66 + 30 + 10 + 30 + 16 + 50 is 202");
        assert_eq!((ahead(84), ahead(85)), (Ahead::Last, Ahead::Full));
        assert_eq!(of_doctor(ROOM, &[], &[]), Ahead::Open);
        let open = Room { most: 0, reserve: 50 };
        assert_eq!(of_doctor(open, &[&question], &[&said(60, u32::MAX)]), Ahead::Open);
    }

    #[test]
    fn the_patients_own_context_counts_too() {
        // The doctor's own limit would be higher: 10 + 5 + 5 + 16, and 5 + 5 + 16 more.
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
    fn reasoning_does_not_count_and_text_of_a_template_does() {
        let thought = Event {
            tokens: 500,
            ..event("patient", 0, "High.")
        };
        assert_eq!((received(&thought), received(&said(0, 7))), (5, 7));
        assert_eq!(message_tokens("It says: High.", &thought), 5 + 9);
        assert_eq!(
            of_doctor(ROOM, &[&said(40, 10)], &[&thought]),
            Ahead::Last,
            "its own context has 505"
        );
        let many_bytes = Event {
            tokens: 2,
            ..event("patient", 0, "High.")
        };
        assert_eq!(message_tokens("High.\n", &many_bytes), 3);
    }
}
