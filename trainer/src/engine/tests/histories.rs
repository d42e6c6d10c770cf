//! Any order of requests, aborts and new weights.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is submitted, aborted and swapped, in any order, each request ends once, complete
    /// and with its own tokens.
    #[test]
    fn any_history_ends_every_request_once(ops in prop::collection::vec((0u8..10, 0u64..40), 1..60), slots in 1usize..6) {
        let mut engine = engine(EngineOptions { slots, prefill_tokens: 12, swap: Swap::Retract, ..OPTIONS });
        let requests = ragged(40);
        let (mut open, mut ended, mut step) = (std::collections::BTreeSet::new(), Vec::new(), 1);
        for (op, n) in ops {
            match op {
                0..=3 => {
                    let fresh = !open.contains(&id(n)) && !ended.iter().any(|f: &Finished| f.id == id(n));
                    if fresh {
                        engine.submit(requests[n as usize].clone()).unwrap();
                        open.insert(id(n));
                    }
                }
                4 => prop_assert_eq!(engine.abort(id(n)).unwrap(), open.remove(&id(n))),
                5 => {
                    step += 1;
                    prop_assert!(engine.swap(Published::new(weights(1), version(step))).unwrap());
                }
                _ => for finished in engine.step().unwrap() {
                    prop_assert!(open.remove(&finished.id));
                    ended.push(finished);
                },
            }
            prop_assert_eq!(engine.pending(), open.len());
        }
        ended.extend(drain(&mut engine));
        for finished in &ended {
            let n = u64::from_le_bytes(finished.id.0[..8].try_into().unwrap());
            let request = &requests[n as usize];
            prop_assert_eq!(finished.output_ids.len(), request.max_new_tokens as usize);
            let mut next = 0;
            for span in &finished.spans {
                prop_assert_eq!(span.start, next);
                next = span.end;
            }
            prop_assert_eq!(next as usize, finished.output_ids.len());
            // Every version has the same weights, so the history must not change the log-probs.
            prop_assert!(close(&finished.logprobs, &full(&weights(1), request, &finished.output_ids)));
        }
    }
}
