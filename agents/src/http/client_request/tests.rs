use serde_json::json;

use super::*;

fn read(kind: Endpoint, body: &Value) -> Result<ClientRequest, RequestError> {
    ClientRequest::read(kind, body.to_string().as_bytes(), &SamplingConfig::default())
}

fn with(kind: Endpoint, changes: Value) -> Result<ClientRequest, RequestError> {
    let mut body = match kind {
        Endpoint::Completion => json!({"model": "a", "prompt": "x"}),
        Endpoint::Chat => json!({"model": "a", "messages": [{"role": "user", "content": "x"}]}),
    };
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    read(kind, &body)
}

/// Returns the rejected field and the code.
fn refused(kind: Endpoint, changes: Value) -> (String, Option<&'static str>) {
    let refusal = with(kind, changes.clone()).expect_err(&changes.to_string());
    assert_eq!(refusal.status, 400);
    let param = refusal.param.clone().unwrap_or_default();
    assert!(refusal.message.starts_with(&param), "{}", refusal.message);
    (param, refusal.code)
}

#[test]
fn absent_fields_have_the_agent_s_sampling_values() {
    let usual = SamplingConfig {
        temperature: 0.7,
        max_new_tokens: 99,
        ..SamplingConfig::default()
    };
    let chat = json!({"model": "a", "messages": [{"role": "user", "content": "x"}]});
    let ask = ClientRequest::read(Endpoint::Chat, chat.to_string().as_bytes(), &usual).unwrap();
    assert_eq!((ask.sampling.temperature, ask.sampling.max_new_tokens), (0.7, 99));
    assert_eq!((ask.n, ask.seed, ask.stream, ask.logprobs), (1, None, false, false));
    let ask = with(Endpoint::Completion, json!({})).unwrap();
    assert_eq!((ask.sampling.temperature, ask.sampling.max_new_tokens), (1.0, 16));
}

#[test]
fn every_supported_field_is_read() {
    let said = json!({
        "max_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "n": 3, "stop": ["a", "b"],
        "stop_token_ids": [7, 0], "include_stop_str_in_output": true, "seed": -1, "stream": true, "stream_options": {"include_usage": true}, "return_token_ids": true, "user": "me",
    });
    for kind in [Endpoint::Completion, Endpoint::Chat] {
        let ask = with(kind, said.clone()).unwrap();
        let sampling = Sampling {
            temperature: 0.0,
            top_p: 0.5,
            top_k: 0,
            min_p: 0.1,
            max_new_tokens: 7,
            max_context: None,
            stop: Vec::new(),
        };
        assert_eq!(ask.sampling, sampling);
        assert_eq!((ask.n, ask.seed), (3, Some(u64::MAX)));
        let stop = Stopping {
            texts: vec!["a".into(), "b".into()],
            ids: vec![7, 0],
            kept: true,
        };
        assert_eq!(ask.stop, stop);
        assert!(ask.stream && ask.include_usage && ask.token_ids);
    }
    let parsed = |kind, changes| with(kind, changes).map(|ask| (ask.logprobs, ask.top)).unwrap();
    for (changes, wanted) in [
        (json!({}), (false, 0)),
        (json!({"logprobs": 0, "top_logprobs": 0}), (true, 0)),
        (json!({"logprobs": 5}), (true, 5)),
        (json!({"logprobs": 20}), (true, 20)),
    ] {
        assert_eq!(parsed(Endpoint::Completion, changes), wanted);
    }
    for (changes, wanted) in [
        (json!({"logprobs": false, "top_logprobs": 0}), (false, 0)),
        (json!({"logprobs": true}), (true, 0)),
        (json!({"logprobs": true, "top_logprobs": 20}), (true, 20)),
    ] {
        assert_eq!(parsed(Endpoint::Chat, changes), wanted);
    }
    let ask = with(Endpoint::Chat, json!({"max_completion_tokens": 5, "max_tokens": 5})).unwrap();
    assert_eq!(ask.sampling.max_new_tokens, 5);
}

#[test]
fn prompts_have_four_forms() {
    let inputs = |prompt: Value| with(Endpoint::Completion, json!({"prompt": prompt})).unwrap().inputs;
    let text = |text: &str| Prompt::Text(text.into());
    assert_eq!(inputs(json!("x")), [text("x")]);
    assert_eq!(inputs(json!(["x", "y"])), [text("x"), text("y")]);
    assert_eq!(inputs(json!([1, 2])), [Prompt::Ids(vec![1, 2])]);
    assert_eq!(
        inputs(json!([[1, 2], [3]])),
        [Prompt::Ids(vec![1, 2]), Prompt::Ids(vec![3])]
    );
    for wrong in [
        json!(null),
        json!([]),
        json!(1),
        json!({}),
        json!([1, "x"]),
        json!([-1]),
        json!([1.5]),
        json!([4_294_967_296_u64]),
        json!([[1], 2]),
    ] {
        assert_eq!(refused(Endpoint::Completion, json!({"prompt": wrong})).0, "prompt");
    }
}

#[test]
fn messages_are_texts_of_three_roles() {
    let messages = json!([
        {"role": "developer", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": null, "tool_calls": null},
        {"role": "user", "content": ""},
    ]);
    let ask = with(
        Endpoint::Chat,
        json!({"messages": messages, "add_generation_prompt": false}),
    )
    .unwrap();
    let Prompt::Chat { messages, generation } = &ask.inputs[0] else {
        panic!("{ask:?}")
    };
    let said: Vec<_> = messages.iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
    assert_eq!(
        said,
        [("system", "s"), ("user", "a\nb"), ("assistant", "c"), ("user", "")]
    );
    assert!(!generation);

    let place = |message: Value| refused(Endpoint::Chat, json!({"messages": [message]}));
    let unsupported = Some("unsupported_parameter");
    let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
    assert_eq!(place(image), ("messages[0].content[0].type".into(), unsupported));
    assert_eq!(
        place(json!({"role": "tool", "content": "x"})),
        ("messages[0].role".into(), unsupported)
    );
    let calls = json!({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]});
    assert_eq!(place(calls), ("messages[0].tool_calls".into(), unsupported));
    assert_eq!(
        place(json!({"role": "user", "content": "x", "type": "image"})).0,
        "messages[0].type"
    );
    let silent = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]});
    assert_eq!(place(silent), ("messages[0].tool_calls".into(), unsupported));
    assert_eq!(
        place(json!({"role": "assistant", "content": null, "refusal": "no"})).0,
        "messages[0].refusal"
    );
    assert_eq!(
        place(json!({"role": "user", "content": "x", "odd": 1})).0,
        "messages[0].odd"
    );
    assert_eq!(place(json!({"role": "user"})).0, "messages[0].content");
    assert_eq!(place(json!({"role": "king", "content": "x"})).0, "messages[0].role");
    assert_eq!(refused(Endpoint::Chat, json!({"messages": []})).0, "messages");
}

#[test]
fn unsupported_fields_are_rejected_by_name() {
    for (field, value) in [
        ("tools", json!([{"type": "function"}])),
        ("functions", json!([{}])),
        ("logit_bias", json!({"5": 1})),
        ("frequency_penalty", json!(0.1)),
        ("response_format", json!({"type": "json_object"})),
        ("bad_words", json!(["x"])),
        ("best_of", json!(2)),
        ("ignore_eos", json!(true)),
    ] {
        for kind in [Endpoint::Completion, Endpoint::Chat] {
            assert_eq!(
                refused(kind, json!({field: value})),
                (field.into(), Some("unsupported_parameter"))
            );
        }
    }
    let (completion, chat) = (Endpoint::Completion, Endpoint::Chat);
    for (kind, changes, field) in [
        (completion, json!({"logprobs": 21}), "logprobs"),
        (completion, json!({"logprobs": -1}), "logprobs"),
        (completion, json!({"logprobs": true}), "logprobs"),
        (completion, json!({"logprobs": 2, "top_logprobs": 2}), "top_logprobs"),
        (chat, json!({"logprobs": 2}), "logprobs"),
        (chat, json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (chat, json!({"logprobs": true, "top_logprobs": -1}), "top_logprobs"),
        (chat, json!({"logprobs": false, "top_logprobs": 2}), "top_logprobs"),
        (chat, json!({"top_logprobs": 2}), "top_logprobs"),
    ] {
        assert_eq!(refused(kind, changes).0, field);
    }
    assert_eq!(
        refused(Endpoint::Chat, json!({"temprature": 1})),
        ("temprature".into(), Some("unknown_parameter"))
    );
    let messages = json!({"messages": [{"role": "user", "content": "x"}]});
    assert_eq!(refused(Endpoint::Completion, messages).0, "messages");
    let idle =
        json!({"tools": [], "logit_bias": {}, "frequency_penalty": 0.0, "echo": false, "best_of": 1, "suffix": null});
    assert!(with(Endpoint::Completion, idle).is_ok());
}

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

#[test]
fn client_defaults_change_nothing() {
    let idle = json!({
        "stop": null, "stop_token_ids": [], "include_stop_str_in_output": false, "skip_special_tokens": true,
        "spaces_between_special_tokens": true, "chat_template_kwargs": {}, "bad_words": [], "use_beam_search": false,
        "length_penalty": 1.0, "priority": 0, "repetition_penalty": 1.0, "min_tokens": 0, "ignore_eos": false, "echo": false,
    });
    for kind in [Endpoint::Completion, Endpoint::Chat] {
        assert_eq!(with(kind, idle.clone()).unwrap(), with(kind, json!({})).unwrap());
    }
    let (completion, chat) = (Endpoint::Completion, Endpoint::Chat);
    let clients =
        json!({"tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "verbosity": "medium", "n": 1.0});
    for kind in [completion, chat] {
        assert_eq!(with(kind, clients.clone()).unwrap(), with(kind, json!({})).unwrap());
    }
    let bare = with(chat, json!({"add_special_tokens": false})).unwrap();
    assert_eq!(bare, with(chat, json!({})).unwrap());
    assert!(!with(completion, json!({"add_special_tokens": false})).unwrap().lead);
    assert_eq!(
        refused(chat, json!({"add_special_tokens": true})).0,
        "add_special_tokens"
    );
    assert!(!with(completion, json!({"logprobs": false})).unwrap().logprobs);
    for choice in [
        json!("required"),
        json!({"type": "function", "function": {"name": "f"}}),
    ] {
        assert_eq!(refused(chat, json!({"tool_choice": choice})).0, "tool_choice");
    }
}

#[test]
fn messages_as_clients_send_them_are_their_texts() {
    let plain = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b"},
    ]);
    let dressed = json!([
        {"role": "user", "content": "a", "type": "text", "name": "me"},
        {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null, "tool_calls": [],
         "function_call": null, "provider_specific_fields": {"refusal": null}, "reasoning_content": ""},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}, "annotations": []}]},
    ]);
    let of = |messages: Value| with(Endpoint::Chat, json!({"messages": messages})).unwrap().inputs;
    assert_eq!(of(dressed), of(plain.clone()));
    assert_eq!(
        of(json!([{"role": "assistant"}])),
        of(json!([{"role": "assistant", "content": ""}]))
    );
}
