//! Fields of a request: supported, absent and rejected ones.

use super::*;

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
