//! Changes that pages ask for: tasks to publish, dead letters to handle, orders to the run.
//!
//! Reads requests and passes them to the commands. Irreversible changes must repeat the run's id.

use actix_web::web::{self, Data, Json, JsonConfig, Path, Query, ServiceConfig};
use actix_web::{HttpRequest, error::InternalError};
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer::{Answer, ApiError, json, whole};
use super::command_answers::{ChangeRefused, PageChange};
use super::server::Server;

/// The largest request in bytes.
const LARGEST: usize = 4 << 20;

/// Registers the paths below a run.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .app_data(JsonConfig::default().limit(LARGEST).error_handler(unreadable))
        .route("/tasks", web::post().to(tasks))
        .route("/letters/requeue", web::post().to(requeue))
        .route("/letters/edit", web::post().to(edit))
        .route("/letters/drop", web::post().to(drop_letters))
        .route("/orders", web::post().to(orders));
}

fn unreadable(error: actix_web::error::JsonPayloadError, _: &HttpRequest) -> actix_web::Error {
    let answer = ApiError::wrong(format!("the request cannot be read: {error}"));
    let response = actix_web::ResponseError::error_response(&answer);
    InternalError::from_response(error, response).into()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    /// JSON lines, a task on each.
    lines: String,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Checking {
    /// 1: nothing is sent.
    #[serde(default)]
    check: u8,
}

async fn tasks(
    server: Data<Server>,
    request: HttpRequest,
    run: Path<String>,
    query: Query<Checking>,
    body: Json<Lines>,
) -> Answer {
    let change = PageChange::Publish {
        lines: body.into_inner().lines,
        check: query.check == 1,
    };
    make(server, &request, &run, change).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ids {
    #[schemars(length(min = 1))]
    ids: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Dropped {
    #[schemars(length(min = 1))]
    ids: Vec<String>,
    /// The run's id.
    confirm: Option<String>,
}

async fn requeue(server: Data<Server>, request: HttpRequest, run: Path<String>, body: Json<Ids>) -> Answer {
    let ids = named(body.into_inner().ids)?;
    make(server, &request, &run, PageChange::Requeue { ids }).await
}

async fn drop_letters(server: Data<Server>, request: HttpRequest, run: Path<String>, body: Json<Dropped>) -> Answer {
    let Dropped { ids, confirm } = body.into_inner();
    confirmed(&run, confirm.as_deref())?;
    let ids = named(ids)?;
    make(server, &request, &run, PageChange::Drop { ids }).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edited {
    id: String,
    /// The task to publish instead, as JSON.
    task: Option<String>,
    /// The task's new id.
    as_id: Option<String>,
}

async fn edit(server: Data<Server>, request: HttpRequest, run: Path<String>, body: Json<Edited>) -> Answer {
    let Edited { id, task, as_id } = body.into_inner();
    make(server, &request, &run, PageChange::Edit { id, task, as_id }).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Ordered {
    order: OrderName,
    /// The run's id, for `drain`.
    confirm: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    Pause,
    Resume,
    Drain,
    Checkpoint,
}

async fn orders(server: Data<Server>, request: HttpRequest, run: Path<String>, body: Json<Ordered>) -> Answer {
    let Ordered { order, confirm } = body.into_inner();
    let change = match order {
        OrderName::Pause => PageChange::Pause,
        OrderName::Resume => PageChange::Resume,
        OrderName::Drain => {
            confirmed(&run, confirm.as_deref())?;
            PageChange::Drain
        }
        OrderName::Checkpoint => PageChange::Checkpoint,
    };
    make(server, &request, &run, change).await
}

/// Rejects an empty list: the commands would take all letters.
fn named(ids: Vec<String>) -> Result<Vec<String>, ApiError> {
    if ids.is_empty() {
        return Err(ApiError::wrong("name the letters in `ids`"));
    }
    Ok(ids)
}

fn confirmed(run: &str, confirm: Option<&str>) -> Result<(), ApiError> {
    if confirm == Some(run) {
        return Ok(());
    }
    let message = "this cannot be taken back: confirm it with the run's id in `confirm`";
    Err(ApiError::new(409, message))
}

async fn make(server: Data<Server>, request: &HttpRequest, run: &str, change: PageChange) -> Answer {
    let folder = server.runs.find(run)?;
    if matches!(change, PageChange::Publish { check: true, .. }) {
        return json(&whole(async move { server.commands.change(&folder, change).await }).await??);
    }
    let (run, name, letters) = (run.to_owned(), change.name(), change.letters());
    let from = request.peer_addr().map(|peer| peer.to_string());
    let made = whole(async move {
        let made = server.commands.change(&folder, change).await;
        server.letters.forget(folder.path()).await;
        let refused = made.as_ref().err().map(|refused| refused.message.as_str());
        // Each change is logged. The field is `run_id`, because standard error leaves out `run`.
        tracing::info!(
            run_id = run,
            change = name,
            letters,
            from,
            refused,
            "a page asked for a change"
        );
        made
    });
    json(&made.await??)
}

impl PageChange {
    fn name(&self) -> &'static str {
        match self {
            Self::Publish { .. } => "publish",
            Self::Requeue { .. } => "requeue",
            Self::Edit { .. } => "edit",
            Self::Drop { .. } => "drop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Drain => "drain",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Returns the ids of the dead letters that it handles.
    fn letters(&self) -> Option<String> {
        match self {
            Self::Requeue { ids } | Self::Drop { ids } => Some(ids.join(" ")),
            Self::Edit { id, .. } => Some(id.clone()),
            Self::Publish { .. } | Self::Pause | Self::Resume | Self::Drain | Self::Checkpoint => None,
        }
    }
}

impl From<ChangeRefused> for ApiError {
    fn from(refused: ChangeRefused) -> Self {
        Self::new(refused.status, refused.message)
    }
}
