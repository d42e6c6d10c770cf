//! `/readyz`: the folder of runs and the brokers of live runs can be reached.

use actix_web::HttpResponse;
use actix_web::web::Data;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::answer::{Answer, ApiError, whole};
use super::runs::{State, state};
use super::server::Server;
use crate::base::log_scope;
use crate::run_folder::RunFolder;

/// The most live runs. The broker of each is asked.
const MOST: usize = 32;

/// Answers 200 if all pages can be shown. The answer names no run: it needs no token.
pub(super) async fn answer(server: Data<Server>) -> Answer {
    let away = whole(async move {
        let asked = server.clone();
        let runs = log_scope::spawn_blocking(move || with_brokers(&asked)).await??;
        let statuses = join_all(runs.iter().map(|folder| server.commands.status(folder))).await;
        anyhow::Ok(statuses.iter().filter(|status| is_away(status)).count())
    });
    let away = away.await?;
    if let Err(error) = &away {
        tracing::warn!(error = format!("{error:#}"), "not ready");
    }
    verdict(away.ok())?;
    Ok(HttpResponse::Ok().json(json!({"status": "ready"})))
}

/// Returns the live runs that have a broker of their own. A run in memory has none.
fn with_brokers(server: &Server) -> anyhow::Result<Vec<RunFolder>> {
    std::fs::read_dir(server.runs.folder())?;
    let has_broker = |folder: &RunFolder| folder.config().is_ok_and(|config| config.run.broker != "memory:");
    let is_live = |folder: &RunFolder| matches!(state(folder), Ok((State::Live, _)));
    let runs = server.runs.all().into_iter().filter(is_live);
    Ok(runs.filter(has_broker).take(MOST).collect())
}

/// Returns true if a run's broker does not answer. A run that is over needs none.
fn is_away(status: &anyhow::Result<Value>) -> bool {
    match status {
        Ok(status) => status["over"].is_null() && status["live"].is_null(),
        Err(_) => true,
    }
}

/// `away` is the number of brokers that do not answer; `None` if the folder cannot be read.
fn verdict(away: Option<usize>) -> Result<(), ApiError> {
    match away {
        Some(0) => Ok(()),
        Some(1) => Err(ApiError::new(
            503,
            "not ready: the broker of a live run does not answer",
        )),
        Some(away) => Err(ApiError::new(
            503,
            format!("not ready: the brokers of {away} live runs do not answer"),
        )),
        None => Err(ApiError::new(503, "not ready: the folder of runs cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_of_a_live_run_must_answer() {
        assert!(!is_away(&Ok(json!({"over": null, "live": {}}))));
        assert!(!is_away(&Ok(json!({"over": "ended", "live": null}))));
        assert!(is_away(&Ok(json!({"over": null, "live": null, "offline": "refused"}))));
        assert!(is_away(&Err(anyhow::anyhow!("no configuration"))));
    }

    #[test]
    fn folder_and_brokers_make_the_answer() {
        assert_eq!(verdict(Some(0)), Ok(()));
        for (away, text) in [
            (Some(1), "a live run"),
            (Some(3), "3 live runs"),
            (None, "folder of runs"),
        ] {
            let refused = verdict(away).unwrap_err();
            assert_eq!(refused.status, 503);
            assert!(refused.message.contains(text), "{}", refused.message);
        }
    }
}
