//! Requests without a right to an answer, or too many of them.

use super::*;
use crate::http::gate::FrontPhase;

#[tokio::test]
async fn a_front_with_a_token_answers_nothing_without_it() {
    let front = front(Some(SECRET));
    for path in ["/v1/models", "/v1/models/a", "/", "/v1/completions"] {
        let (status, body) = ask(&front, get(path)).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (401, &"invalid_api_key".into()),
            "{path}"
        );
        let wrong = get(path).insert_header(("authorization", "Bearer 0123456789abcdeg"));
        assert_eq!(ask(&front, wrong).await.0, 401, "{path}");
    }
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 401);
    let shown = ("authorization", "Bearer 0123456789abcdef");
    assert_eq!(
        ask(&front, post("/v1/chat/completions", CHAT).insert_header(shown))
            .await
            .0,
        200
    );
    let elsewhere = get("/v1/models")
        .insert_header(shown)
        .insert_header(("host", "gpu-7.example"));
    assert_eq!(
        ask(&front, elsewhere).await.0,
        200,
        "a client with the token may use any host name"
    );
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let front = front(None);
    let rebound = post("/v1/chat/completions", CHAT).insert_header(("host", "evil.example:8001"));
    let (status, body) = ask(&front, rebound).await;
    assert_eq!((status, &body["error"]["code"]), (403, &"invalid_host".into()));
    let simple = post("/v1/chat/completions", CHAT).insert_header(("content-type", "text/plain"));
    assert_eq!(ask(&front, simple).await.0, 415);
    let preflight = TestRequest::with_uri("/v1/chat/completions").method(actix_web::http::Method::OPTIONS);
    let (status, _) = ask(&front, preflight.insert_header(("host", "127.0.0.1"))).await;
    assert_eq!(status, 405, "nothing is allowed to other sites");
}

#[tokio::test]
async fn a_request_too_many_gets_429_and_one_too_late_503() {
    let front = front(None);
    let place = front.gate.enter().unwrap();
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 429);
    drop(place);
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 200);
    front.gate.set(FrontPhase::Closing);
    assert_eq!(ask(&front, post("/v1/chat/completions", CHAT)).await.0, 503);
}

#[tokio::test]
async fn a_client_that_is_too_fast_learns_when_to_retry() {
    let mut slow = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    slow.rates = FrontRates::new(Some(1), None);
    let slow = Data::new(slow);
    assert_eq!(ask(&slow, post("/v1/chat/completions", CHAT)).await.0, 200);
    let app = init_service(App::new().app_data(slow.clone()).configure(routes)).await;
    let response: ServiceResponse = call_service(&app, post("/v1/chat/completions", CHAT).to_request()).await;
    assert_eq!(response.status(), 429);
    let after = response
        .headers()
        .get("retry-after")
        .unwrap()
        .to_str()
        .unwrap()
        .parse::<u64>()
        .unwrap();
    assert!((1..=60).contains(&after), "{after}");
    let body: Value = read_body_json(response).await;
    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
    let models = ask(&slow, get("/v1/models")).await;
    assert_eq!(models.0, 200, "the model list has no rate limit");
    let mut few = Arc::try_unwrap(front(None).into_inner()).unwrap_or_else(|_| panic!("shared"));
    few.rates = FrontRates::new(None, Some(20));
    let few = Data::new(few);
    let body = r#"{"model": "a", "prompt": "x", "max_tokens": 50}"#;
    assert_eq!(ask(&few, post("/v1/completions", body)).await.0, 400);
}
