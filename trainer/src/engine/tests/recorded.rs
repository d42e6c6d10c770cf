//! Decode steps that are recorded as CUDA graphs. Without `DYAD_TEST_DEVICE=cuda:0` nothing runs.

use tch::Device;

use super::*;

/// In bf16 a log-prob has about two digits.
const ROUNDING: f32 = 0.15;

#[test]
fn recorded_steps_have_the_log_probs_of_a_full_pass_before_and_after_a_swap() {
    if of_tests() == Device::Cpu {
        return;
    }
    let half = |seed| weights(seed).copied_to(of_tests(), Dtype::Bf16).unwrap();
    let mut engine = Engine::new(&test_shape(), Published::new(half(1), version(1)), OPTIONS).unwrap();
    let mut wrong_weights = 0;
    for (round, other) in [(1, 2), (2, 1)] {
        // More requests than slots, so that rows come and go.
        let requests: Vec<GenRequest> = (0..40).map(|n| long(100 * round + n)).collect();
        requests
            .iter()
            .for_each(|request| engine.submit(request.clone()).unwrap());
        let finished = drain(&mut engine);
        assert!(engine.graphs.len() >= 2, "{} graphs", engine.graphs.len());
        for (request, finished) in requests.iter().zip(&finished) {
            let gap = |seed| widest(&full(&half(seed), request, &finished.output_ids), &finished.logprobs);
            assert!(gap(round) < ROUNDING, "round {round}: {}", gap(round));
            wrong_weights += usize::from(gap(other) > ROUNDING);
        }
        engine
            .swap(Published::new(half(round + 1), version(round + 1)))
            .unwrap();
        assert_eq!(engine.graphs.len(), 0, "a graph reads the weights of its recording");
    }
    assert!(
        wrong_weights > 70,
        "the comparison tells weights apart: {wrong_weights}"
    );
}

fn long(n: u64) -> GenRequest {
    let prompt: Vec<u32> = (0..1 + n % 9).map(|i| ((n * 11 + i * 17) % 40) as u32).collect();
    request(n, &prompt, 20 + (n * 7 % 60) as u32)
}

fn widest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |widest, (a, b)| widest.max((a - b).abs()))
}
