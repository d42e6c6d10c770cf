//! Refuses query parameters that a path of the API does not have. A misspelled filter would
//! otherwise answer with everything.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Query;
use actix_web::{Error, ResponseError};

use super::answer::ApiError;
use super::openapi;

/// The parameters of each path, as the OpenAPI document lists them.
static KNOWN: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(openapi::query_parameters);

/// The middleware that checks the query of every path of the API.
pub(super) async fn check(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let path = request.match_pattern().unwrap_or_default();
    match allow(&path, request.query_string()) {
        Ok(()) => Ok(next.call(request).await?.map_into_boxed_body()),
        Err(error) => Ok(request.into_response(error.error_response())),
    }
}

fn allow(path: &str, query: &str) -> Result<(), ApiError> {
    let Some(known) = KNOWN.get(path) else { return Ok(()) };
    let given = Query::<Vec<(String, String)>>::from_query(query);
    let given = given.map_err(|error| ApiError::wrong(format!("the query cannot be read: {error}")))?;
    let unknown = given.iter().map(|(name, _)| name).find(|name| !known.contains(name));
    let Some(unknown) = unknown else { return Ok(()) };
    let takes = match known.as_slice() {
        [] => "none".to_owned(),
        known => known.join(", "),
    };
    let message = format!("unknown query parameter {unknown:?}: this path takes {takes}");
    Err(ApiError::wrong(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameter_is_named_with_the_known_ones() {
        let error = allow("/api/runs/{run}/letters", "limit=3&limt=4").unwrap_err();
        assert_eq!(error.status, 400);
        assert_eq!(
            error.message,
            "unknown query parameter \"limt\": this path takes limit, cursor, order, id"
        );
        let error = allow("/api/runs/{run}/facts", "x").unwrap_err();
        assert_eq!(error.message, "unknown query parameter \"x\": this path takes none");
    }

    #[test]
    fn known_parameters_pass_and_so_do_paths_outside_the_api() {
        for (path, query) in [
            ("/api/runs", "limit=2&cursor="),
            ("/api/runs/{run}/letters", "limit=3&cursor=&id=%20&order=newest"),
            ("/api/runs/{run}/tasks", "check=1"),
            ("/metrics", "x=1"),
            ("", "x=1"),
        ] {
            assert_eq!(allow(path, query), Ok(()), "{path}?{query}");
        }
    }

    #[test]
    fn every_path_of_the_document_refuses_an_unknown_parameter() {
        assert!(KNOWN.len() > 15);
        for path in KNOWN.keys() {
            assert_eq!(allow(path, "wrong=1").unwrap_err().status, 400, "{path}");
        }
    }
}
