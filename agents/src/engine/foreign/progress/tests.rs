//! Tests of server replies, taken up piece by piece.

use broker::protocol::turn::Sampling;
use proptest::prelude::*;

use super::*;
use crate::testing::{self, version};

fn job(max_new_tokens: u32, stop: &[&str]) -> GenerationJob {
    let stop = stop.iter().map(|&stop| stop.into()).collect();
    GenerationJob {
        sampling: Arc::new(Sampling {
            stop,
            ..testing::sampling(max_new_tokens)
        }),
        seed: 7,
        ..testing::job(1, &[1, 2, 3], max_new_tokens)
    }
}

fn reply(ids: &[u32], end: CallEnd) -> Reply {
    Reply {
        ids: ids.to_vec(),
        logprobs: ids.iter().map(|&id| -(id as f32)).collect(),
        end,
        label: None,
        reused: 2,
        top: Vec::new(),
    }
}

fn piece(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

/// Maps each id to a letter.
fn letters(ids: &[u32]) -> String {
    ids.iter().filter_map(|id| char::from_u32(*id)).collect()
}

fn visible(ids: &[u32]) -> String {
    rollout::text::visible_text(&letters(ids)).to_owned()
}

const READ: Reading<'_> = Reading {
    raw: &letters,
    visible: &visible,
    ends: &[9],
};

fn ask(progress: &Progress, job: &GenerationJob, context: usize) -> Option<ServerCall> {
    match progress.next(job, context, &[9].into()) {
        Ok(Next::Call(ask)) => Some(*ask),
        _ => None,
    }
}

#[test]
fn a_call_continues_behind_the_tokens_with_the_rest() {
    let (job, mut progress) = (job(5, &[]), Progress::default());
    let first = ask(&progress, &job, 32).unwrap();
    assert_eq!(
        (first.prompt.as_slice(), first.max_new_tokens, first.seed),
        ([1, 2, 3].as_slice(), 5, 7)
    );
    assert_eq!(
        progress.take(&job, reply(&[5, 6, 7], CallEnd::Aborted), version(1), &READ),
        None
    );
    let second = ask(&progress, &job, 32).unwrap();
    assert_eq!(
        (second.prompt.as_slice(), second.max_new_tokens),
        ([1, 2, 3, 5, 6, 7].as_slice(), 2)
    );
    assert!(second.seed != first.seed && second.id != first.id);
    // The context is shorter than the remaining tokens.
    assert_eq!(ask(&progress, &job, 7).unwrap().max_new_tokens, 1);
    assert!(matches!(
        progress.next(&job, 6, &[9].into()),
        Ok(Next::Over(Finish::Length))
    ));
    let end = progress.take(&job, reply(&[8, 9], CallEnd::Length), version(2), &READ);
    let made = progress.made(version(2), end.unwrap());
    assert_eq!(
        (made.output_ids.len(), made.logprobs.len(), made.finish),
        (5, 5, Finish::Length)
    );
    let spans: Vec<_> = made
        .spans
        .iter()
        .map(|span| (span.version.step, span.start, span.end))
        .collect();
    assert_eq!(spans, [(1, 0, 3), (2, 3, 5)]);
    assert_eq!((made.oldest_kv, made.reused), (version(1), 2));
}

#[test]
fn a_prompt_without_room_fails_and_the_token_limit_ends_it() {
    let job = job(2, &[]);
    let error = Progress::default().next(&job, 3, &[9].into()).unwrap_err();
    assert!(
        matches!(&error, Trouble::TooLong(said) if said.contains("3 tokens")),
        "{error}"
    );
    let mut progress = Progress::default();
    assert_eq!(
        progress.take(&job, reply(&[5, 6], CallEnd::Aborted), version(1), &READ),
        None
    );
    assert!(matches!(
        progress.next(&job, 99, &[9].into()),
        Ok(Next::Over(Finish::Length))
    ));
}

#[test]
fn a_piece_without_tokens_leaves_no_span() {
    let (job, mut progress) = (job(4, &[]), Progress::default());
    progress.take(&job, reply(&[], CallEnd::Aborted), version(1), &READ);
    let end = progress.take(&job, reply(&[9], CallEnd::Stop), version(2), &READ);
    let made = progress.made(version(2), end.unwrap());
    assert_eq!((made.spans.len(), made.oldest_kv), (1, version(2)));
}

#[test]
fn a_stop_text_that_began_in_an_earlier_piece_ends_the_answer() {
    let (job, mut progress) = (job(99, &["END"]), Progress::default());
    assert_eq!(
        progress.take(&job, reply(&piece("abE"), CallEnd::Aborted), version(1), &READ),
        None
    );
    let end = progress.take(&job, reply(&piece("NDxyz"), CallEnd::Length), version(2), &READ);
    assert_eq!(end, Some(Finish::Stop));
    let made = progress.made(version(2), Finish::Stop);
    assert_eq!(letters(&made.output_ids), "abEND");
    assert_eq!((made.logprobs.len(), made.spans[1].end), (5, 5));
}

#[test]
fn an_answer_in_pieces_is_requested_until_it_is_complete() {
    let (job, mut progress) = (job(5, &[]), Progress::in_pieces(2, 0));
    for (ids, left) in [([4, 5], 2), ([6, 7], 1)] {
        assert_eq!(ask(&progress, &job, 32).unwrap().max_new_tokens, 2);
        assert_eq!(
            progress.take(&job, reply(&ids, CallEnd::Length), version(1), &READ),
            None
        );
        assert_eq!(ask(&progress, &job, 32).unwrap().max_new_tokens, left);
    }
    // Shorter than a piece: the server ended it.
    let end = progress.take(&job, reply(&[8], CallEnd::Length), version(1), &READ);
    let so_far = progress.so_far(job.request);
    assert_eq!(
        (end, so_far.output_ids.len(), so_far.top.len()),
        (Some(Finish::Length), 5, 0)
    );
    // The limit ends with a whole piece: no further call is made.
    let mut whole = Progress::in_pieces(5, 0);
    let end = whole.take(&job, reply(&[4; 5], CallEnd::Length), version(1), &READ);
    assert_eq!(end, Some(Finish::Length));
}

#[test]
fn the_most_likely_tokens_are_sorted_and_end_with_the_answer() {
    let (job, mut progress) = (job(99, &["END"]), Progress::in_pieces(32, 2));
    assert_eq!(ask(&progress, &job, 64).unwrap().top, 2);
    let ids = piece("abENDx");
    // The chosen token comes last and least likely, as vLLM may send it; among equals the lower id
    // is first.
    let place = |id: u32| vec![(8, -1.0), (3, -0.5), (7, -1.0), (id, -9.0)];
    let reply = Reply {
        top: ids.iter().map(|id| place(*id)).collect(),
        ..reply(&ids, CallEnd::Length)
    };
    let finish = progress.take(&job, reply, version(1), &READ);
    let made = progress.made(version(1), finish.unwrap());
    assert_eq!((made.output_ids.len(), made.top.len()), (5, 5));
    for place in made.top {
        let likely: Vec<_> = place.iter().map(|one| (one.id, one.logprob)).collect();
        assert_eq!(likely, [(3, -0.5), (7, -1.0)]);
    }
}

/// Covers both numbers that servers write for minus infinity.
#[test]
fn impossible_tokens_are_not_among_the_likely_ones() {
    let likely = |place: &[(u32, f32)]| -> Vec<u32> {
        let likely = ranked(place.to_vec(), 3);
        likely.into_iter().map(|one| one.id).collect()
    };
    assert_eq!(likely(&[(4, -9999.0), (5, -0.1), (6, f32::MIN), (7, -12.0)]), [5, 7]);
    assert_eq!(likely(&[(4, -9000.0), (5, -8999.0)]), [5]);
}

/// A server searches everything for stop texts, and ends at an id that is unknown here.
#[test]
fn an_answer_continues_behind_a_stop_that_does_not_count() {
    let (job, mut progress) = (job(99, &["END"]), Progress::default());
    let mut take = |text: &str| progress.take(&job, reply(&piece(text), CallEnd::Stop), version(1), &READ);
    assert_eq!(take("<think>an END"), None, "it is inside of reasoning");
    assert_eq!(take("</think>b"), None, "not one of our stop ids");
    assert_eq!(take("c END, x"), Some(Finish::Stop));
    let made = progress.made(version(1), Finish::Stop);
    assert_eq!(letters(&made.output_ids), "<think>an END</think>bc END");
    let mut progress = Progress::default();
    let end = progress.take(&job, reply(&[5, 9], CallEnd::Stop), version(1), &READ);
    assert_eq!(end, Some(Finish::Stop));
}

proptest! {
    /// An answer cut into any pieces is the same answer, and its spans cover it.
    #[test]
    fn pieces_make_one_answer(text in "[a-dEND]{1,40}", cuts in prop::collection::vec(0usize..40, 0..6)) {
        let job = job(99, &["END"]);
        let ids: Vec<u32> = text.chars().map(u32::from).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(ids.len())).chain([0, ids.len()]).collect();
        cuts.sort_unstable();
        let mut progress = Progress::default();
        let mut finish = None;
        for (step, pair) in cuts.windows(2).enumerate() {
            let end = if pair[1] == ids.len() { CallEnd::Length } else { CallEnd::Aborted };
            finish = progress.take(&job, reply(&ids[pair[0]..pair[1]], end), version(step as u64), &READ);
            if finish.is_some() {
                break;
            }
        }
        let stop = text.find("END");
        prop_assert_eq!(finish, Some(if stop.is_some() { Finish::Stop } else { Finish::Length }));
        let made = progress.made(version(0), Finish::Stop);
        let expected = stop.map_or(text.as_str(), |at| &text[..at + 3]);
        prop_assert_eq!(letters(&made.output_ids), expected);
        prop_assert_eq!(made.logprobs.len(), made.output_ids.len());
        let mut at = 0;
        for span in &made.spans {
            prop_assert_eq!(span.start, at);
            prop_assert!(span.end > span.start);
            at = span.end;
        }
        prop_assert_eq!(at as usize, made.output_ids.len());
    }
}
