//! Numbers and sizes that the front rejects.

use super::*;

#[test]
fn numbers_that_would_hurt_the_engine_are_refused() {
    for (field, value) in [
        ("temperature", json!(1e-30)),
        ("temperature", json!(-1)),
        ("temperature", json!(1e30)),
        ("top_p", json!(0)),
        ("top_p", json!(1e-60)),
        ("top_p", json!(1.1)),
        ("min_p", json!(2)),
        ("top_k", json!(-2)),
        ("max_tokens", json!(0)),
        ("n", json!(0)),
        ("n", json!(129)),
        ("seed", json!(1.5)),
        ("stop", json!("")),
        ("stop", json!([1])),
        ("stop", json!(vec!["a"; 17])),
        ("stop_token_ids", json!(5)),
        ("stop_token_ids", json!(["a"])),
        ("stop_token_ids", json!([-1])),
        ("stop_token_ids", json!([4_294_967_296_u64])),
        ("stop_token_ids", json!(vec![0; 1025])),
        ("include_stop_str_in_output", json!(1)),
        ("stream", json!("yes")),
    ] {
        assert_eq!(refused(Endpoint::Completion, json!({field: value})).0, field, "{value}");
    }
    assert_eq!(
        refused(Endpoint::Chat, json!({"max_tokens": 1, "max_completion_tokens": 2})).0,
        "max_tokens"
    );
    assert_eq!(
        refused(Endpoint::Chat, json!({"stream_options": {}})).0,
        "stream_options"
    );
    let options = json!({"stream": true, "stream_options": {"odd": 1}});
    assert_eq!(refused(Endpoint::Chat, options).0, "stream_options.odd");
}

#[test]
fn too_many_logprobs_for_one_answer_need_a_stream() {
    let (completion, chat) = (Endpoint::Completion, Endpoint::Chat);
    for (kind, field, logprobs) in [
        (completion, "logprobs", json!({"logprobs": 16})),
        (chat, "top_logprobs", json!({"logprobs": true, "top_logprobs": 16})),
    ] {
        let asked = |max_tokens: u32, stream: bool| {
            let mut changes = logprobs.clone();
            changes["max_tokens"] = json!(max_tokens);
            changes["stream"] = json!(stream);
            with(kind, changes).unwrap()
        };
        // 16 * 16384 = 1 << 18.
        assert!(asked(16384, false).fits(1).is_ok());
        assert!(asked(16384, true).fits(32).is_ok());
        let refusal = asked(16384, false).fits(2).unwrap_err();
        assert_eq!((refusal.status, refusal.param.as_deref()), (400, Some(field)));
        assert!(refusal.message.contains("524288 log-probs"), "{}", refusal.message);
        assert!(asked(16385, false).fits(1).is_err());
    }
    let plain = with(chat, json!({"logprobs": true, "max_tokens": 1_000_000})).unwrap();
    assert!(plain.fits(128).is_ok(), "the chosen tokens' log-probs are free");
}

#[test]
fn completions_echo_the_prompt_with_and_without_log_probs() {
    let (completion, chat) = (Endpoint::Completion, Endpoint::Chat);
    let parsed = |changes| {
        let ask = with(completion, changes).unwrap();
        (ask.echo, ask.prompt_top(), ask.sampling.max_new_tokens)
    };
    assert_eq!(parsed(json!({"echo": true})), (true, None, 16));
    assert_eq!(parsed(json!({"echo": false, "logprobs": 1})), (false, None, 16));
    for top in [0, 1, 20] {
        let asked = json!({"echo": true, "logprobs": top, "max_tokens": 0});
        assert_eq!(parsed(asked), (true, Some(top), 0));
    }
    assert_eq!(parsed(json!({"echo": true, "max_tokens": 0})), (true, None, 0));
    assert_eq!(
        refused(completion, json!({"echo": false, "max_tokens": 0})).0,
        "max_tokens"
    );
    let unsupported = ("echo".to_owned(), Some("unsupported_parameter"));
    assert_eq!(refused(chat, json!({"echo": true})), unsupported);
    assert_eq!(refused(chat, json!({"max_tokens": 0})).0, "max_tokens");
    assert_eq!(refused(completion, json!({"echo": "yes"})).0, "echo");
}

#[test]
fn too_many_prompt_log_probs_need_a_stream() {
    let of = |top: u8, n: u32, stream: bool, read: usize| {
        let asked = json!({"echo": true, "logprobs": top, "n": n, "stream": stream});
        let fits = with(Endpoint::Completion, asked).unwrap().repeats_fit(read);
        fits.map_err(|refusal| (refusal.status, refusal.param.unwrap_or_default()))
    };
    let most = 1 << 18;
    let too_many = Err((400, "echo".to_owned()));
    for (top, n, read) in [
        (0, 1, most),
        (1, 1, most),
        (2, 1, most / 2),
        (20, 1, most / 20),
        (4, 64, 1 << 10),
    ] {
        assert_eq!(of(top, n, false, read), Ok(()));
        assert_eq!(of(top, n, false, read + 1), too_many);
        assert_eq!(of(top, n, true, read + 1), Ok(()));
    }
    // An event of a stream holds the log-probs of one prompt.
    let event = |stream: bool, longest: usize| {
        let asked = json!({"echo": true, "logprobs": 20, "n": 64, "stream": stream});
        let fits = with(Endpoint::Completion, asked).unwrap().prompt_fits(longest);
        fits.map_err(|refusal| (refusal.status, refusal.param.unwrap_or_default()))
    };
    assert_eq!(event(true, most / 20), Ok(()));
    assert_eq!(event(true, most / 20 + 1), too_many);
    assert_eq!(
        event(false, most / 20 + 1),
        Ok(()),
        "checked together with all other log-probs"
    );
}

#[test]
fn too_long_repeated_prompts_need_a_stream() {
    let asked = |changes: Value| with(Endpoint::Completion, changes).unwrap();
    let of = |result: Result<(), RequestError>| {
        result.map_err(|refusal| (refusal.status, refusal.param.unwrap_or_default()))
    };
    // A MiB of text, 16 times.
    let text = "x".repeat(1 << 20);
    let echo =
        |n: u32, stream: bool| asked(json!({"prompt": text, "echo": true, "n": n, "stream": stream})).repeats_fit(9);
    assert_eq!(of(echo(16, false)), Ok(()));
    assert_eq!(of(echo(17, false)), Err((400, "echo".into())));
    assert_eq!(of(echo(17, true)), Ok(()));
    // 16 prompts of 1024 ids count as 256 KiB, 64 choices of each as 16 MiB.
    let ids = vec![vec![7; 1024]; 16];
    let echo = |n: u32| asked(json!({"prompt": ids, "echo": true, "n": n})).repeats_fit(16384);
    assert_eq!(of(echo(64)), Ok(()));
    assert_eq!(of(echo(65)), Err((400, "echo".into())));
    let parsed = |n: u32, read: usize| asked(json!({"return_token_ids": true, "n": n})).repeats_fit(read);
    assert_eq!(of(parsed(128, 4096)), Ok(()));
    assert_eq!(of(parsed(128, 4097)), Err((400, "return_token_ids".into())));
    let plain = asked(json!({"prompt": text, "n": 128})).repeats_fit(1 << 20);
    assert_eq!(of(plain), Ok(()), "nothing is repeated");
    let chat = with(Endpoint::Chat, json!({"return_token_ids": true, "n": 128})).unwrap();
    assert_eq!(of(chat.repeats_fit(1 << 20)), Ok(()), "once for all choices");
}
