//! Bodies of vLLM's routes.

use serde_json::{Value, json};

use crate::engine::foreign::server::{About, CallEnd, Reply, ServerCall};
use crate::engine::foreign::trouble::{Trouble, clipped};

/// Returns the body for `/v1/completions`. Every sampling parameter is set: a server takes others
/// from the model's `generation_config.json`.
pub(super) fn request(ask: &ServerCall, model: &str) -> Value {
    let sampling = &ask.sampling;
    let mut body = json!({
        "request_id": ask.id,
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": &*ask.stop_ids,
        // It takes a signed number.
        "seed": ask.seed >> 1,
        "n": 1,
        "stream": false,
        "add_special_tokens": false,
        "skip_special_tokens": false,
        "include_stop_str_in_output": true,
        "logprobs": ask.top,
        "return_tokens_as_token_ids": true,
        "return_token_ids": true,
        "return_weight_versions": true,
    });
    if !sampling.stop.is_empty() {
        body["stop"] = json!(sampling.stop);
    }
    body
}

/// Parses the answer of `/v1/completions`.
///
/// # Errors
/// A part is missing, is not a finite number, or contradicts the rest.
pub(super) fn reply(answer: &Value, top: u32) -> Result<Reply, Trouble> {
    let choice = answer.pointer("/choices/0").ok_or_else(|| missing("choices[0]"))?;
    let end = end(choice)?;
    let reported = choice.pointer("/logprobs/token_logprobs").and_then(Value::as_array);
    let (ids, logprobs) = match reported {
        Some(list) => (ids(choice)?, list.iter().map(logprob).collect::<Result<Vec<_>, _>>()?),
        // Aborted before its prompt was computed: it reports no tokens.
        None if end == CallEnd::Aborted => Default::default(),
        None => return Err(missing("logprobs.token_logprobs")),
    };
    if ids.len() != logprobs.len() {
        return Err(Trouble::Malformed(format!(
            "{} ids with {} log-probs",
            ids.len(),
            logprobs.len()
        )));
    }
    let places = choice.pointer("/logprobs/top_logprobs").and_then(Value::as_array);
    let places = places.into_iter().flatten().filter(|_| top > 0);
    let cached = answer.pointer("/usage/prompt_tokens_details/cached_tokens");
    Ok(Reply {
        ids,
        logprobs,
        end,
        label: versions(choice),
        reused: cached.and_then(Value::as_u64).unwrap_or(0) as usize,
        top: places.map(alternatives).collect::<Result<_, _>>()?,
    })
}

fn end(choice: &Value) -> Result<CallEnd, Trouble> {
    match choice.get("finish_reason").and_then(Value::as_str) {
        Some("stop") => Ok(CallEnd::Stop),
        Some("length") => Ok(CallEnd::Length),
        Some("abort") => Ok(CallEnd::Aborted),
        other => Err(Trouble::Malformed(format!(
            "finish_reason is {}",
            clipped(&format!("{other:?}"))
        ))),
    }
}

/// Returns the ids as numbers, or from the tokens' names in releases without them.
fn ids(choice: &Value) -> Result<Vec<u32>, Trouble> {
    if let Some(ids) = choice.get("token_ids").and_then(Value::as_array) {
        let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = ids.iter().map(id).collect();
        return ids.ok_or_else(|| Trouble::Malformed("token_ids has an entry that is not an id".into()));
    }
    let tokens = choice.pointer("/logprobs/tokens").and_then(Value::as_array);
    let tokens = tokens.ok_or_else(|| missing("token_ids"))?;
    tokens
        .iter()
        .map(|token| id_of(token.as_str().unwrap_or_default()))
        .collect()
}

/// Parses `token_id:ID`.
fn id_of(name: &str) -> Result<u32, Trouble> {
    let id = name.strip_prefix("token_id:").and_then(|id| id.parse().ok());
    id.ok_or_else(|| {
        Trouble::Malformed(format!(
            "a token is named {:?} instead of its id",
            name.chars().take(40).collect::<String>()
        ))
    })
}

fn logprob(value: &Value) -> Result<f32, Trouble> {
    let logprob = value
        .as_f64()
        .map(|logprob| logprob as f32)
        .filter(|logprob| logprob.is_finite());
    logprob.ok_or_else(|| Trouble::Malformed("a token without a log-prob".into()))
}

fn alternatives(place: &Value) -> Result<Vec<(u32, f32)>, Trouble> {
    let place = place.as_object().ok_or_else(|| missing("a place of top_logprobs"))?;
    place
        .iter()
        .map(|(name, value)| Ok((id_of(name)?, logprob(value)?)))
        .collect()
}

/// Returns the version that made all of it. Several versions are joined in one text, which is never
/// a label.
fn versions(choice: &Value) -> Option<String> {
    let mut versions: Vec<&str> = choice
        .get("weight_versions")?
        .as_array()?
        .iter()
        .map(|span| span.get("version").and_then(Value::as_str).unwrap_or("none"))
        .collect();
    versions.dedup();
    (!versions.is_empty()).then(|| versions.join(", "))
}

fn missing(what: &str) -> Trouble {
    Trouble::Malformed(format!("{what} is missing"))
}

/// Parses the model's name and description from `/v1/models`. Adapters are listed too, with a
/// parent.
///
/// # Errors
/// It serves no model.
pub(super) fn about(models: &Value) -> Result<(String, About), Trouble> {
    let list = models
        .get("data")
        .and_then(Value::as_array)
        .ok_or_else(|| missing("data"))?;
    let base = list.iter().find(|model| model.get("parent").is_none_or(Value::is_null));
    let base = base.ok_or_else(|| missing("a model"))?;
    let name = base
        .get("id")
        .and_then(Value::as_str)
        .ok_or_else(|| missing("a model's id"))?;
    let about = About {
        context: base
            .get("max_model_len")
            .and_then(Value::as_u64)
            .map(|tokens| tokens as usize),
        model: base.get("root").and_then(Value::as_str).unwrap_or(name).to_owned(),
    };
    Ok((name.to_owned(), about))
}

/// Parses the answer of `/reset_prefix_cache`: empty, or a success flag.
///
/// # Errors
/// The cache was not emptied.
pub(super) fn emptied(answer: &str) -> Result<(), Trouble> {
    let outcome: Value = serde_json::from_str(answer).unwrap_or_default();
    if outcome.get("success") == Some(&Value::Bool(false)) {
        return Err(Trouble::Failing("it did not empty its prefix cache".into()));
    }
    Ok(())
}

/// Parses `/weight_info`; weights without a version have the label `none`.
///
/// # Errors
/// The server does not report versions.
pub(super) fn label(answer: &Value) -> Result<String, Trouble> {
    let label = answer.get("weight_version").ok_or_else(|| missing("weight_version"))?;
    Ok(label.as_str().unwrap_or("none").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::foreign::tests::ask;

    #[test]
    fn a_request_has_every_sampling_parameter() {
        let body = request(&ask(), "m");
        assert_eq!((&body["model"], &body["prompt"]), (&json!("m"), &json!([1, 2])));
        assert_eq!(
            (&body["top_k"], &body["max_tokens"], &body["logprobs"]),
            (&json!(0), &json!(3), &json!(0))
        );
        assert_eq!((&body["stop_token_ids"], &body["stop"]), (&json!([9]), &json!(["END"])));
        assert_eq!(
            (&body["skip_special_tokens"], &body["add_special_tokens"]),
            (&json!(false), &json!(false))
        );
        assert!(
            body["seed"].as_i64().is_some_and(|seed| seed >= 0),
            "it is a signed number"
        );
    }

    fn answer() -> Value {
        json!({
            "id": "cmpl-x",
            "object": "text_completion",
            "choices": [{
                "index": 0,
                "text": " a b",
                "logprobs": {
                    "tokens": ["token_id:5", "token_id:9"],
                    "token_logprobs": [-0.5, -1.25],
                    "top_logprobs": [{"token_id:5": -0.5, "token_id:6": -2.0}, {"token_id:9": -1.25}],
                    "text_offset": [0, 2],
                },
                "finish_reason": "stop",
                "stop_reason": 9,
                "token_ids": [5, 9],
                "prompt_token_ids": [1, 2],
                "weight_versions": [{"version": "run/a/1.2", "start": 0, "end": 2}],
            }],
            "usage": {"prompt_tokens": 2, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
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
        let mut old = answer();
        let choice = old["choices"][0].as_object_mut().unwrap();
        choice.remove("token_ids");
        choice.remove("weight_versions");
        choice["finish_reason"] = json!("abort");
        let read = reply(&old, 0).unwrap();
        assert_eq!((read.ids, read.end, read.label), (vec![5, 9], CallEnd::Aborted, None));
    }

    #[test]
    fn weights_of_several_versions_match_no_label() {
        let mut answer = answer();
        answer["choices"][0]["weight_versions"] = json!([{"version": "a"}, {"version": "b"}]);
        assert_eq!(reply(&answer, 0).unwrap().label.as_deref(), Some("a, b"));
    }

    #[test]
    fn a_reply_without_a_needed_part_is_rejected() {
        let mut early = answer();
        early["choices"][0]["finish_reason"] = json!("abort");
        early["choices"][0]["logprobs"] = Value::Null;
        let read = reply(&early, 0).unwrap();
        assert!(read.ids.is_empty() && read.end == CallEnd::Aborted);
        let spoil: [fn(&mut Value); 7] = [
            |answer| answer["choices"] = json!([]),
            |answer| answer["choices"][0]["logprobs"] = Value::Null,
            |answer| answer["choices"][0]["logprobs"]["token_logprobs"][0] = Value::Null,
            |answer| answer["choices"][0]["logprobs"]["token_logprobs"] = json!([-0.5]),
            |answer| answer["choices"][0]["token_ids"] = json!([5, -9]),
            |answer| answer["choices"][0]["finish_reason"] = json!("error"),
            |answer| {
                answer["choices"][0]["token_ids"] = Value::Null;
                answer["choices"][0]["logprobs"]["tokens"] = json!([" a", " b"]);
            },
        ];
        for spoil in spoil {
            let mut answer = answer();
            spoil(&mut answer);
            assert!(matches!(reply(&answer, 0), Err(Trouble::Malformed(_))), "{answer}");
        }
    }

    #[test]
    fn its_description_of_itself_is_read() {
        let models = json!({"data": [
            {"id": "adapter", "root": "/w", "parent": "m", "max_model_len": null},
            {"id": "m", "root": "/models/m", "parent": null, "max_model_len": 64},
        ]});
        let (name, about) = super::about(&models).unwrap();
        assert_eq!(
            (name.as_str(), about.context, about.model.as_str()),
            ("m", Some(64), "/models/m")
        );
        assert!(super::about(&json!({"data": []})).is_err());
        assert_eq!(label(&json!({"weight_version": null})).unwrap(), "none");
        assert!(label(&json!({})).is_err());
        assert!(emptied("").is_ok() && emptied(r#"{"success": true}"#).is_ok());
        assert!(emptied(r#"{"success": false}"#).is_err_and(|trouble| trouble.may_pass()));
    }
}
