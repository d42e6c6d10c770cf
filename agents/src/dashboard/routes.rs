//! Connects paths with readers.

use actix_web::web::{self, Data, Path, Query, QueryConfig, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use configs::notes;
use serde_json::json;

use super::answer::{Answer, ApiError, blocking, blocking_csv, json, whole};
use super::api::{compare, conversations, evaluations, facts, logs, runs, series, tasks};
use super::guard::is_change;
use super::letter_page::LettersQuery;
use super::redact::redacted;
use super::runs::now_ms;
use super::server::Server;
use super::shapes::{AuditAnswer, CompareQuery, ConfigAnswer, EvaluationsQuery, Format, SeriesQuery, StreamQuery};
use super::stream::Topics;
use super::{assets, changes, openapi, ready, stream, watch};
use crate::report::audit;

/// Registers the paths.
pub(crate) fn routes(config: &mut ServiceConfig) {
    for (path, _, _) in assets::ASSETS {
        config.route(path, web::get().to(asset));
    }
    config
        .app_data(QueryConfig::default().error_handler(|error, _| ApiError::wrong(error.to_string()).into()))
        .route(
            "/healthz",
            web::get().to(|| async { HttpResponse::Ok().json(json!({"status": "ok"})) }),
        )
        .route("/readyz", web::get().to(ready::answer))
        .route("/metrics", web::get().to(watch::metrics))
        .route("/api/runs", web::get().to(all_runs))
        .route("/api/openapi.json", web::get().to(openapi::answer))
        .route("/api/compare", web::get().to(compared))
        .service(
            web::scope("/api/runs/{run}")
                .route("", web::get().to(run_card))
                .route("/facts", web::get().to(run_facts))
                .route("/status", web::get().to(status))
                .route("/series", web::get().to(curves))
                .route("/series/names", web::get().to(names))
                .route("/conversations", web::get().to(conversation_page))
                .route("/conversations/{group}/{member}", web::get().to(conversation))
                .route("/conversations/{group}/{member}/tokens", web::get().to(tokens))
                .route("/groups/{group}", web::get().to(group))
                .route("/tasks/{task}", web::get().to(task))
                .route("/evaluations", web::get().to(all_evaluations))
                .route("/logs", web::get().to(log_names))
                .route("/logs/{process}", web::get().to(log_lines))
                .route("/audit", web::get().to(run_audit))
                .route("/letters", web::get().to(letters))
                .route("/config", web::get().to(configuration))
                .route("/stream", web::get().to(stream))
                .configure(changes::routes),
        )
        .default_service(web::to(unknown));
}

async fn unknown(request: HttpRequest) -> Answer {
    if is_change(request.path()) {
        return Err(ApiError::new(405, "use POST: this path changes the run"));
    }
    Err(ApiError::missing("there is no such page"))
}

async fn asset(request: HttpRequest) -> HttpResponse {
    assets::answer(request.path())
}

async fn all_runs(server: Data<Server>, query: Query<runs::Query>) -> Answer {
    blocking(move || server.cards.read(&server.runs, &query)).await
}

async fn run_card(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || Ok(server.cards.card(&folder))).await
}

async fn compared(server: Data<Server>, sides: Query<CompareQuery>) -> Answer {
    let (a, b) = (server.runs.find(&sides.a)?, server.runs.find(&sides.b)?);
    blocking(move || {
        let comparison = server.commands.compare(&a, &b);
        compare::read(&a, &b, comparison.map_err(|error| format!("{error:#}")))
    })
    .await
}

async fn run_facts(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    let (commands, asked) = (server.commands.clone(), folder.clone());
    let over = whole(async move { commands.over(&asked).await }).await??;
    blocking(move || facts::read(&folder, over, server.guard.writes())).await
}

async fn status(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    json(&whole(async move { server.commands.status(&folder).await }).await??)
}

async fn curves(server: Data<Server>, run: Path<String>, wanted: Query<SeriesQuery>) -> Answer {
    let folder = server.runs.find(&run)?;
    let format = wanted.format;
    let select = move || -> Result<series::Curves, ApiError> {
        Ok(server
            .figures
            .with(&folder, |figures| series::select(figures, &wanted))?)
    };
    match format {
        Some(Format::Csv) => blocking_csv(move || Ok(select()?.csv())).await,
        Some(Format::Json) | None => blocking(select).await,
    }
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

async fn tokens(server: Data<Server>, path: Path<(String, String, String)>) -> Answer {
    let (run, group, member) = path.into_inner();
    let folder = server.runs.find(&run)?;
    blocking(move || conversations::tokens(&folder, &group, &member)).await
}

async fn group(server: Data<Server>, path: Path<(String, String)>) -> Answer {
    let (run, group) = path.into_inner();
    let folder = server.runs.find(&run)?;
    blocking(move || conversations::group(&folder, &group)).await
}

async fn task(server: Data<Server>, path: Path<(String, String)>) -> Answer {
    let (run, task) = path.into_inner();
    let folder = server.runs.find(&run)?;
    let commands = server.commands.clone();
    blocking(move || tasks::read(commands.as_ref(), &folder, &task)).await
}

async fn all_evaluations(server: Data<Server>, run: Path<String>, query: Query<EvaluationsQuery>) -> Answer {
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
        Ok(AuditAnswer {
            violations: audit.violations(),
            audit,
            broker: counts.is_some(),
            at_ms: now_ms(),
        })
    })
    .await
}

async fn letters(server: Data<Server>, run: Path<String>, query: Query<LettersQuery>) -> Answer {
    let folder = server.runs.find(&run)?;
    let query = query.into_inner();
    json(&whole(async move { server.letters.read(server.commands.as_ref(), &folder, query).await }).await??)
}

async fn configuration(server: Data<Server>, run: Path<String>) -> Answer {
    let folder = server.runs.find(&run)?;
    blocking(move || {
        let text = std::fs::read_to_string(folder.path().join("config.toml"))?;
        let path = format!("{}/config.toml", folder.run());
        let toml = redacted(&text);
        let keys = folder.config().map(|config| notes::of(&config)).unwrap_or_default();
        Ok(ConfigAnswer { toml, path, keys })
    })
    .await
}

async fn stream(request: HttpRequest, server: Data<Server>, run: Path<String>, query: Query<StreamQuery>) -> Answer {
    let folder = server.runs.find(&run)?;
    let topics = Topics::parse(&query.topics)?;
    let last = request.headers().get("last-event-id");
    let last = last.map(|id| id.to_str().map_err(|_| ApiError::wrong("Last-Event-ID is not text")));
    stream::open(
        (server.commands.clone(), &server.streams),
        folder,
        &topics,
        last.transpose()?,
    )
    .await
}
