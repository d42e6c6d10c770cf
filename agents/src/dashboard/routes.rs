//! Connects paths with readers.

use actix_web::web::{self, Data, Path, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use broker::topology::Topology;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Answer, ApiError, blocking, json, whole};
use super::api::{conversations, evaluations, facts, logs, series};
use super::redact::redacted;
use super::runs::now_ms;
use super::server::Server;
use super::{assets, changes, stream, watch};
use crate::report::audit;

/// Registers the paths.
pub(crate) fn routes(config: &mut ServiceConfig) {
    for (path, _, _) in assets::ASSETS {
        config.route(path, web::get().to(asset));
    }
    config
        .route(
            "/healthz",
            web::get().to(|| async { HttpResponse::Ok().json(json!({"status": "ok"})) }),
        )
        .route("/metrics", web::get().to(watch::metrics))
        .route("/api/runs", web::get().to(all_runs))
        .service(
            web::scope("/api/runs/{run}")
                .route("/facts", web::get().to(run_facts))
                .route("/status", web::get().to(status))
                .route("/series", web::get().to(curves))
                .route("/series/names", web::get().to(names))
                .route("/conversations", web::get().to(conversation_page))
                .route("/conversations/{group}/{member}", web::get().to(conversation))
                .route("/groups/{group}", web::get().to(group))
                .route("/evaluations", web::get().to(all_evaluations))
                .route("/logs", web::get().to(log_names))
                .route("/logs/{process}", web::get().to(log_lines))
                .route("/audit", web::get().to(run_audit))
                .route("/letters", web::get().to(letters))
                .route("/config", web::get().to(configuration))
                .route("/stream", web::get().to(turns))
                .configure(changes::routes),
        )
        .default_service(web::to(unknown));
}

async fn unknown() -> Answer {
    Err(ApiError::missing("there is no such page"))
}

async fn asset(request: HttpRequest) -> HttpResponse {
    assets::answer(request.path())
}

async fn all_runs(server: Data<Server>) -> Answer {
    blocking(move || {
        let runs = server.cards.read(&server.runs)?;
        Ok(json!({"runs": runs}))
    })
    .await
}

async fn run_facts(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || facts::read(&folder, server.guard.writes())).await
}

async fn status(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    json(&whole(async move { server.commands.status(&folder).await }).await??)
}

/// The curves that are asked for.
#[derive(Deserialize)]
struct Wanted {
    name: String,
    points: Option<usize>,
}

async fn curves(server: Data<Server>, run: Path<String>, wanted: Query<Wanted>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || {
        let points = wanted.points.unwrap_or(500);
        let select = |figures: &_| series::select(figures, &wanted.name, points);
        Ok(server.figures.with(&folder, select)?)
    })
    .await
}

async fn names(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || Ok(server.figures.with(&folder, series::names)?)).await
}

async fn conversation_page(server: Data<Server>, run: Path<String>, query: Query<conversations::Query>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || conversations::page(&folder, &query)).await
}

async fn conversation(server: Data<Server>, path: Path<(String, String, String)>) -> Answer {
    let (run, group, member) = path.into_inner();
    let folder = server.runs.find(&run)?;
    blocking(move || conversations::one(&folder, &group, &member)).await
}

async fn group(server: Data<Server>, path: Path<(String, String)>) -> Answer {
    let (run, group) = path.into_inner();
    let folder = server.runs.find(&run)?;
    blocking(move || conversations::group(&folder, &group)).await
}

/// The figure of a request for tasks.
#[derive(Deserialize)]
struct Metric {
    metric: Option<String>,
}

async fn all_evaluations(server: Data<Server>, run: Path<String>, query: Query<Metric>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || evaluations::read(&folder, query.metric.as_deref())).await
}

async fn log_names(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || logs::processes(&folder)).await
}

async fn log_lines(server: Data<Server>, path: Path<(String, String)>, query: Query<logs::Query>) -> Answer {
    let (run, process) = path.into_inner();
    let folder = server.runs.find(&run)?;
    blocking(move || logs::read(&folder, &process, &query)).await
}

async fn run_audit(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    let asked = folder.clone();
    let counts = whole(async move { server.commands.counts(&asked).await }).await?;
    blocking(move || {
        let audit = audit::audit(&folder, counts.as_ref()).map_err(anyhow::Error::from)?;
        Ok(json!({
            "violations": audit.violations(),
            "audit": audit,
            "broker": counts.is_some(),
            "at_ms": now_ms(),
        }))
    })
    .await
}

async fn letters(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    json(&whole(async move { server.letters.read(server.commands.as_ref(), &folder).await }).await?)
}

async fn configuration(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || {
        let text = std::fs::read_to_string(folder.path().join("config.toml"))?;
        let path = format!("{}/config.toml", folder.run());
        Ok(json!({"toml": redacted(&text), "path": path}))
    })
    .await
}

/// The topics of a stream.
#[derive(Deserialize)]
struct Topics {
    topics: String,
}

async fn turns(server: Data<Server>, run: Path<String>, query: Query<Topics>) -> Answer {
    let folder = server.runs.find(&run)?;
    if query.topics != "turns" {
        return Err(ApiError::wrong("the stream has one topic: turns"));
    }
    let offline = |error: anyhow::Error| ApiError::new(503, format!("{error:#}"));
    let topology = Topology::new(folder.run().clone());
    let places = server.streams.clone();
    let bus = whole(async move { server.commands.bus(&folder).await }).await?;
    stream::turns(bus.map_err(offline)?, &topology, &places).await
}
