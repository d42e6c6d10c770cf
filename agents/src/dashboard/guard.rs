//! Checks requests before anything is read: method, host, token. Adds the headers of every answer.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::{DefaultHeaders, Next};
use actix_web::web::Data;
use actix_web::{Error, ResponseError};

use super::Server;
use super::answer::ApiError;
use crate::base::request_guard::{RequestDenied, RequestGuard};
use crate::base::secret::Token;

/// No script but ours runs, and no request leaves for another address.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The rules for requests.
pub(crate) struct Guard(RequestGuard);

impl Guard {
    pub(crate) fn new(token: Option<Token>, hosts: Vec<String>) -> Self {
        Self(RequestGuard::new(token, hosts))
    }

    /// Checks one request. The front end needs no token, because it holds no data.
    fn allow(
        &self,
        method: &Method,
        path: &str,
        host: Option<&[u8]>,
        authorization: Option<&[u8]>,
    ) -> Result<(), ApiError> {
        let is_secret = path.starts_with("/api/") || path == "/metrics";
        let denied = self.0.allow(host, is_secret.then_some(authorization));
        if denied == Err(RequestDenied::Host) {
            return Err(ApiError::new(
                403,
                "the request names an unknown host: use the address, localhost, or a name of --host-name",
            ));
        }
        if method != Method::GET {
            return Err(ApiError::new(405, "the dashboard only reads: use GET"));
        }
        denied.map_err(|_| {
            ApiError::new(
                401,
                "the token is missing or wrong: send the header `Authorization: Bearer TOKEN` with the token of the printed URL",
            )
        })
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
            let (host, authorization) = (head(header::HOST), head(header::AUTHORIZATION));
            server
                .guard
                .allow(request.method(), request.path(), host, authorization)
        }
        None => Err(ApiError::new(500, "the server has no state")),
    };
    match allowed {
        Ok(()) => Ok(next.call(request).await?.map_into_boxed_body()),
        Err(error) => Ok(request.into_response(error.error_response())),
    }
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
        let allowed = guard.allow(method, path, Some(host.as_bytes()), Some(header.as_bytes()));
        allowed.map_or_else(|error| error.status, |()| 200)
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
    fn without_a_token_only_the_host_counts() {
        let guard = Guard::new(None, Vec::new());
        assert!(guard.allow(&Method::GET, "/api/runs", Some(b"localhost"), None).is_ok());
        assert!(guard.allow(&Method::GET, "/api/runs", None, None).is_err());
    }
}
