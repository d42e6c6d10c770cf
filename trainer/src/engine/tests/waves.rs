//! Generations of a wave, compared with the full forward pass and with each other.

use broker::protocol::turn::Finish;

use super::*;

#[test]
fn log_probs_are_those_of_the_full_forward_in_every_batch() {
    let requests = ragged(30);
    let mut together = engine(OPTIONS);
    for request in &requests {
        together.submit(request.clone()).unwrap();
    }
    let together = drain(&mut together);
    assert_eq!(together.len(), requests.len());
    let mut alone = engine(EngineOptions { slots: 1, ..OPTIONS });
    for (request, finished) in requests.iter().zip(&together) {
        alone.submit(request.clone()).unwrap();
        let single = drain(&mut alone).remove(0);
        assert_eq!(single.output_ids, finished.output_ids, "request {}", request.id);
        assert!(close(&single.logprobs, &finished.logprobs));
        assert!(close(
            &finished.logprobs,
            &full(&weights(1), request, &finished.output_ids)
        ));
        assert_eq!(finished.finish, Finish::Length);
        assert_eq!(finished.output_ids.len(), request.max_new_tokens as usize);
    }
}

#[test]
fn a_wave_is_a_function_of_its_content() {
    let mut used = engine(OPTIONS);
    let mut other = ragged(13);
    other.iter_mut().for_each(|request| request.max_new_tokens = 90);
    used.run_wave(other).unwrap();
    let first = used.run_wave(ragged(30)).unwrap();
    let again = used.run_wave(ragged(30)).unwrap();
    let fresh = engine(OPTIONS).run_wave(ragged(30)).unwrap();
    assert_eq!(first, again, "the same wave twice");
    assert_eq!(first, fresh, "on a used engine and on a new one");
    assert_eq!(
        first.iter().map(|f| f.id).collect::<Vec<_>>(),
        (0..30).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn stop_rules_end_a_generation_with_the_token_that_ends_it() {
    let mut engine = engine(OPTIONS);
    let free = engine.run_wave(vec![request(1, &[3, 4], 40)]).unwrap().remove(0);
    let stop = free.output_ids[5];
    let until = free.output_ids.iter().position(|&t| t == stop).unwrap() + 1;
    let by_id = GenRequest {
        stop_ids: Arc::from([39, stop]),
        ..request(1, &[3, 4], 40)
    };
    let by_rule = GenRequest {
        stop: Some(Arc::new(|out: &[u32]| out.len() == 7)),
        ..request(1, &[3, 4], 40)
    };
    let first = GenRequest {
        stop_ids: free.output_ids[..1].into(),
        ..request(1, &[3, 4], 40)
    };
    for (request, wanted) in [(by_id, until), (by_rule, 7), (first, 1)] {
        let ended = engine.run_wave(vec![request]).unwrap().remove(0);
        assert_eq!(ended.finish, Finish::Stop);
        assert_eq!(ended.output_ids, free.output_ids[..wanted]);
    }
    let to_the_brim = engine.run_wave(vec![request(1, &[5; 120], 1000)]).unwrap().remove(0);
    assert_eq!((to_the_brim.finish, to_the_brim.output_ids.len()), (Finish::Length, 8));
}

#[test]
fn greedy_takes_the_likeliest() {
    let greedy = |n| GenRequest {
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        ..request(n, &[3, 4], 12)
    };
    let mut engine = engine(OPTIONS);
    let outputs: Vec<_> = engine.run_wave(vec![greedy(1), greedy(2)]).unwrap();
    assert_eq!(outputs[0].output_ids, outputs[1].output_ids, "seeds do not matter");
    assert!(close(
        &outputs[0].logprobs,
        &full(&weights(1), &greedy(1), &outputs[0].output_ids)
    ));
}
