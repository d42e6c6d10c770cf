//! The bounds of both contexts.

use super::*;

#[test]
fn a_dialogue_asks_for_its_ending_while_there_is_room() {
    let clinic = watched();
    let mut events = vec![counted(0, "Fever?", 840, 10)];
    // 1000 - (840 + 10 + 16) - 50.
    assert_eq!(asked(&clinic, &events).max_new_tokens, Some(84));
    events.push(counted(1, "High.", 860, 20));
    // The doctor's next prompt has 886 tokens, and with another round 932.
    let next = asked(&clinic, &events);
    assert_eq!(
        (next.max_new_tokens, next.messages[0].content.as_str()),
        (Some(114 + around()), format!("{:<20}", "High.").as_str())
    );
    events.push(counted(2, "Throat?", 886, 10));
    assert_eq!(asked(&clinic, &events).max_new_tokens, Some(38), "1000 - 912 - 50");
    events.push(counted(3, "Sore.", 906, 20));
    // 932, and 978 with a further round: its answer would have 22.
    let last = asked(&clinic, &events);
    assert_eq!((last.turn, last.max_new_tokens), (2, Some(68)));
    assert!(last.messages[0].content.contains("exactly two lines"), "{last:?}");
    let end = |text: &str| done(&clinic, &[&events[..], &[counted(4, text, 940, 20)]].concat());
    let (good, bad) = (end(END), end("Cough?"));
    let flags = |outcome: &Outcome| ["hurried", "truncated", "success"].map(|name| metric(outcome, name));
    assert_eq!((flags(&good), flags(&bad)), ([1.0, 0.0, 1.0], [1.0, 1.0, 0.0]));
    assert_eq!(parts(&bad, 0)["compliance"], -5.0);
}

#[test]
fn a_dialogue_without_room_is_truncated_and_overflows_nowhere() {
    let (watched, unwatched) = (watched(), clinic("dyad", ""));
    let first = counted(0, "Fever?", 840, 10);
    let cut = |tokens: u32| Event {
        finish: Finish::Length,
        ..counted(1, "High, and", 860, tokens)
    };
    // A reply that the room cut leaves the reserve for the ending; a longer one (with a different
    // token count) does not.
    let full = asked(&watched, &[first.clone(), cut(84)]);
    assert_eq!((full.role.as_str(), full.max_new_tokens), ("doctor", Some(50)));
    assert!(full.messages[0].content.contains("exactly two lines"), "{full:?}");
    let over = done(&watched, &[first.clone(), counted(1, "High.", 860, 85)]);
    assert_eq!((metric(&over, "truncated"), over.rewards.len()), (1.0, 2));
    // A reply that a different limit cut ends it.
    let silenced = done(&watched, &[first.clone(), cut(83)]);
    assert_eq!(
        (metric(&silenced, "truncated"), earners(&silenced)),
        (1.0, vec!["patient"])
    );
    // A question after which no reply fits.
    let long = counted(2, "Throat, which ..?", 886, 60);
    let over = done(&watched, &[first, counted(1, "High.", 860, 20), long]);
    assert_eq!((metric(&over, "truncated"), metric(&over, "hurried")), (1.0, 0.0));
    let next = asked(&unwatched, &[counted(0, "Fever?", u32::MAX, u32::MAX)]);
    assert_eq!(next.max_new_tokens, None);
}

#[test]
fn a_reply_cut_by_the_patients_context_precedes_the_ending() {
    let clinic = watched();
    let first = [
        counted(0, "Fever?", 10, 10),
        counted(1, "High.", 700, 10),
        counted(2, "Throat?", 46, 10),
    ];
    let limit = asked(&clinic, &first).max_new_tokens.unwrap();
    assert_eq!(
        limit,
        1000 + around() - (700 + 10 + 10 + 16),
        "less than the doctor's room"
    );
    // The patient does not receive the doctor's reasoning, so the doctor would have room for more.
    let thought = Event {
        tokens: limit,
        prompt: 100,
        ..cut(3, "Sore,")
    };
    let last = asked(&clinic, &[&first[..], &[thought]].concat());
    assert!(last.messages[0].content.contains("exactly two lines"), "{last:?}");
}

#[test]
fn first_turns_have_a_limit_by_the_bytes_of_their_message() {
    let (wide, tight) = (watched(), clinic("dyad", "max_tokens = 210\nreserve = 10"));
    let first = asked(&wide, &[]);
    let bytes = first.messages[0].content.len() as u32;
    assert_eq!(first.max_new_tokens, Some(1000 + around() - bytes - 16));
    let reply = asked(&wide, &[counted(0, "Fever?", 20, 10)]);
    let bytes = reply.messages[0].content.len() as u32;
    assert_eq!(
        reply.max_new_tokens,
        Some(1000 + around() - bytes - 16),
        "the doctor's room is wider"
    );
    assert!(wide.check_task(&case()).is_ok());
    assert!(tight.check_task(&case()).unwrap_err().contains("max_tokens = 210"));
    assert_eq!(earners(&done(&tight, &[])), Vec::<&str>::new());
}
