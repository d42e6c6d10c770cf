//! Traces of real runs, received by a collector of the test: they say what transcripts and metrics
//! say.

mod batches;
mod collector;
mod otlp;
mod rotel;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::ids::Digest;
use serde_json::{Value, json};
use tests::program::{Program, fail, json_folder};
use tests::small::Small;
use tests::trace::{final_digest, transcripts};

use self::batches::compare_batches;
use self::collector::{Collector, Posted};
use self::otlp::{Span, Traces, decode, hex};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the first `bytes` of a digest of a text, as hexadecimal digits.
fn id(text: &str, bytes: usize) -> String {
    hex(&Digest::of(text.as_bytes()).0[..bytes])
}

fn close(a: &Value, b: &Value) -> bool {
    let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
    (a - b).abs() <= 1e-9
}

/// Compares the trace of one conversation with its transcript.
fn compare(run: &str, transcript: &Value, spans: &BTreeMap<String, Span>, times: (u64, u64)) {
    let conversation = transcript["conversation"].as_str().unwrap();
    let turns = transcript["turns"].as_array().unwrap();
    assert_eq!(spans.len(), 1 + turns.len(), "{conversation}");
    let root_id = id(&format!("span/{run}/{conversation}"), 8);
    let root = &spans[&root_id];
    assert_eq!(
        (root.name.as_str(), root.parent.as_str()),
        ("invoke_workflow signal", "")
    );
    assert!(times.0 <= root.start && root.start <= root.end && root.end <= times.1);
    let group = conversation.split('/').next().unwrap();
    for span in spans.values() {
        assert_eq!(span.attributes["gen_ai.conversation.id"], conversation);
        assert_eq!(span.attributes["dyad.group"], group);
        assert_eq!(span.attributes["dyad.task"], transcript["task"]);
        let has_texts = span.attributes.keys().any(|key| key.ends_with(".messages"));
        assert!(!has_texts, "texts are off");
        assert!(root.start <= span.start && span.start <= span.end && span.end <= root.end);
    }
    assert_eq!(root.attributes["gen_ai.operation.name"], "invoke_workflow");
    assert_eq!(root.attributes["dyad.eval"], json!(transcript["eval"] == true));
    assert!(close(
        &root.attributes["dyad.success"],
        &transcript["metrics"]["success"]
    ));
    let rewards = transcript["rewards"].as_object().unwrap();
    assert!(!rewards.is_empty());
    for (role, parts) in rewards {
        assert!(close(&root.attributes[&format!("dyad.reward.{role}")], &parts["total"]));
        let advantage = root.attributes.get(&format!("dyad.advantage.{role}"));
        let compared = &transcript["earned"][role]["compared"]["advantage"];
        assert_eq!(
            advantage.is_some(),
            transcript["eval"] != true,
            "{role} of {conversation}"
        );
        assert!(advantage.is_none_or(|advantage| close(advantage, compared)));
    }
    for turn in turns {
        let (role, agent) = (turn["role"].as_str().unwrap(), turn["agent"].as_str().unwrap());
        let place = format!("span/{run}/{conversation}/{role}/{}/{}", turn["seat"], turn["turn"]);
        let span = &spans[&id(&place, 8)];
        assert_eq!(
            (span.name.clone(), span.parent.as_str()),
            (format!("chat {agent}"), root_id.as_str())
        );
        assert_eq!(span.kind, 3, "CLIENT");
        let has = |name: &str| &span.attributes[name];
        assert_eq!(has("gen_ai.operation.name"), "chat");
        assert_eq!(has("gen_ai.agent.name"), agent);
        assert_eq!(has("gen_ai.usage.output_tokens"), &turn["tokens"]);
        assert_eq!(has("gen_ai.response.finish_reasons"), &json!([turn["finish"]]));
        assert!(has("gen_ai.usage.input_tokens").as_u64().unwrap() > 0);
        assert_eq!(has("gen_ai.request.max_tokens"), 1);
        let temperature = if transcript["eval"] == true { 0.0 } else { 1.0 };
        assert_eq!(has("gen_ai.request.temperature"), &json!(temperature));
        assert_eq!((has("dyad.role"), has("dyad.seat")), (&turn["role"], &turn["seat"]));
        let version = format!("{}.{}", has("dyad.weights.lineage"), has("dyad.weights.step"));
        assert_eq!(turn["version"], version);
        assert!(close(has("dyad.logprob.mean"), &turn["mean_logprob"]));
        let time = &turn["time"];
        assert!(close(has("dyad.queue.seconds"), &time["queue"]));
        let took = time["committed"].as_f64().unwrap() - time["asked"].as_f64().unwrap();
        assert!(((span.end - span.start) as f64 / 1e9 - took).abs() < 1e-6);
    }
}

fn config() -> Small {
    Small::new()
        .set("run.train_steps", 3)
        .set("run.transcripts", "all")
        .set("workflow.group_size", 4)
        .set("eval.every", 2)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 4)
        .set("eval.params.objects", 16)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn name(run: &Path) -> String {
    run.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Returns the transcripts by the ids of their traces.
fn by_trace(run: &str, folder: &Path) -> BTreeMap<String, Value> {
    let written = transcripts(folder).into_iter().map(|transcript| {
        let conversation = transcript["conversation"].as_str().unwrap();
        (id(&format!("trace/{run}/{conversation}"), 16), transcript)
    });
    written.collect()
}

/// Returns the ids of received traces of conversations.
fn conversations(traces: &Traces) -> BTreeSet<&String> {
    let is_batch = |spans: &BTreeMap<String, Span>| spans.values().any(|span| span.name.starts_with("train "));
    let found = traces.iter().filter(|(_, spans)| !is_batch(spans));
    found.map(|(trace, _)| trace).collect()
}

#[test]
fn every_trace_of_a_run_equals_its_transcript_or_its_batch() {
    let (program, collector) = (program(), Collector::start(&[], 200));
    let begun = now();
    let mut running = program.launch(
        "run",
        &config().save(&program),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=a%20b"),
            ("OTEL_SERVICE_NAME", "dyad-test"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
        ],
    );
    running.finish(PATIENCE);
    let times = (begun, now());
    for posted in &collector.posted() {
        assert_eq!(
            (posted.path.as_str(), posted.headers["x-scope"].as_str()),
            ("/v1/traces", "a b")
        );
        assert_eq!(posted.headers["content-type"], "application/x-protobuf");
    }
    is_the_run(&program.run_folder(), &collector.taken(), times);
}

/// Compares all that a collector took of a run of [`config`] with its transcripts and metrics.
fn is_the_run(folder: &Path, taken: &[Posted], times: (u64, u64)) {
    let run = name(folder);
    let traces = decode(taken, &run);
    let written = by_trace(&run, folder);
    assert!(
        written.values().any(|one| one["eval"] == true) && written.len() > 24,
        "{}",
        written.len()
    );
    assert_eq!(conversations(&traces), written.keys().collect());
    for (trace, transcript) in &written {
        compare(&run, transcript, &traces[trace], times);
    }
    let trained = written.iter().filter(|(_, one)| one["eval"] != true);
    let trained: BTreeSet<&String> = trained.map(|(trace, _)| trace).collect();
    for agent in ["a", "b"] {
        let linked = compare_batches((&run, folder), agent, &traces, times);
        assert_eq!(linked.iter().collect::<BTreeSet<_>>(), trained, "batches of {agent}");
    }
    assert_eq!(traces.len(), written.len() + 6, "three batches of two agents");
}

#[test]
fn a_grader_that_is_a_program_has_a_span_with_the_graded_role() {
    let (program, collector) = (program(), Collector::start(&[], 200));
    let config = Small::of("configs/programs.toml")
        .set("run.train_steps", 1)
        .set("run.transcripts", "all")
        .replace("workflow.kind", "solve-verify")
        .set("workflow.params.prompts", "short")
        .set("graders.correct.kind", "process:configs/programs/reward.py")
        .set("graders.correct.timeout", "120s");
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_SERVICE_NAME", "dyad-test"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    program
        .launch("run", &config.save(&program), &environment)
        .finish(PATIENCE);
    let folder = program.run_folder();
    let run = name(&folder);
    let traces = decode(&collector.taken(), &run);
    for (trace, transcript) in by_trace(&run, &folder) {
        let graded = traces[&trace].values().filter(|span| span.name == "dyad.grade solver");
        let graded: Vec<&Span> = graded.collect();
        let turns = transcript["turns"].as_array().unwrap().iter();
        assert_eq!(
            graded.len(),
            turns.filter(|turn| turn["role"] == "grade-solver").count()
        );
        assert!(!graded.is_empty(), "{transcript}");
        for span in graded {
            assert_eq!(span.attributes["gen_ai.operation.name"], "dyad.grade");
            assert_eq!(span.attributes["dyad.role"], "grade-solver");
        }
    }
}

#[test]
fn a_collector_that_is_busy_twice_loses_nothing() {
    let (program, collector) = (program(), Collector::start(&[503, 503], 200));
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_SERVICE_NAME", "dyad-test"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    let mut running = program.launch("run", &config().save(&program), &environment);
    running.finish(PATIENCE);
    let posted = collector.posted();
    assert!(
        posted[0].body == posted[1].body && posted[1].body == posted[2].body,
        "the same batch again"
    );
    let folder = program.run_folder();
    let run = name(&folder);
    let traces = decode(&collector.taken(), &run);
    assert_eq!(conversations(&traces), by_trace(&run, &folder).keys().collect());
    assert_eq!(traces.len(), conversations(&traces).len() + 6);
}

/// The sampler takes some conversations. Batches come from the agents' own processes.
#[test]
fn processes_send_all_batches_and_no_link_dangles() {
    let (program, collector) = (program(), Collector::start(&[], 200));
    let begun = now();
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_SERVICE_NAME", "dyad-test"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"),
    ];
    let mut running = program.launch("up", &config().save(&program), &environment);
    running.finish(PATIENCE);
    let folder = program.run_folder();
    let run = name(&folder);
    let (traces, written) = (decode(&collector.taken(), &run), by_trace(&run, &folder));
    let sent = conversations(&traces);
    let takes = |trace: &&String| u64::from_str_radix(&trace[16..], 16).unwrap() >> 1 < 1 << 62;
    let taken: BTreeSet<&String> = written.keys().filter(takes).collect();
    assert!(
        taken.len() > 5 && taken.len() < written.len(),
        "{} of {}",
        taken.len(),
        written.len()
    );
    assert_eq!(sent, taken);
    let trained = sent.iter().copied().filter(|trace| written[*trace]["eval"] != true);
    let trained: BTreeSet<&String> = trained.collect();
    for agent in ["a", "b"] {
        let linked = compare_batches((&run, &folder), agent, &traces, (begun, now()));
        assert_eq!(linked.iter().collect::<BTreeSet<_>>(), trained, "batches of {agent}");
    }
    assert_eq!(traces.len(), sent.len() + 6);
    for trace in sent {
        compare_texts(&run, &written[trace], &traces[trace]);
    }
}

/// Compares the texts of a trace with its transcript: the speaker reads the task, and the listener
/// reads the symbols that the speaker said.
fn compare_texts(run: &str, transcript: &Value, spans: &BTreeMap<String, Span>) {
    let conversation = transcript["conversation"].as_str().unwrap();
    let mut new = transcript["prompt"].as_str().unwrap().to_owned();
    let text = |content: &str| json!([{"type": "text", "content": content}]);
    for turn in transcript["turns"].as_array().unwrap() {
        let place = format!(
            "span/{run}/{conversation}/{}/{}/{}",
            turn["role"].as_str().unwrap(),
            turn["seat"],
            turn["turn"]
        );
        let span = &spans[&id(&place, 8)];
        let messages = |name: &str| -> Value { serde_json::from_str(span.attributes[name].as_str().unwrap()).unwrap() };
        let said = turn["text"].as_str().unwrap();
        assert_eq!(messages("gen_ai.output.messages")[0]["parts"], text(said));
        let read = messages("gen_ai.input.messages");
        assert_eq!(read, json!([{"role": "user", "parts": text(&new)}]), "{place}");
        let symbols = said.split_whitespace().filter(|word| word.starts_with('s'));
        new = symbols.collect::<Vec<_>>().join(" ");
    }
}

#[test]
fn a_run_ends_the_same_while_its_collector_refuses() {
    let digests = |program: &Program, environment: &[(&str, &str)]| {
        let mut running = program.launch("run", &config().save(program), environment);
        running.finish(PATIENCE);
        let run = program.run_folder();
        let warned = json_folder(&run.join("logs"));
        let warned = warned
            .iter()
            .filter(|line| line["message"].as_str().unwrap_or_default().starts_with("traces "));
        (["a", "b"].map(|agent| final_digest(&run, agent)), warned.count())
    };
    let without = digests(&program(), &[]);
    assert_eq!(without.1, 0);
    let failing = Collector::start(&[], 500);
    // A port on which no process listens.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [failing.url.clone(), format!("http://{closed}")] {
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_TRACES_SAMPLER", "always_on"),
        ];
        let with = digests(&program(), &environment);
        assert_eq!(with, (without.0.clone(), 1), "one warning per outage");
    }
    assert!(!failing.posted().is_empty());
}

#[test]
fn a_setting_that_cannot_be_used_starts_nothing() {
    let program = program();
    let (config, runs) = (config().save(&program), program.runs());
    for command in ["run", "up"] {
        let mut started = program.command(&[command, &config, "--folder", runs.to_str().unwrap()]);
        started.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let said = fail(2, started.env("OTEL_TRACES_SAMPLER", "sometimes"));
        assert!(
            said.contains("OTEL_TRACES_SAMPLER") && said.contains("sometimes"),
            "{said}"
        );
    }
    assert!(!runs.exists() || std::fs::read_dir(&runs).unwrap().next().is_none());
}
