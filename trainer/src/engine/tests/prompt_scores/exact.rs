//! Log-probs of prompts to the bit, and of other models.

use configs::Dtype;

use super::super::fixed;
use super::*;
use crate::model::{LoraShape, Module, Weights};

/// The bits of log-probs, of the prompt and of the output.
fn bits(finished: &Finished) -> (Vec<u32>, Vec<u32>) {
    let of = |list: &[f32]| list.iter().map(|logprob| logprob.to_bits()).collect();
    let prompt = finished
        .prompt
        .as_ref()
        .map_or(&[][..], |scores| scores.logprobs.as_slice());
    (of(prompt), of(&finished.logprobs))
}

#[test]
fn deterministic_prompt_log_probs_depend_on_no_other_request() {
    let shape = fixed::shape();
    let engine = |prefill_tokens| {
        let options = EngineOptions {
            prefill_tokens,
            prefix_cache: 1 << 24,
            deterministic: true,
            prepack: true,
            slots: 80,
            ..OPTIONS
        };
        let weights = Published::new(fixed::weights(&shape, 1), version(1));
        Engine::new(&shape, weights, options).unwrap()
    };
    let lengths = [200, 65, 3, 130, 64, 1];
    let requests: Vec<GenRequest> = (0..12u64)
        .map(|n| {
            let prompt = fixed::prompt(n % 5, lengths[n as usize % 6]);
            scored(n, &prompt, n as u32 % 4, (n % 3) as u8)
        })
        .collect();
    let alone: Vec<Finished> = requests
        .iter()
        .map(|request| run(&mut engine(512), std::slice::from_ref(request)).remove(0))
        .collect();
    for prefill_tokens in [512, 50, 7] {
        let together = run(&mut engine(prefill_tokens), &requests);
        for (alone, together) in alone.iter().zip(&together) {
            assert_eq!(bits(alone), bits(together), "{prefill_tokens}");
        }
    }
    for (request, alone) in requests.iter().zip(alone).filter(|(one, _)| one.max_new_tokens > 0) {
        let plain = GenRequest {
            prompt_top: None,
            ..request.clone()
        };
        let plain = run(&mut engine(512), &[plain]).remove(0);
        assert_eq!(Finished { prompt: None, ..alone }, plain);
    }
}

#[test]
fn adapters_and_bf16_have_log_probs_of_prompts_too_after_a_swap_as_well() {
    let shape = test_shape();
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: Module::ALL.into_iter().collect(),
    };
    let long = prompt(4, 70);
    let gap = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    for (dtype, most) in [(Dtype::F32, 1e-4), (Dtype::Bf16, 0.1)] {
        let _guard = tch::no_grad_guard();
        let copied = |weights: &Weights, dtype| weights.copied_to(of_tests(), dtype).unwrap();
        let base = copied(&weights(1), dtype);
        let adapter = |by: f64| {
            let adapter = Weights::adapter(&shape, &lora, 5).unwrap();
            // B begins at 0, which would add nothing.
            let _ = adapter.flat().shallow_clone().f_add_scalar_(by).unwrap();
            copied(&adapter, dtype)
        };
        // Numbers of the same weights in f32.
        let wide = |weights: &Weights| copied(weights, Dtype::F32);
        let wanted = |by: f64| trained(&shape, Parts::over(Some(&wide(&base)), &wide(&adapter(by))), &long);
        let plain = trained(&shape, (&wide(&base)).into(), &long);
        let versions = [(1, 0.05), (2, 0.3)].map(|(step, by)| (step, by, wanted(by)));
        let apart = [gap(&plain, &versions[0].2), gap(&versions[0].2, &versions[1].2)];
        assert!(
            apart.iter().all(|apart| *apart > f32::max(2.0 * most, 1e-2)),
            "each adapter changes something: {apart:?}"
        );
        let first = Published::new(adapter(0.05), version(1));
        let mut engine = Engine::with_base(&shape, base.share(), first, OPTIONS).unwrap();
        for (step, by, wanted) in versions {
            engine.swap(Published::new(adapter(by), version(step))).unwrap();
            let finished = run(&mut engine, &[scored(step, &long, 0, 3)]).remove(0);
            let scores = finished.prompt.unwrap();
            assert_eq!(scores.logprobs.len(), wanted.len());
            for (said, wanted) in scores.logprobs.iter().zip(&wanted) {
                assert!(
                    (said - wanted).abs() < most,
                    "{dtype:?}, version {step}: {said} {wanted}"
                );
            }
        }
    }
}
