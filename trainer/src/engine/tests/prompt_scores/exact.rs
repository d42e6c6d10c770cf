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
fn adapters_and_bf16_have_log_probs_of_prompts_too() {
    let shape = test_shape();
    let lora = LoraShape {
        rank: 2,
        alpha: 4.0,
        targets: Module::ALL.into_iter().collect(),
    };
    let long = prompt(4, 70);
    for (dtype, most) in [(Dtype::F32, 1e-4), (Dtype::Bf16, 0.5)] {
        let adapter = Weights::adapter(&shape, &lora, 5).unwrap();
        // B begins at 0, which would add nothing.
        let _guard = tch::no_grad_guard();
        let _ = adapter.flat().shallow_clone().f_add_scalar_(0.05).unwrap();
        let copied = |weights: &Weights| weights.copied_to(of_tests(), dtype).unwrap();
        let (base, adapter) = (copied(&weights(1)), copied(&adapter));
        let wanted = trained(&shape, Parts::over(Some(&base), &adapter), &long);
        let plain = trained(&shape, (&base).into(), &long);
        let apart = wanted
            .iter()
            .zip(&plain)
            .map(|(a, b)| (a - b).abs())
            .fold(0f32, f32::max);
        assert!(apart > 1e-2, "the adapter changes something: {apart}");
        let mut engine = Engine::with_base(&shape, base, Published::new(adapter, version(1)), OPTIONS).unwrap();
        let finished = run(&mut engine, &[scored(1, &long, 0, 3)]).remove(0);
        let scores = finished.prompt.unwrap();
        assert_eq!(scores.logprobs.len(), wanted.len());
        for (said, wanted) in scores.logprobs.iter().zip(&wanted) {
            assert!((said - wanted).abs() < most, "{dtype:?}: {said} {wanted}");
        }
    }
}
