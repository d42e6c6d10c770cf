//! The order of rows in their slots.

use super::{Engine, EngineError};
use crate::model::{ModelError, Reading, lay_out};

impl Engine {
    /// Sets how steps read keys, for benches and tests. An engine begins with [`Reading::of`] its
    /// device and kind.
    ///
    /// # Errors
    /// [`EngineError::Model`]: [`Reading::Own`] needs a CPU, and f32 or bf16.
    pub fn read_by(&mut self, reading: Reading) -> Result<(), EngineError> {
        let head_dim = self.shape().head_dim;
        let fastest = Reading::of(self.decoder.device(), self.cache.kind(), head_dim);
        let on_gpu = self.decoder.device() != tch::Device::Cpu;
        let special = reading == Reading::Own || (reading == Reading::Ragged && on_gpu);
        if special && fastest != reading {
            return Err(ModelError::shape("no kernels read each row's own keys here").into());
        }
        self.cache.reading = reading;
        self.cache.laid_out.clear();
        Ok(())
    }

    /// Groups rows of similar length where libtorch computes attention, after rows have come or
    /// gone.
    pub(super) fn lay_out(&mut self) -> Result<(), EngineError> {
        let (Some(call), false) = (self.cache.call(), self.options.deterministic) else {
            return Ok(());
        };
        let mut lengths: Vec<usize> = self.rows.iter().map(|row| row.in_slot() + 1).collect();
        if grown_alike(&self.cache.laid_out, &lengths) {
            return Ok(());
        }
        let layout = lay_out(&lengths, call);
        for [a, b] in layout.exchanges {
            let longest = self.rows[a].in_slot().max(self.rows[b].in_slot());
            self.cache.exchange(a, b, longest)?;
            self.rows.swap(a, b);
            lengths.swap(a, b);
        }
        self.cache.buckets = layout.buckets;
        self.cache.laid_out = lengths;
        Ok(())
    }
}

/// Returns true if the rows are the same in number, and each has grown by the same number of
/// tokens.
fn grown_alike(before: &[usize], now: &[usize]) -> bool {
    let mut growth = now.iter().zip(before).map(|(now, before)| now.checked_sub(*before));
    let first = growth.next().flatten();
    before.len() == now.len() && first.is_some() && growth.all(|other| other == first)
}

#[cfg(test)]
mod tests {
    use configs::Swap;
    use proptest::prelude::*;

    use super::super::tests::bounded::limit;
    use super::super::tests::{close, drain, full, id, request, version, weights};
    use super::super::{CacheLimit, EngineOptions, Finished, GenRequest};
    use super::*;
    use crate::model::test_shape;
    use crate::weights::Published;

    /// A call that costs as much as 40 keys, so that rows are exchanged often.
    const OFTEN: Reading = Reading::Buckets { call: 40 * 128 };

    fn engine(slots: usize) -> Engine {
        bounded(slots, None)
    }

    fn bounded(slots: usize, cache: Option<CacheLimit>) -> Engine {
        let options = EngineOptions {
            slots,
            prefill_tokens: 256,
            prefix_cache: 1 << 20,
            cache,
            swap: Swap::Retract,
            deterministic: false,
            prepack: true,
        };
        let mut engine = Engine::new(&test_shape(), Published::new(weights(1), version(1)), options).unwrap();
        engine.read_by(OFTEN).unwrap();
        engine
    }

    /// Prompts of 1 to 101 tokens, some of them shared by many requests.
    fn ragged(count: u64) -> Vec<GenRequest> {
        let make = |n: u64| {
            let (length, salt) = if n.is_multiple_of(3) {
                (60, 0)
            } else {
                (1 + n * 37 % 101, n)
            };
            let prompt: Vec<u32> = (0..length)
                .map(|i| ((salt * 11 + i * 17 + i * i) % 40) as u32)
                .collect();
            GenRequest {
                keep: n.is_multiple_of(2),
                ..request(n, &prompt, 1 + (n * 7 % 24) as u32)
            }
        };
        (0..count).map(make).collect()
    }

    #[test]
    fn rows_that_grew_alike_are_laid_out_already() {
        assert!(grown_alike(&[3, 9], &[3, 9]) && grown_alike(&[3, 9], &[5, 11]));
        for other in [&[5, 10][..], &[5, 11, 9], &[5], &[], &[2, 8]] {
            assert!(!grown_alike(&[3, 9], other), "{other:?}");
        }
        assert!(!grown_alike(&[], &[]));
    }

    #[test]
    fn a_wave_is_a_function_of_its_content_whatever_is_exchanged() {
        let wanted = engine(6).run_wave(ragged(30)).unwrap();
        let mut used = engine(6);
        used.run_wave(ragged(17)).unwrap();
        assert_eq!(used.run_wave(ragged(30)).unwrap(), wanted);
        for (request, finished) in ragged(30).iter().zip(&wanted) {
            assert!(close(
                &finished.logprobs,
                &full(&weights(1), request, &finished.output_ids)
            ));
        }
        // The layout of two earlier rows does not fit two other rows that happen to be longer by
        // the same amount.
        let two = |n: u64, longer: usize| {
            [100, 20]
                .map(|length| request(n + length as u64, &vec![3; length + longer], 2))
                .to_vec()
        };
        let wanted = engine(6).run_wave(two(7, 9)).unwrap();
        used.run_wave(two(0, 0)).unwrap();
        let found = used.run_wave(two(7, 9)).unwrap();
        assert_eq!((found, used.cache.buckets.as_slice()), (wanted, &[1, 1][..]));
    }

    fn lengths(engine: &Engine) -> Vec<usize> {
        engine.rows.iter().map(|row| row.in_slot()).collect()
    }

    #[test]
    fn rows_stand_longest_first_while_that_pays() {
        let mut engine = engine(8);
        assert_eq!(engine.cache.call(), Some(40));
        for (n, length) in [(1, 9), (2, 100), (3, 11), (4, 90), (5, 8)] {
            engine.submit(request(n, &vec![n as u32; length], 20)).unwrap();
        }
        engine.step().unwrap();
        assert_eq!(engine.cache.buckets, [2, 3]);
        let stand = lengths(&engine);
        assert!(
            stand[..2].iter().all(|length| *length > 64) && stand[2..].iter().all(|length| *length < 64),
            "{stand:?}"
        );
        for finished in drain(&mut engine) {
            let n = u64::from_le_bytes(finished.id.0[..8].try_into().unwrap());
            let length = [9, 100, 11, 90, 8][n as usize - 1];
            let asked = request(n, &vec![n as u32; length], 20);
            assert!(close(
                &finished.logprobs,
                &full(&weights(1), &asked, &finished.output_ids)
            ));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whatever is submitted, aborted and exchanged, each request ends once, with its own
        /// tokens.
        #[test]
        fn exchanged_rows_stay_themselves(ops in prop::collection::vec((0u8..10, 0u64..30), 1..60), slots in 2usize..9,
            tokens in prop::option::of(128usize..1500)) {
            let mut engine = bounded(slots, tokens.map(limit));
            let requests = ragged(30);
            let (mut open, mut ended, mut step) = (std::collections::BTreeSet::new(), Vec::<Finished>::new(), 1);
            for (op, n) in ops {
                match op {
                    0..=4 => {
                        let fresh = !open.contains(&id(n)) && !ended.iter().any(|f| f.id == id(n));
                        if fresh {
                            engine.submit(requests[n as usize].clone()).unwrap();
                            open.insert(id(n));
                        }
                    }
                    5 => prop_assert_eq!(engine.abort(id(n)).unwrap(), open.remove(&id(n))),
                    6 if n < 5 => {
                        step += 1;
                        prop_assert!(engine.swap(Published::new(weights(1), version(step))).unwrap());
                    }
                    _ => for finished in engine.step().unwrap() {
                        prop_assert!(open.remove(&finished.id));
                        ended.push(finished);
                    },
                }
            }
            for finished in drain(&mut engine) {
                prop_assert!(open.remove(&finished.id));
                ended.push(finished);
            }
            prop_assert!(open.is_empty(), "{open:?} never ended");
            for finished in &ended {
                let n = u64::from_le_bytes(finished.id.0[..8].try_into().unwrap());
                let request = &requests[n as usize];
                prop_assert!(finished.output_ids.len() == request.max_new_tokens as usize);
                prop_assert!(close(&finished.logprobs, &full(&weights(1), request, &finished.output_ids)));
            }
        }
    }
}
