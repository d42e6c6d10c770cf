//! `/api/openapi.json`: the OpenAPI document, made from the types of queries, bodies and answers.

use std::collections::BTreeMap;

use actix_web::HttpResponse;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::answer::Failed;
use super::api::runs::{self, Card};
use super::api::{compare, conversations, evaluations, facts, logs, series, tasks};
use super::changes;
use super::letter_page::{Letters, LettersQuery};
use super::shapes::{AuditAnswer, CompareQuery, ConfigAnswer, EvaluationsQuery, SeriesQuery, StreamQuery};

/// Answers with the OpenAPI document.
pub(crate) async fn answer() -> HttpResponse {
    HttpResponse::Ok().json(document())
}

/// A query without fields.
#[derive(JsonSchema)]
struct Nothing {}

/// The operations added so far, and the types that they use.
struct Operations {
    types: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Operations {
    fn schema<T: JsonSchema>(&mut self) -> Value {
        self.types.subschema_for::<T>().to_value()
    }

    /// Adds a GET of this path, with a JSON answer.
    fn get<Q: JsonSchema, A: JsonSchema>(&mut self, path: &str, about: &str) {
        let (query, answer) = (parameters::<Q>(), self.schema::<A>());
        self.add(path, "get", about, query, answer, None);
    }

    /// Adds a POST to this path, with a JSON body.
    fn post<Q: JsonSchema, B: JsonSchema>(&mut self, path: &str, about: &str) {
        let (query, body) = (parameters::<Q>(), request_schema::<B>());
        let body = json!({"required": true, "content": {"application/json": {"schema": body}}});
        self.add(path, "post", about, query, json!({"type": "object"}), Some(body));
    }

    fn add(
        &mut self,
        path: &str,
        method: &str,
        about: &str,
        mut query: Vec<Value>,
        answer: Value,
        body: Option<Value>,
    ) {
        let failed = self.schema::<Failed>();
        let kind = if path.ends_with("/stream") {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut content = json!({kind: {"schema": answer}});
        if path.ends_with("/series") {
            content["text/csv"] = json!({"schema": {"type": "string"}});
        }
        let in_path = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        query.extend(in_path.map(
            |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}),
        ));
        let mut operation = json!({
            "summary": about,
            "parameters": query,
            "responses": {
                "200": {"description": about, "content": content},
                "default": {
                    "description": "The request was refused.",
                    "content": {"application/json": {"schema": failed}},
                },
            },
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        let methods = self.paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    }
}

/// Returns the schema of a query or a body.
fn request_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the fields of a query as parameters.
fn parameters<Q: JsonSchema>() -> Vec<Value> {
    let schema = request_schema::<Q>();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let field = |(name, schema): (String, Value)| json!({"name": name, "in": "query", "required": required.contains(&json!(name)), "schema": schema});
    fields.into_iter().map(field).collect()
}

/// Returns the query parameters of each path in the document.
pub(super) fn query_parameters() -> BTreeMap<String, Vec<String>> {
    let document = document();
    let paths = document["paths"].as_object().into_iter().flatten();
    let names = |methods: &Value| {
        let operations = methods.as_object().into_iter().flatten();
        let parameters = operations.flat_map(|(_, operation)| operation["parameters"].as_array().into_iter().flatten());
        let in_query = parameters.filter(|parameter| parameter["in"] == "query");
        in_query
            .filter_map(|one| Some(one["name"].as_str()?.to_owned()))
            .collect::<Vec<_>>()
    };
    paths.map(|(path, methods)| (path.clone(), names(methods))).collect()
}

/// Returns the OpenAPI document.
fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.contract = schemars::generate::Contract::Serialize;
    });
    let mut all = Operations {
        types: settings.into_generator(),
        paths: Map::new(),
    };
    all.get::<runs::Query, runs::Table>("/api/runs", "Runs, the newest first");
    all.get::<CompareQuery, compare::Compared>("/api/compare", "Two runs: configurations and last evaluations");
    all.get::<Nothing, Card>("/api/runs/{run}", "One run of the list");
    let run = |path: &str| format!("/api/runs/{{run}}/{path}");
    all.get::<Nothing, facts::Facts>(&run("facts"), "What does not change while a run is live, and its state");
    all.get::<Nothing, Map<String, Value>>(&run("status"), "What `dyad status --json` prints");
    all.get::<SeriesQuery, series::Curves>(&run("series"), "Figures by name, thinned, as JSON or CSV");
    all.get::<Nothing, series::Names>(&run("series/names"), "The names of all figures");
    all.get::<conversations::Query, conversations::Page>(&run("conversations"), "Conversations, a page at a time");
    let member = |path: &str| run(&format!("conversations/{{group}}/{{member}}{path}"));
    all.get::<Nothing, conversations::Whole>(&member(""), "One conversation and its verdicts");
    all.get::<Nothing, conversations::Tokens>(&member("/tokens"), "Its recorded tokens");
    all.get::<Nothing, conversations::Group>(&run("groups/{group}"), "The members of a group");
    all.get::<Nothing, tasks::TaskLife>(
        &run("tasks/{task}"),
        "The outcome of a task, and its group in the ledgers",
    );
    all.get::<EvaluationsQuery, evaluations::Evaluations>(&run("evaluations"), "Evaluations and their changes");
    all.get::<Nothing, logs::Processes>(&run("logs"), "The logs of a run");
    all.get::<logs::Query, logs::Lines>(&run("logs/{process}"), "Lines of a log by offset");
    all.get::<Nothing, AuditAnswer>(&run("audit"), "The output of `dyad audit --json`, and its violations");
    all.get::<LettersQuery, Letters>(&run("letters"), "Dead letters, a page at a time");
    all.get::<Nothing, ConfigAnswer>(&run("config"), "The resolved configuration without secrets");
    all.get::<StreamQuery, String>(&run("stream"), "Events as they happen; send Last-Event-ID to continue");
    all.post::<changes::Checking, changes::Lines>(&run("tasks"), "Publishes tasks, or checks them");
    all.post::<Nothing, changes::Ids>(&run("letters/requeue"), "Publishes letters again");
    all.post::<Nothing, changes::Edited>(&run("letters/edit"), "Publishes another task instead of a letter");
    all.post::<Nothing, changes::Dropped>(&run("letters/drop"), "Removes letters");
    all.post::<Nothing, changes::Ordered>(&run("orders"), "Gives a run an order");
    all.get::<Nothing, Map<String, Value>>("/api/openapi.json", "This document");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dyad dashboard",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Reads runs; with --write it changes them.",
        },
        "security": [{"token": []}],
        "paths": all.paths,
        "components": {
            "schemas": all.types.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the paths that a source file registers below `scope`.
    fn registered(source: &str, scope: &str) -> BTreeSet<String> {
        let code = source.split(".route(").skip(1);
        let paths = code.filter_map(|rest| rest.split('"').nth(1)).map(|path| match path {
            path if path.starts_with("/api") => path.to_owned(),
            path => format!("{scope}{path}"),
        });
        paths.filter(|path| path.starts_with("/api")).collect()
    }

    #[test]
    fn every_path_of_the_api_is_in_the_document() {
        let document = document();
        let scope = "/api/runs/{run}";
        let mut paths = registered(include_str!("routes.rs"), scope);
        paths.retain(|path| {
            !["/healthz", "/readyz", "/metrics"]
                .iter()
                .any(|own| path.ends_with(own))
        });
        paths.extend(registered(include_str!("changes.rs"), scope));
        let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(paths, described);
    }

    #[test]
    fn every_reference_leads_to_a_type() {
        let document = document();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let path = reference.split('"').next().unwrap();
            assert!(document.pointer(path).is_some(), "{path}");
        }
        let query = &document["paths"]["/api/runs/{run}/series"]["get"]["parameters"];
        assert_eq!(query[0]["name"], "name");
        assert_eq!(query[0]["required"], true);
        let answers = &document["paths"]["/api/runs/{run}/series"]["get"]["responses"]["200"]["content"];
        assert!(answers["text/csv"].is_object() && answers["application/json"].is_object());
    }
}
