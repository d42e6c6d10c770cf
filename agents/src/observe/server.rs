//! Answers `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use anyhow::Context;

use super::plan::MetricsPlan;
use super::{CONTENT_TYPE, Observer, targets};
use crate::base::log_scope;
use crate::base::request_guard::{RequestDenied, RequestGuard};
use crate::run_folder::RunFolder;

/// The most open connections: a few scrapers.
const CONNECTIONS: usize = 16;
/// The time within which a request's head must arrive.
const HEAD: Duration = Duration::from_secs(5);

/// The state that answers need.
struct Shown {
    observer: Observer,
    guard: RequestGuard,
}

/// The metrics of a process while they are served.
pub struct ServedMetrics {
    pub address: SocketAddr,
    folder: Option<RunFolder>,
    component: String,
    server: ServerHandle,
}

/// Begins to serve. Writes the address into the run folder, if this machine has it.
pub(super) fn serve(
    plan: MetricsPlan,
    observer: Observer,
    folder: Option<&RunFolder>,
    component: &str,
) -> anyhow::Result<ServedMetrics> {
    let MetricsPlan { address, token } = plan;
    let state = Data::new(Shown {
        observer,
        guard: RequestGuard::new(token, Vec::new()),
    });
    let server = HttpServer::new(move || App::new().app_data(state.clone()).configure(routes))
        .workers(1)
        .max_connections(CONNECTIONS)
        .client_request_timeout(HEAD)
        .disable_signals()
        .shutdown_timeout(1)
        .bind(address)
        .with_context(|| {
            format!("the metrics cannot listen on {address}: is the port taken? port 0 takes a free one")
        })?;
    let address = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let handle = server.handle();
    log_scope::spawn(server);
    if let Some(folder) = folder {
        targets::add(folder, component, address)
            .with_context(|| format!("writing prometheus.json in {}", folder.path().display()))?;
    }
    tracing::info!(component, %address, "metrics are at /metrics");
    Ok(ServedMetrics {
        address,
        folder: folder.cloned(),
        component: component.to_owned(),
        server: handle,
    })
}

impl ServedMetrics {
    pub(super) async fn close(self) {
        let removed = self
            .folder
            .map_or(Ok(()), |folder| targets::remove(&folder, &self.component));
        if let Err(error) = removed {
            tracing::warn!(%error, "prometheus.json keeps an address that nothing answers: remove its entry");
        }
        self.server.stop(false).await;
    }
}

fn routes(config: &mut ServiceConfig) {
    config
        .route("/metrics", web::get().to(metrics))
        .route("/healthz", web::get().to(health))
        .route("/readyz", web::get().to(readiness))
        .default_service(web::to(HttpResponse::NotFound));
}

async fn metrics(request: HttpRequest, shown: Data<Shown>) -> HttpResponse {
    if let Err(denied) = check(&request, &shown.guard, true) {
        return refusal(denied);
    }
    HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .body(shown.observer.page())
}

async fn health(request: HttpRequest, shown: Data<Shown>) -> HttpResponse {
    match check(&request, &shown.guard, false) {
        Ok(()) => HttpResponse::Ok().body("ok\n"),
        Err(denied) => refusal(denied),
    }
}

/// Answers 503 until the process does its work, and while its broker is away.
async fn readiness(request: HttpRequest, shown: Data<Shown>) -> HttpResponse {
    match check(&request, &shown.guard, false) {
        Ok(()) if shown.observer.is_ready() => HttpResponse::Ok().body("ready\n"),
        Ok(()) => HttpResponse::ServiceUnavailable().body("not ready: starting, or the broker is away\n"),
        Err(denied) => refusal(denied),
    }
}

fn check(request: &HttpRequest, guard: &RequestGuard, is_secret: bool) -> Result<(), RequestDenied> {
    let head = |name| request.headers().get(name).map(header::HeaderValue::as_bytes);
    let authorization = head(header::AUTHORIZATION);
    // No web page has the token; a scraper in another container names this one by its service.
    if guard.is_proven(authorization) {
        return Ok(());
    }
    guard.allow(head(header::HOST), is_secret.then_some(authorization))
}

fn refusal(denied: RequestDenied) -> HttpResponse {
    match denied {
        RequestDenied::Host => {
            HttpResponse::Forbidden().body("the request names an unknown host: use the address, or show the token\n")
        }
        RequestDenied::Token => HttpResponse::Unauthorized()
            .insert_header((header::WWW_AUTHENTICATE, "Bearer"))
            .body("send the header `Authorization: Bearer TOKEN` with the token of DYAD_METRICS_TOKEN\n"),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::base::secret::Token;

    fn status(guard: &RequestGuard, host: &str, token: Option<&str>, is_secret: bool) -> u16 {
        let mut request = TestRequest::default().insert_header((header::HOST, host));
        if let Some(token) = token {
            request = request.insert_header((header::AUTHORIZATION, format!("Bearer {token}")));
        }
        let checked = check(&request.to_http_request(), guard, is_secret);
        checked.map_or_else(|denied| refusal(denied).status().as_u16(), |()| 200)
    }

    #[test]
    fn token_or_own_host_opens_and_health_needs_only_the_host() {
        let secret = "0123456789abcdef";
        let guard = RequestGuard::new(Some(Token::new("T", secret).unwrap()), Vec::new());
        assert_eq!(status(&guard, "agent-a:9464", Some(secret), true), 200);
        assert_eq!(status(&guard, "127.0.0.1:9464", Some("wrong"), true), 401);
        assert_eq!(status(&guard, "127.0.0.1:9464", None, false), 200);
        assert_eq!(status(&guard, "evil.example", None, false), 403);
        let open = RequestGuard::new(None, Vec::new());
        assert_eq!(status(&open, "localhost:9464", None, true), 200);
        assert_eq!(status(&open, "evil.example:9464", None, true), 403);
    }
}
