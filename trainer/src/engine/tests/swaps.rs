//! New weights while requests are under way.

use super::*;
use crate::engine::EngineError;
use crate::model::ModelShape;

/// Three requests, with new weights after four steps.
fn swapped(swap: Swap) -> (Vec<GenRequest>, Vec<Finished>) {
    let mut engine = engine(EngineOptions { swap, ..OPTIONS });
    let requests: Vec<_> = [(1, 2), (2, 10), (3, 10)]
        .map(|(n, max)| request(n, &[n as u32, 9], max))
        .into();
    for request in &requests[..2] {
        engine.submit(request.clone()).unwrap();
    }
    let mut all = Vec::new();
    for _ in 0..4 {
        all.append(&mut engine.step().unwrap());
    }
    assert!(engine.swap(Published::new(weights(2), version(2))).unwrap());
    assert!(
        !engine.swap(Published::new(weights(1), version(1))).unwrap(),
        "older weights are dropped"
    );
    engine.submit(requests[2].clone()).unwrap();
    all.append(&mut drain(&mut engine));
    assert_eq!(engine.version(), version(2));
    all.sort_by_key(|finished| finished.id);
    (requests, all)
}

fn spans(finished: &Finished) -> Vec<(u64, u32, u32)> {
    finished
        .spans
        .iter()
        .map(|span| (span.version.step, span.start, span.end))
        .collect()
}

#[test]
fn in_place_goes_on_with_the_old_cache_and_says_so() {
    let (_, all) = swapped(Swap::InPlace);
    assert_eq!(spans(&all[0]), [(1, 0, 2)]);
    assert_eq!(spans(&all[1]), [(1, 0, 5), (2, 5, 10)]);
    assert_eq!((all[1].oldest_kv, all[2].oldest_kv), (version(1), version(2)));
    assert_eq!(spans(&all[2]), [(2, 0, 10)]);
}

#[test]
fn retract_recomputes_the_cache() {
    let (requests, all) = swapped(Swap::Retract);
    assert_eq!(spans(&all[1]), [(1, 0, 5), (2, 5, 10)]);
    assert_eq!(all[1].oldest_kv, version(2));
    let wanted = full(&weights(2), &requests[1], &all[1].output_ids);
    assert!(
        close(&all[1].logprobs[5..], &wanted[5..]),
        "as if the new weights had read everything"
    );
    let (_, in_place) = swapped(Swap::InPlace);
    assert!(!close(
        &in_place[1].logprobs[5..],
        &full(&weights(2), &requests[1], &in_place[1].output_ids)[5..]
    ));
}

#[test]
fn drain_finishes_first_and_holds_the_line() {
    let (requests, all) = swapped(Swap::Drain);
    assert_eq!(spans(&all[1]), [(1, 0, 10)]);
    assert_eq!(spans(&all[2]), [(2, 0, 10)]);
    assert!(close(
        &all[2].logprobs,
        &full(&weights(2), &requests[2], &all[2].output_ids)
    ));
}

#[test]
fn weights_of_another_shape_are_refused() {
    let tied = ModelShape {
        tied: true,
        ..test_shape()
    };
    let other = Weights::zeros(&tied, of_tests(), Kind::Float).unwrap();
    assert!(matches!(
        engine(OPTIONS).swap(Published::new(other, version(9))),
        Err(EngineError::Model(_))
    ));
}
