//! Bodies of SGLang's routes.

use serde_json::{Map, Value, json};

use crate::engine::foreign::server::{About, CallEnd, Reply, ServerCall};
use crate::engine::foreign::trouble::{Trouble, clipped};

/// Returns the body for `/generate`.
pub(super) fn request(ask: &ServerCall) -> Value {
    let sampling = &ask.sampling;
    let mut params = json!({
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        // Off is -1.
        "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
        "min_p": sampling.min_p,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "max_new_tokens": ask.max_new_tokens,
        "stop_token_ids": &*ask.stop_ids,
        // Used only by a server with --enable-deterministic-inference. It takes a signed number.
        "sampling_seed": ask.seed >> 1,
        "skip_special_tokens": false,
        "no_stop_trim": true,
    });
    if !sampling.stop.is_empty() {
        params["stop"] = json!(sampling.stop);
    }
    let mut body = json!({
        "rid": ask.id,
        "input_ids": ask.prompt,
        "sampling_params": params,
        "return_logprob": true,
        "stream": false,
    });
    if ask.top > 0 {
        body["top_logprobs_num"] = json!(ask.top);
    }
    if let Some(adapter) = &ask.adapter {
        body["lora_path"] = json!(adapter);
    }
    body
}

/// Parses the answer of `/generate`. Ids are read together with their log-probs, so that the two
/// cannot differ.
///
/// # Errors
/// A part is missing, or is not a finite number.
pub(super) fn reply(answer: &Value, top: u32) -> Result<Reply, Trouble> {
    let meta = answer.get("meta_info").and_then(Value::as_object);
    let meta = meta.ok_or_else(|| missing("meta_info"))?;
    let end = end(meta)?;
    let chosen = match list(meta, "output_token_logprobs") {
        Some(list) => list.iter().map(pair).collect::<Result<Vec<_>, _>>()?,
        // Aborted before its prompt was computed: it reports no tokens.
        None if end == CallEnd::Aborted => Vec::new(),
        None => return Err(missing("meta_info.output_token_logprobs")),
    };
    let reported = answer.get("output_ids").and_then(Value::as_array);
    if let Some(reported) = reported.filter(|reported| reported.len() > chosen.len() && end != CallEnd::Aborted) {
        return Err(Trouble::Malformed(format!(
            "{} ids with {} log-probs",
            reported.len(),
            chosen.len()
        )));
    }
    let (ids, logprobs) = chosen.into_iter().unzip();
    let alternatives = list(meta, "output_top_logprobs").filter(|_| top > 0);
    let place = |place: &Value| {
        let list = place
            .as_array()
            .ok_or_else(|| missing("a place of output_top_logprobs"))?;
        list.iter().map(pair).collect::<Result<Vec<_>, _>>()
    };
    Ok(Reply {
        ids,
        logprobs,
        end,
        label: meta.get("weight_version").and_then(Value::as_str).map(str::to_owned),
        reused: meta.get("cached_tokens").and_then(Value::as_u64).unwrap_or(0) as usize,
        top: alternatives
            .into_iter()
            .flatten()
            .map(place)
            .collect::<Result<_, _>>()?,
    })
}

fn end(meta: &Map<String, Value>) -> Result<CallEnd, Trouble> {
    let reason = meta.get("finish_reason").and_then(|reason| reason.get("type"));
    match reason.and_then(Value::as_str) {
        Some("stop") => Ok(CallEnd::Stop),
        Some("length") => Ok(CallEnd::Length),
        Some("abort") => aborted(meta),
        other => Err(Trouble::Malformed(format!(
            "finish_reason.type is {}",
            clipped(&format!("{other:?}"))
        ))),
    }
}

/// Distinguishes aborts: one caused by a failure has a status, one that a client ordered has none.
fn aborted(meta: &Map<String, Value>) -> Result<CallEnd, Trouble> {
    let reported = |key| meta.get("finish_reason").and_then(|reason| reason.get(key));
    let Some(status) = reported("status_code").filter(|status| !status.is_null()) else {
        return Ok(CallEnd::Aborted);
    };
    let said = reported("message").and_then(Value::as_str).unwrap_or_default();
    Err(Trouble::Failing(clipped(&format!("it gave up with {status}: {said}"))))
}

/// Parses `[log-prob, id, text]`.
fn pair(entry: &Value) -> Result<(u32, f32), Trouble> {
    let logprob = entry.get(0).and_then(Value::as_f64).map(|logprob| logprob as f32);
    let logprob = logprob.filter(|logprob| logprob.is_finite());
    let id = entry
        .get(1)
        .and_then(Value::as_u64)
        .and_then(|id| u32::try_from(id).ok());
    match (id, logprob) {
        (Some(id), Some(logprob)) => Ok((id, logprob)),
        _ => Err(Trouble::Malformed(format!(
            "a token without a log-prob, or a log-prob without a token: {}",
            entry.to_string().chars().take(80).collect::<String>()
        ))),
    }
}

fn list<'a>(meta: &'a Map<String, Value>, key: &str) -> Option<&'a Vec<Value>> {
    meta.get(key).and_then(Value::as_array)
}

fn missing(what: &str) -> Trouble {
    Trouble::Malformed(format!("{what} is missing"))
}

/// Parses the answers of `/model_info` and `/server_info`.
///
/// # Errors
/// The server does not generate.
pub(super) fn about(model: &Value, server: &Value) -> Result<About, Trouble> {
    if model.get("is_generation") == Some(&Value::Bool(false)) {
        return Err(Trouble::Refused(
            "it does not generate: it serves a model of embeddings".into(),
        ));
    }
    label(model)?;
    let reported = |places: &[&str]| places.iter().find_map(|place| server.pointer(place)?.as_u64());
    // Its memory may hold less than the model's context.
    let context = [
        reported(&["/context_length", "/server_args/context_length"]),
        reported(&["/max_req_input_len"]),
    ];
    let context = context.into_iter().flatten().min();
    Ok(About {
        context: context.map(|tokens| tokens as usize),
        model: model
            .get("model_path")
            .and_then(Value::as_str)
            .unwrap_or("a model")
            .to_owned(),
    })
}

/// Returns the label of its weights.
///
/// # Errors
/// It does not report its weights.
pub(super) fn label(model: &Value) -> Result<String, Trouble> {
    let label = model.get("weight_version").and_then(Value::as_str);
    label.map(str::to_owned).ok_or_else(|| {
        Trouble::Malformed(
            "/model_info has no weight_version, so its weights would be unknown; use a later release".into(),
        )
    })
}

/// Checks the success that routes with an effect report in the body.
///
/// # Errors
/// It failed.
pub(super) fn success(answer: &Value) -> Result<(), Trouble> {
    if answer.get("success") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let said = ["message", "error_message"]
        .iter()
        .find_map(|key| answer.get(key)?.as_str());
    Err(Trouble::Refused(clipped(said.unwrap_or("it gives no reason"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::foreign::tests::ask;

    #[test]
    fn a_request_has_every_sampling_parameter() {
        let mut ask = ask();
        let body = request(&ask);
        assert_eq!(body["input_ids"], json!([1, 2]));
        assert_eq!(body["return_logprob"], true);
        assert_eq!(body["sampling_params"]["top_k"], -1);
        assert_eq!(body["sampling_params"]["max_new_tokens"], 3);
        assert_eq!(body["sampling_params"]["stop_token_ids"], json!([9]));
        assert_eq!(body["sampling_params"]["stop"], json!(["END"]));
        let seed = body["sampling_params"]["sampling_seed"].as_i64();
        assert!(seed.is_some_and(|seed| seed >= 0), "it is a signed number");
        assert!(body.get("lora_path").is_none() && body.get("top_logprobs_num").is_none());
        ask.adapter = Some("mine".into());
        ask.top = 5;
        let body = request(&ask);
        assert_eq!(
            (&body["lora_path"], &body["top_logprobs_num"]),
            (&json!("mine"), &json!(5))
        );
    }

    fn answer() -> Value {
        json!({
            "text": " a b",
            "output_ids": [5, 9],
            "meta_info": {
                "id": "x",
                "finish_reason": {"type": "stop", "matched": 9},
                "prompt_tokens": 2,
                "completion_tokens": 2,
                "cached_tokens": 1,
                "weight_version": "run/a/1.2",
                "output_token_logprobs": [[-0.5, 5, null], [-1.25, 9, null]],
                "output_top_logprobs": [[[-0.5, 5, null], [-2.0, 6, null]], [[-1.25, 9, null]]],
            },
        })
    }

    #[test]
    fn a_reply_is_read() {
        let read = reply(&answer(), 2).unwrap();
        assert_eq!(
            (read.ids, read.logprobs, read.end, read.reused),
            (vec![5, 9], vec![-0.5, -1.25], CallEnd::Stop, 1)
        );
        assert_eq!(read.label.as_deref(), Some("run/a/1.2"));
        assert_eq!(read.top, [vec![(5, -0.5), (6, -2.0)], vec![(9, -1.25)]]);
        for (reason, end) in [("length", CallEnd::Length), ("abort", CallEnd::Aborted)] {
            let mut answer = answer();
            answer["meta_info"]["finish_reason"] = json!({"type": reason, "message": "x"});
            assert_eq!(reply(&answer, 0).unwrap().end, end);
        }
    }

    #[test]
    fn a_reply_without_a_needed_part_is_rejected() {
        let mut early = answer();
        early["meta_info"] = json!({"finish_reason": {"type": "abort", "message": "Abort before prefill"}});
        let read = reply(&early, 0).unwrap();
        assert!(read.ids.is_empty() && read.end == CallEnd::Aborted);
        early["meta_info"]["finish_reason"]["status_code"] = json!(503);
        assert!(matches!(reply(&early, 0), Err(Trouble::Failing(said)) if said.contains("503")));
        let spoil: [fn(&mut Value); 7] = [
            |answer| answer["meta_info"] = Value::Null,
            |answer| answer["meta_info"]["output_token_logprobs"] = Value::Null,
            |answer| answer["meta_info"]["output_token_logprobs"][0][0] = Value::Null,
            |answer| answer["meta_info"]["output_token_logprobs"][0][0] = json!("NaN"),
            |answer| answer["meta_info"]["output_token_logprobs"][0][1] = json!(-1),
            |answer| answer["meta_info"]["output_token_logprobs"] = json!([[-0.5, 5, null]]),
            |answer| answer["meta_info"]["finish_reason"] = Value::Null,
        ];
        for spoil in spoil {
            let mut answer = answer();
            spoil(&mut answer);
            assert!(matches!(reply(&answer, 0), Err(Trouble::Malformed(_))), "{answer}");
        }
    }

    #[test]
    fn its_description_of_itself_is_read() {
        let model = json!({"model_path": "m", "is_generation": true, "weight_version": "default"});
        assert_eq!(about(&model, &json!({"context_length": 64})).unwrap().context, Some(64));
        assert_eq!(
            about(&model, &json!({"context_length": null, "max_req_input_len": 40}))
                .unwrap()
                .context,
            Some(40)
        );
        let both = json!({"context_length": 64, "max_req_input_len": 40});
        assert_eq!(
            about(&model, &both).unwrap().context,
            Some(40),
            "there is no room for more"
        );
        assert_eq!(about(&model, &Value::Null).unwrap().context, None);
        let old = about(&json!({"model_path": "m"}), &Value::Null).unwrap_err();
        assert!(old.to_string().contains("later release"), "{old}");
        let embeds = json!({"is_generation": false, "weight_version": "default"});
        assert!(matches!(about(&embeds, &Value::Null), Err(Trouble::Refused(_))));
        assert!(success(&json!({"success": true, "message": ""})).is_ok());
        let error = success(&json!({"success": false, "message": "shape mismatch"})).unwrap_err();
        assert!(error.to_string().contains("shape mismatch"));
    }
}
