//! Prompts that several requests share.

use super::*;

#[test]
fn long_shared_prompts_are_attended_once_and_change_nothing() {
    let prompt = |p: u32| (0..60 + p).map(|i| (i * 7 + p * 13 + i * i) % 40).collect::<Vec<u32>>();
    // Three groups of eight and four single requests, of lengths that end at different steps, in
    // slots that are reused.
    let wave: Vec<_> = (0..28)
        .map(|n| {
            let prompt = if n < 24 {
                prompt(n as u32 / 8)
            } else {
                vec![n as u32, 3]
            };
            request(n, &prompt, 2 + (n * 5 % 23) as u32)
        })
        .collect();
    let options = EngineOptions {
        slots: 20,
        prefill_tokens: 150,
        ..OPTIONS
    };
    let shared = engine(options).run_wave(wave.clone()).unwrap();
    assert_eq!(
        shared,
        engine(options).run_wave(wave.clone()).unwrap(),
        "the same bits again"
    );
    let mut alone = engine(EngineOptions { slots: 1, ..OPTIONS });
    for (request, shared) in wave.into_iter().zip(&shared) {
        let expected = full(&weights(1), &request, &shared.output_ids);
        assert!(close(&shared.logprobs, &expected), "request {}", request.id);
        alone.submit(request).unwrap();
        assert_eq!(drain(&mut alone).remove(0).output_ids, shared.output_ids);
    }
}

#[test]
fn retracted_rows_leave_their_shared_prompt() {
    let options = EngineOptions {
        swap: Swap::Retract,
        prefill_tokens: 100,
        ..OPTIONS
    };
    let prompt: Vec<u32> = (0..70).map(|i| (i * 11) % 40).collect();
    let mut engine = engine(options);
    for n in 0..6 {
        engine.submit(request(n, &prompt, 12 + n as u32)).unwrap();
    }
    for _ in 0..5 {
        engine.step().unwrap();
    }
    engine.swap(Published::new(weights(2), version(2))).unwrap();
    for finished in drain(&mut engine) {
        let request = request(0, &prompt, 1);
        let after = full(&weights(2), &request, &finished.output_ids);
        assert!(close(&finished.logprobs[6..], &after[6..]));
        assert_eq!(finished.oldest_kv, version(2));
    }
}

#[test]
fn a_shared_prompt_equals_prompts_of_their_own() {
    let prompts: Vec<Vec<u32>> = (0..4).map(|p| vec![p, 30 - p, 7]).collect();
    let wave: Vec<_> = (0..64)
        .map(|n| request(n, &prompts[n as usize % 4], if n < 32 { 1 } else { 6 }))
        .collect();
    let shared = engine(EngineOptions { slots: 64, ..OPTIONS })
        .run_wave(wave.clone())
        .unwrap();
    let mut alone = engine(OPTIONS);
    for (request, shared) in wave.into_iter().zip(&shared) {
        let single = alone.run_wave(vec![request.clone()]).unwrap().remove(0);
        assert_eq!(single.output_ids, shared.output_ids);
        assert!(close(&single.logprobs, &shared.logprobs));
    }
    let distinct: std::collections::HashSet<_> = shared.iter().map(|f| f.output_ids[0]).collect();
    assert!(distinct.len() > 4, "samples of one prompt differ");
}
