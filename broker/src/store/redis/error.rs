//! Sorts errors of Redis: unknown (repeat the call) or unusable (an operator must change
//! something).

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::StoreError;
use crate::tls::refusal;

/// Returns the URL without its password.
pub(super) fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "(not a URL)".into();
    };
    match rest.rsplit_once('@') {
        Some((credentials, place)) => {
            let user = credentials.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{place}")
        }
        None => url.into(),
    }
}

pub(super) fn bad_url(shown: &str) -> StoreError {
    // The client's own text may quote the URL.
    unusable_url(
        shown,
        "write redis[s]://[user:password@]host:port/db, with characters such as '@' and '/' of a password as %40 and %2F",
    )
}

pub(super) fn unusable_url(shown: &str, advice: &str) -> StoreError {
    StoreError::Unusable(format!("{shown} is not a usable Redis URL: {advice}"))
}

/// Returns the error for a TLS file or a certificate that must be changed.
pub(super) fn no_tls(shown: &str, reason: &str) -> StoreError {
    StoreError::Tls {
        url: shown.to_owned(),
        reason: reason.to_owned(),
    }
}

pub(super) fn silent(shown: &str, waited: Duration) -> StoreError {
    StoreError::Unknown(format!("{shown} did not answer within {waited:?}"))
}

/// Sorts an error by the possible remedy.
pub(super) fn of(shown: &str, error: &RedisError) -> StoreError {
    if let Some(reason) = refusal(error) {
        return no_tls(shown, &reason);
    }
    if is_login(error) {
        return StoreError::Login {
            url: shown.to_owned(),
            reason: error.to_string(),
        };
    }
    // Redis without TLS reads a handshake as the beginning of a command and waits for its end.
    let silent = shown.starts_with("rediss:") && error.is_timeout();
    let advice = if silent {
        "; does it speak TLS at this port?"
    } else {
        ""
    };
    let unknown = || StoreError::Unknown(format!("{shown}: {error}{advice}"));
    match error.kind() {
        ErrorKind::Io => unknown(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::NoScript,
        ) => unknown(),
        ErrorKind::Extension if matches!(error.code(), Some("BUSY" | "UNKILLABLE")) => unknown(),
        _ => unusable(shown, error),
    }
}

fn unusable(shown: &str, error: &RedisError) -> StoreError {
    let text = error.to_string();
    let advice = advice(error, &text);
    StoreError::Unusable(format!("{shown}: {text}{advice}"))
}

/// Returns true if Redis refuses the user, the password or the database. Servers before 7 hide the
/// code of a script's error in its text.
fn is_login(error: &RedisError) -> bool {
    let text = error.to_string();
    let is = |code: &str| error.code() == Some(code) || text.contains(code);
    error.kind() == ErrorKind::AuthenticationFailed || is("NOAUTH") || is("WRONGPASS") || is("DB index")
}

/// Returns the remedy for an error's code. Servers before 7 hide the code of a script's error in
/// its text.
fn advice(error: &RedisError, text: &str) -> &'static str {
    let is = |code: &str| error.code() == Some(code) || text.contains(code);
    if is("OOM") {
        "; it is full: raise its maxmemory, or give dyad its own Redis"
    } else if is("MISCONF") {
        "; it cannot write to its disk: free space there and look into its log"
    } else if is("NOPERM") {
        "; let this user run EVALSHA and SCRIPT LOAD and write keys dyad:*"
    } else if is("WRONGTYPE") {
        "; another program has written a key of this run: delete that key, or give dyad its own database"
    } else if is("READONLY") {
        "; it is a replica: give the URL of the primary"
    } else if is("MOVED") || is("ASK") || is("CROSSSLOT") {
        "; it is a cluster: give the URL of a single Redis"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("redis://h:1/0", "redis://h:1/0"),
            ("redis://:s3cret@h:1/0", "redis://:***@h:1/0"),
            ("redis://user:s3c@ret@h:1", "redis://user:***@h:1"),
            ("rediss://s3cret@h", "rediss://:***@h"),
            ("s3cret", "(not a URL)"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }

    #[test]
    fn codes_say_what_to_do() {
        let of = |code: &str, detail: &str| {
            of(
                "redis://h",
                &redis::make_extension_error(code.into(), Some(detail.into())),
            )
        };
        for (code, expected) in [
            ("OOM", "maxmemory"),
            ("MISCONF", "disk"),
            ("WRONGTYPE", "delete that key"),
        ] {
            let StoreError::Unusable(text) = of(code, "refused") else {
                panic!("{code} needs an operator")
            };
            assert!(text.contains(expected), "{text}");
        }
        let old = of(
            "ERR",
            "Error running script: @user_script:1: WRONGTYPE Operation against a key",
        );
        assert!(matches!(old, StoreError::Unusable(text) if text.contains("delete that key")));
        assert!(matches!(of("BUSY", "running a script"), StoreError::Unknown(_)));
        for code in ["NOAUTH", "WRONGPASS"] {
            assert!(matches!(of(code, "refused"), StoreError::Login { .. }), "{code}");
        }
    }
}
