//! Checks requests before anything is read: method, host, token. Adds the headers of every answer.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::{DefaultHeaders, Next};
use actix_web::web::Data;
use actix_web::{Error, ResponseError};

use super::answer::ApiError;
use super::assets;
use super::server::Server;
use crate::base::request_guard::{RequestDenied, RequestGuard};
use crate::base::secret::Token;

/// No script but ours runs, and no request leaves for another address.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The paths below a run that take a POST and change the run.
const PATHS: [&str; 5] = ["tasks", "letters/requeue", "letters/edit", "letters/drop", "orders"];

/// The paths that need no token besides the front end: their answers describe no run.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Returns true if a request to this path changes a run.
pub(super) fn is_change(path: &str) -> bool {
    let below = path.strip_prefix("/api/runs/").and_then(|rest| rest.split_once('/'));
    below.is_some_and(|(_, path)| PATHS.contains(&path))
}

/// The rules for requests.
pub(crate) struct Guard {
    rules: RequestGuard,
    /// A token that opens `/metrics` and nothing else.
    metrics: RequestGuard,
    /// Pages may change runs.
    writes: bool,
}

/// The parts of a request's head that the rules read.
#[derive(Debug, Clone, Copy, Default)]
struct RequestHead<'a> {
    path: &'a str,
    host: Option<&'a [u8]>,
    authorization: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
}

impl Guard {
    pub(crate) fn new(token: Option<Token>, hosts: Vec<String>) -> Self {
        Self {
            rules: RequestGuard::new(token, hosts),
            metrics: RequestGuard::new(None, Vec::new()),
            writes: false,
        }
    }

    /// Adds a token that opens `/metrics` only. Prometheus must not have the token of the pages.
    pub(crate) fn with_metrics(mut self, token: Option<Token>) -> Self {
        self.metrics = RequestGuard::new(token, Vec::new());
        self
    }

    pub(crate) fn writing(mut self, writes: bool) -> Self {
        self.writes = writes;
        self
    }

    /// Returns true if pages may change runs.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Checks one request. The front end needs no token, because it holds no data.
    fn allow(&self, method: &Method, head: RequestHead<'_>) -> Result<(), ApiError> {
        // The host is not checked: no web page has this token, and a scraper in another container
        // uses the name of its service.
        if head.path == "/metrics" && method == Method::GET && self.metrics.is_proven(head.authorization) {
            return Ok(());
        }
        // Open paths are listed: another spelling of a path (%61pi) leads to the same handler.
        let is_open = assets::is_asset(head.path) || OPEN.contains(&head.path);
        let denied = self.rules.allow(head.host, (!is_open).then_some(head.authorization));
        if denied == Err(RequestDenied::Host) {
            return Err(ApiError::new(
                403,
                "the request names an unknown host: use the address, localhost, or a name of --host-name",
            ));
        }
        if method != Method::GET {
            self.allow_change(method, head)?;
        }
        denied.map_err(|_| {
            ApiError::new(
                401,
                "the token is missing or wrong: send the header `Authorization: Bearer TOKEN` with the token of the printed \
                 URL, or for /metrics with that of DYAD_METRICS_TOKEN",
            )
        })
    }

    /// Checks a request that changes something. Another site cannot send JSON: forms have other
    /// types, and scripts need an answer to OPTIONS.
    fn allow_change(&self, method: &Method, head: RequestHead<'_>) -> Result<(), ApiError> {
        if method != Method::POST || !is_change(head.path) {
            return Err(ApiError::new(405, "use GET, or POST where something is changed"));
        }
        if !self.writes {
            let message = "the dashboard only reads: start it with --write to change runs";
            return Err(ApiError::new(405, message));
        }
        let kind = head.content_type.unwrap_or_default();
        if !kind.starts_with(b"application/json") {
            return Err(ApiError::new(415, "send JSON with the type application/json"));
        }
        let host = String::from_utf8_lossy(head.host.unwrap_or_default());
        let own = |origin: &[u8]| origin.ends_with(format!("://{host}").as_bytes());
        if !head.origin.is_none_or(own) {
            return Err(ApiError::new(403, "the request comes from another site"));
        }
        Ok(())
    }
}

/// The middleware that applies the rules.
pub(crate) async fn check(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let allowed = match request.app_data::<Data<Server>>() {
        Some(server) => {
            let head = |name| request.headers().get(name).map(header::HeaderValue::as_bytes);
            let head = RequestHead {
                path: request.path(),
                host: head(header::HOST),
                authorization: head(header::AUTHORIZATION),
                content_type: head(header::CONTENT_TYPE),
                origin: head(header::ORIGIN),
            };
            server.guard.allow(request.method(), head)
        }
        None => Err(ApiError::new(500, "the server has no state")),
    };
    let method = if is_change(request.path()) { "POST" } else { "GET" };
    let mut response = match allowed {
        Ok(()) => next.call(request).await?.map_into_boxed_body(),
        Err(error) => request.into_response(error.error_response()),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allow = header::HeaderValue::from_static(method);
        response.headers_mut().insert(header::ALLOW, allow);
    }
    Ok(response)
}

/// The headers of every answer.
pub(crate) fn headers() -> DefaultHeaders {
    DefaultHeaders::new()
        .add((header::CONTENT_SECURITY_POLICY, POLICY))
        .add((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .add((header::X_FRAME_OPTIONS, "DENY"))
        .add((header::REFERRER_POLICY, "no-referrer"))
        .add((header::CACHE_CONTROL, "no-store"))
        .add(("cross-origin-opener-policy", "same-origin"))
        .add(("cross-origin-resource-policy", "same-origin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn status(guard: &Guard, method: &Method, path: &str, host: &str, token: &str) -> u16 {
        let header = format!("Bearer {token}");
        let head = RequestHead {
            path,
            host: Some(host.as_bytes()),
            authorization: Some(header.as_bytes()),
            ..RequestHead::default()
        };
        status_of(guard, method, head)
    }

    fn status_of(guard: &Guard, method: &Method, head: RequestHead<'_>) -> u16 {
        guard.allow(method, head).map_or_else(|error| error.status, |()| 200)
    }

    #[test]
    fn host_method_and_token_are_checked_in_this_order() {
        let token = Token::new("T", SECRET).unwrap();
        let guard = Guard::new(Some(token), vec!["box.local".into()]);
        let get = |path: &str, host: &str, token: &str| status(&guard, &Method::GET, path, host, token);
        assert_eq!(get("/api/runs", "127.0.0.1:7070", SECRET), 200);
        assert_eq!(get("/api/runs", "BOX.local:7070", SECRET), 200);
        assert_eq!(get("/api/runs", "127.0.0.1:7070", "wrong"), 401);
        assert_eq!(get("/metrics", "127.0.0.1:7070", "wrong"), 401);
        assert_eq!(get("/", "localhost:7070", "wrong"), 200);
        assert_eq!(get("/healthz", "[::1]:7070", ""), 200);
        for spelled in [
            "/%61pi/runs",
            "/%6detrics",
            "/metrics",
            "/api%2fruns",
            "//api/runs",
            "/unknown",
        ] {
            assert_eq!(get(spelled, "localhost", "wrong"), 401, "{spelled}");
        }
        for forged in ["evil.example:7070", "", "127.0.0.1.evil.example"] {
            assert_eq!(get("/", forged, SECRET), 403, "{forged}");
            assert_eq!(get("/api/runs", forged, SECRET), 403, "{forged}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::HEAD] {
            assert_eq!(
                status(&guard, &method, "/api/runs", "localhost", SECRET),
                405,
                "{method}"
            );
        }
    }

    #[test]
    fn token_for_metrics_opens_nothing_else_and_needs_no_known_host() {
        let scraper = "fedcba9876543210";
        let guard = Guard::new(Some(Token::new("T", SECRET).unwrap()), Vec::new())
            .writing(true)
            .with_metrics(Some(Token::new("M", scraper).unwrap()));
        let get = |path: &str, host: &str, token: &str| status(&guard, &Method::GET, path, host, token);
        assert_eq!(get("/metrics", "dashboard:7070", scraper), 200);
        assert_eq!(get("/metrics", "localhost:7070", SECRET), 200);
        assert_eq!(get("/metrics", "localhost:7070", "wrong"), 401);
        for path in ["/api/runs", "/api/runs/r/orders", "/metrics/", "/%6detrics", "/unknown"] {
            assert_eq!(get(path, "localhost:7070", scraper), 401, "{path}");
        }
        let order = RequestHead {
            path: "/metrics",
            host: Some(b"localhost:7070"),
            authorization: Some(b"Bearer fedcba9876543210"),
            content_type: Some(b"application/json"),
            ..RequestHead::default()
        };
        assert_eq!(status_of(&guard, &Method::POST, order), 405);
    }

    #[test]
    fn changes_need_write_json_own_origin_and_token() {
        let guard = Guard::new(Some(Token::new("T", SECRET).unwrap()), Vec::new()).writing(true);
        let header = format!("Bearer {SECRET}");
        let good = RequestHead {
            path: "/api/runs/r/orders",
            host: Some(b"localhost:7070"),
            authorization: Some(header.as_bytes()),
            content_type: Some(b"application/json"),
            origin: Some(b"http://localhost:7070"),
        };
        let post = |head| status_of(&guard, &Method::POST, head);
        assert_eq!(post(good), 200);
        let form = Some(b"application/x-www-form-urlencoded".as_slice());
        for (head, status) in [
            (
                RequestHead {
                    content_type: form,
                    ..good
                },
                415,
            ),
            (
                RequestHead {
                    content_type: None,
                    ..good
                },
                415,
            ),
            (
                RequestHead {
                    origin: Some(b"https://evil.example"),
                    ..good
                },
                403,
            ),
            (
                RequestHead {
                    origin: Some(b"null"),
                    ..good
                },
                403,
            ),
            (
                RequestHead {
                    authorization: None,
                    ..good
                },
                401,
            ),
            (
                RequestHead {
                    host: Some(b"evil.example"),
                    ..good
                },
                403,
            ),
        ] {
            assert_eq!(post(head), status, "{head:?}");
        }
        for method in [Method::OPTIONS, Method::PUT, Method::DELETE] {
            assert_eq!(status_of(&guard, &method, good), 405, "{method}");
        }
        let other = RequestHead {
            path: "/api/runs/r/facts",
            ..good
        };
        assert_eq!(post(other), 405, "nothing is changed there");
        let reads = Guard::new(None, Vec::new());
        assert_eq!(status_of(&reads, &Method::POST, good), 405, "without --write");
    }

    #[test]
    fn without_a_token_only_the_host_counts() {
        let guard = Guard::new(None, Vec::new());
        assert_eq!(status(&guard, &Method::GET, "/api/runs", "localhost", ""), 200);
        let nameless = RequestHead {
            path: "/api/runs",
            ..RequestHead::default()
        };
        assert_eq!(status_of(&guard, &Method::GET, nameless), 403);
    }
}
