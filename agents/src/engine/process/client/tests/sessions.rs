//! Which agents may open a session with an engine process.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_serves_one_run_and_says_so() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (first, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(&scene.prepared.served().unwrap(), version(9)).unwrap();
    serves(&*first, version(9)).await;
    let facts = model_match::facts(&scene.prepared.shape, &scene.prepared.text);
    let hello = |run: &str, agent: &str| Hello {
        schema: codec::SCHEMA,
        run: run.into(),
        agent: agent.into(),
        weights: "http://127.0.0.1:1".into(),
        model: facts.clone(),
    };
    let client = link::client(Some(SILENCE)).unwrap();
    let ask = async |hello: Hello| {
        let url = format!("http://{}/v1/session", serving.address);
        let request = client.post(&url).header("content-type", "application/json");
        let answer = link::ask(&Secret::default(), request.body(codec::encode_json(&hello)), &url).await;
        answer.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let agent = scene.agent.as_str();
    assert!(ask(hello("r-2", agent)).await.contains("r-1"));
    assert!(ask(hello("r-1", "other")).await.contains("engine of agent"));
    for theirs in [codec::SCHEMA - 1, codec::SCHEMA + 1] {
        let strange = Hello {
            schema: theirs,
            ..hello("r-1", agent)
        };
        let reason = ask(strange).await;
        let both = format!("schema {} and its agent {theirs}: run the same release", codec::SCHEMA);
        assert!(reason.contains(&both), "{reason}");
    }
    let outside = Hello {
        weights: "http://weights.example.org".into(),
        ..hello("r-1", agent)
    };
    assert!(ask(outside).await.contains("plaintext"));
    // With another rotary base or other tokens, names, shapes and values of the weights are the
    // same.
    for (name, value) in [
        ("rope_theta", "77.0"),
        ("stop ids", "[1]"),
        ("tokens", "others"),
        ("the beginning of an answer", "<think>"),
    ] {
        assert!(facts.contains_key(name), "{name} is compared");
        let mut other = hello("r-1", agent);
        other.model.insert(name.into(), value.into());
        let reason = ask(other).await;
        assert!(reason.contains(name) && reason.contains("model folder"), "{reason}");
    }
    // No rejected agent took the session.
    assert_eq!(play(&*first, vec![job(1, 3)], false).await.len(), 1);
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_token_gets_neither_weights_nor_work() {
    let scene = scene();
    let secret = Secret::new("0123456789abcdef").unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let serving = server::start_with(&scene.config, &scene.agent, address, secret.clone()).await;
    let serving = serving.unwrap();
    let settings = &scene.prepared.settings.engine;
    let weights = weight_server::serve(&scene.agent, settings, &secret, (Arc::default(), None)).unwrap();
    let (engine, client) = (
        format!("http://{}", serving.address),
        link::client(Some(SILENCE)).unwrap(),
    );
    for request in [
        client.get(format!("{weights}/v1/weights")),
        client.get(format!("{engine}/health")),
        client.post(format!("{engine}/v1/session")),
        client.post(format!("{engine}/v1/commands")),
    ] {
        let other = Secret::new("0123456789abcdeX").unwrap();
        for wrong in [Secret::default(), other] {
            let answer = wrong.show(request.try_clone().unwrap()).send().await.unwrap();
            assert_eq!(answer.status(), 401);
            let url = engine.replace("http://", "http://me:s3cret@");
            let asked = request.try_clone().unwrap();
            let error = link::ask(&wrong, asked, &url).await.unwrap_err().to_string();
            let state = if wrong.is_set() {
                "is set in this process"
            } else {
                "is not set in this process"
            };
            assert!(error.starts_with(&format!("{engine}: answered 401")), "{error}");
            assert!(error.contains(&format!("DYAD_ENGINE_TOKEN {state}")), "{error}");
            assert!(!error.contains("0123456789") && !error.contains("s3cret"), "{error}");
        }
        let answer = secret.show(request).send().await.unwrap();
        assert_ne!(answer.status(), 401, "{answer:?}");
    }
    serving.close().await;
}
