//! The servers of `dyad doctor`: installed, answering, and usable by their user.

use std::time::Duration;

use broker::bus::amqp::redact;
use broker::bus::{Bus, BusError, blocked};
use broker::ids::{Attempt, GroupId, RunId};
use broker::local::process::find_binary;
use broker::store::redis::RedisStore;
use broker::store::{Claim, Store, StoreError};
use broker::topology::Topology;

use super::{DoctorFinding, Standing};
use crate::cli::select;
use crate::run_folder::connect::store_options;

/// Checks that a server's program is installed. It is required only if the URL is `local:`.
pub(super) fn server(name: &'static str, places: &[&str], url: Option<&str>) -> DoctorFinding {
    let required = url == Some("local:");
    match find_binary(places, name) {
        Some(path) => DoctorFinding::good(name, path.display().to_string()),
        None => DoctorFinding::problem(
            name,
            required,
            "not installed",
            format!("run `apt-get install {name}`; `dyad up` starts it where the URL is local:"),
        ),
    }
}

/// Connects to the broker. Returns `None` if the URL names no running server (`memory:`, `local:`).
pub(super) async fn try_broker(url: Option<&str>) -> Option<DoctorFinding> {
    let url = url.filter(|url| !matches!(*url, "memory:" | "local:"))?;
    let shown = redact(url);
    Some(match select::connect(url, "doctor").await {
        Ok(bus) => {
            let alarm = blocked::alarm(&*bus).await;
            let refused = may_declare(&*bus).await;
            bus.close().await;
            match (alarm, refused) {
                (Some(reason), _) => DoctorFinding::problem(
                    "broker",
                    true,
                    format!("{shown} {}", blocked::advice(&reason)),
                    "free memory or disk space on the broker's host",
                ),
                (None, Err(error)) => DoctorFinding::problem(
                    "broker",
                    true,
                    format!("{shown} answers, but {error}"),
                    "let this user configure, write and read names that begin with `dyad.` \
                     (`rabbitmqctl set_permissions`)",
                ),
                (None, Ok(())) => DoctorFinding::good("broker", format!("{shown} answers")),
            }
        }
        Err(error) => DoctorFinding::problem(
            "broker",
            true,
            format!("{error:#}"),
            "run `docker compose up -d rabbitmq`, or correct the URL, user and password",
        ),
    })
}

/// Declares a queue of this connection, as every process of a run does. It goes with the
/// connection.
async fn may_declare(bus: &dyn Bus) -> Result<(), BusError> {
    let run = RunId::new("doctor").ok_or(BusError::Closed)?;
    let listener = format!("doctor-{}", std::process::id());
    bus.declare_queue(&Topology::new(run).control(&listener)).await
}

/// Takes a group and forgets it, as a coordinator does.
async fn may_write(store: &dyn Store, run: &RunId) -> Result<(), StoreError> {
    let owner = format!("doctor-{}", std::process::id());
    let group = GroupId::new(run, &owner);
    match store
        .claim(group, &owner, Attempt(*uuid::Uuid::new_v4().as_bytes()), None)
        .await?
    {
        Claim::Ours(claimed) => store.void(claimed.lease).await,
        Claim::Theirs { .. } => Ok(()),
    }
}

/// Connects to the state store. Returns `None` like [`try_broker`].
pub(super) async fn try_store(url: Option<&str>) -> Option<DoctorFinding> {
    let url = url.filter(|url| !matches!(*url, "memory:" | "local:"))?;
    let shown = redact(url);
    let run = RunId::new("doctor")?;
    let tried = tokio::time::timeout(Duration::from_secs(5), async {
        let store = RedisStore::connect(url, &run, store_options(url)?).await?;
        may_write(&*store, &run).await?;
        Ok::<_, anyhow::Error>(store.check().await?)
    });
    Some(match tried.await {
        Ok(Ok(warnings)) if warnings.is_empty() => DoctorFinding::good("state store", format!("{shown} answers")),
        Ok(Ok(warnings)) => DoctorFinding {
            what: "state store",
            standing: Standing::Good,
            found: format!("{shown} answers"),
            fix: Some(warnings.join("; ")),
        },
        Ok(Err(error)) => DoctorFinding::problem(
            "state store",
            true,
            error.to_string(),
            "run `docker compose up -d redis`, or correct the URL and password",
        ),
        Err(_) => DoctorFinding::problem(
            "state store",
            true,
            format!("{shown} did not answer within 5 s"),
            "run `docker compose up -d redis`, or correct the URL and password",
        ),
    })
}
