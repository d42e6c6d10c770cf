//! Traces of a real run, received by a collector of the test: they say what the transcripts say.
//! Bodies are decoded here by the tags of OTLP, not by the program's own types.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::ids::Digest;
use serde_json::{Value, json};
use tests::program::{Program, fail, json_folder};
use tests::small::Small;
use tests::trace::{final_digest, transcripts};

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);

/// A received request: its path, its headers in lower case, and its body.
type Posted = (String, BTreeMap<String, String>, Vec<u8>);

/// A collector that answers every request with one status.
struct Collector {
    url: String,
    posted: Arc<Mutex<Vec<Posted>>>,
}

impl Collector {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posted: Arc<Mutex<Vec<Posted>>> = Arc::default();
        let kept = posted.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                kept.lock().unwrap().push(receive(stream, status));
            }
        });
        Self { url, posted }
    }

    fn posted(&self) -> Vec<Posted> {
        self.posted.lock().unwrap().clone()
    }
}

fn receive(mut stream: TcpStream, status: u16) -> Posted {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    (path, headers, body)
}

/// A field of a message: its tag, and a number or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    number
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk::<8>().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

/// Returns the messages, texts or byte strings with a tag.
fn inner<'a>(bytes: &'a [u8], tag: u64) -> Vec<&'a [u8]> {
    let with_tag = |(own, field): (u64, Field<'a>)| match field {
        Field::Bytes(bytes) if own == tag => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(with_tag).collect()
}

/// Returns the number with a tag; 0 is not encoded.
fn number(bytes: &[u8], tag: u64) -> u64 {
    let with_tag = |(own, field): (u64, Field<'_>)| match field {
        Field::Number(number) if own == tag => Some(number),
        _ => None,
    };
    fields(bytes).into_iter().find_map(with_tag).unwrap_or(0)
}

fn text(bytes: &[u8], tag: u64) -> String {
    let found = inner(bytes, tag);
    String::from_utf8(found.first().map_or_else(Vec::new, |text| text.to_vec())).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns an `AnyValue`.
fn any(bytes: &[u8]) -> Value {
    let (tag, field) = fields(bytes).pop().unwrap();
    match (tag, field) {
        (1, Field::Bytes(text)) => json!(std::str::from_utf8(text).unwrap()),
        (2, Field::Number(flag)) => json!(flag == 1),
        (3, Field::Number(number)) => json!(number as i64),
        (4, Field::Number(bits)) => json!(f64::from_bits(bits)),
        (5, Field::Bytes(list)) => inner(list, 1).into_iter().map(any).collect(),
        _ => panic!("value with tag {tag}"),
    }
}

/// Returns the attributes with this tag.
fn attributes(bytes: &[u8], tag: u64) -> BTreeMap<String, Value> {
    let pairs = inner(bytes, tag).into_iter();
    pairs.map(|pair| (text(pair, 1), any(inner(pair, 2)[0]))).collect()
}

#[derive(Debug)]
struct Span {
    parent: String,
    name: String,
    kind: u64,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, Value>,
}

/// Spans by their ids, of each trace by its id.
type Traces = BTreeMap<String, BTreeMap<String, Span>>;

/// Decodes the bodies. Each comes from this run.
fn decode(posted: &[Posted], run: &str) -> Traces {
    let mut traces = Traces::new();
    for (_, _, body) in posted {
        for resource_spans in inner(body, 1) {
            let sender = attributes(inner(resource_spans, 1)[0], 1);
            assert_eq!(
                (&sender["service.name"], &sender["dyad.run"]),
                (&json!("dyad-test"), &json!(run))
            );
            for scope_spans in inner(resource_spans, 2) {
                assert_eq!(text(scope_spans, 3), "https://opentelemetry.io/schemas/1.41.0");
                for span in inner(scope_spans, 2) {
                    let (trace, id) = (hex(inner(span, 1)[0]), hex(inner(span, 2)[0]));
                    let read = Span {
                        parent: inner(span, 4).first().map_or_else(String::new, |id| hex(id)),
                        name: text(span, 5),
                        kind: number(span, 6),
                        start: number(span, 7),
                        end: number(span, 8),
                        attributes: attributes(span, 9),
                    };
                    let before = traces.entry(trace).or_default().insert(id, read);
                    assert!(before.is_none(), "a span is sent once");
                }
            }
        }
    }
    traces
}

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
        assert!(!span.attributes.contains_key("gen_ai.output.messages"), "texts are off");
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

#[test]
fn every_trace_of_a_run_equals_its_transcript() {
    let (program, collector) = (program(), Collector::start(200));
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
    let posted = collector.posted();
    for (path, headers, _) in &posted {
        assert_eq!((path.as_str(), headers["x-scope"].as_str()), ("/v1/traces", "a b"));
        assert_eq!(headers["content-type"], "application/x-protobuf");
    }
    let folder = program.run_folder();
    let run = name(&folder);
    let traces = decode(&posted, &run);
    let written = transcripts(&folder);
    assert!(
        written.iter().any(|one| one["eval"] == true) && written.len() > 24,
        "{}",
        written.len()
    );
    assert_eq!(traces.len(), written.len());
    for transcript in &written {
        let conversation = transcript["conversation"].as_str().unwrap();
        let trace = &traces[&id(&format!("trace/{run}/{conversation}"), 16)];
        compare(&run, transcript, trace, times);
    }
}

#[test]
fn a_run_ends_the_same_while_its_collector_refuses() {
    let digests = |program: &Program, environment: &[(&str, &str)]| {
        let mut running = program.launch("run", &config().save(program), environment);
        running.finish(PATIENCE);
        let run = program.run_folder();
        let warned = json_folder(&run.join("logs"));
        let warned = warned.iter().filter(|line| {
            line["message"]
                .as_str()
                .unwrap_or_default()
                .starts_with("traces are dropped")
        });
        (["a", "b"].map(|agent| final_digest(&run, agent)), warned.count())
    };
    let without = digests(&program(), &[]);
    assert_eq!(without.1, 0);
    let failing = Collector::start(500);
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
