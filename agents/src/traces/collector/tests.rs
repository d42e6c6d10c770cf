use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Instant as Clock;

use super::*;
use crate::traces::export::{Exporter, TraceQueue, WAITING};
use crate::traces::ids::Sampler;

/// The requests that a server received: when, and their bodies.
type Posted = Arc<Mutex<Vec<(Clock, Vec<u8>)>>>;

/// An answer of the server: its status and further headers. A status of 0 closes the connection.
type Said = (u16, &'static str);

/// Starts a collector that gives these answers in turn, and then takes everything.
fn server(answers: &[Said]) -> (String, Posted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let posted = Posted::default();
    let (kept, answers) = (posted.clone(), answers.to_vec());
    std::thread::spawn(move || {
        let answers = answers.into_iter().chain(std::iter::repeat((200, "")));
        for (stream, (status, more)) in listener.incoming().flatten().zip(answers) {
            let mut stream = stream;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                let header = line.trim().to_lowercase();
                length = header
                    .strip_prefix("content-length: ")
                    .map_or(length, |text| text.parse().unwrap());
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            kept.lock().unwrap().push((Clock::now(), body));
            if status > 0 {
                let head = format!("HTTP/1.1 {status} Said\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
            }
        }
    });
    (url, posted)
}

fn start(url: String) -> (Exporter, TraceQueue) {
    let plan = TracesPlan {
        url,
        headers: HeaderMap::new(),
        service: "dyad".into(),
        sampler: Sampler { ratio: 1.0 },
        texts: false,
    };
    let exporter = Exporter::start(plan, &RunId::new("r").unwrap()).unwrap();
    let queue = exporter.queue();
    (exporter, queue)
}

fn trace(name: &str) -> Vec<Span> {
    vec![Span {
        name: name.into(),
        ..Span::default()
    }]
}

/// The names of the spans in a body.
fn names(body: &[u8]) -> Vec<String> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let spans = request.resource_spans.iter().flat_map(|one| &one.scope_spans);
    spans.flat_map(|one| &one.spans).map(|span| span.name.clone()).collect()
}

/// Sends two traces to a collector with these answers. Returns the names of each request's spans,
/// the times between requests, and the number of dropped traces.
async fn sent(answers: &[Said]) -> (Vec<Vec<String>>, Vec<Duration>, u64) {
    let (url, posted) = server(answers);
    let (exporter, queue) = start(url);
    queue.add(trace("first"));
    queue.add(trace("second"));
    let shared = exporter.shared();
    exporter.close().await;
    let posted = posted.lock().unwrap();
    let bodies = posted.iter().map(|(_, body)| names(body)).collect();
    let pauses = posted.windows(2).map(|two| two[1].0 - two[0].0).collect();
    (bodies, pauses, shared.dropped())
}

#[tokio::test]
async fn a_batch_that_is_refused_for_now_is_sent_again() {
    for status in [429, 502, 503, 504, 0] {
        let (bodies, _, dropped) = sent(&[(status, ""), (status, "")]).await;
        let batch = vec!["first".to_owned(), "second".to_owned()];
        assert_eq!((bodies, dropped), (vec![batch; 3], 0), "status {status}");
    }
}

#[tokio::test]
async fn the_pause_that_the_collector_asks_for_is_kept() {
    let (bodies, pauses, dropped) = sent(&[(503, "Retry-After: 1\r\n"), (503, "")]).await;
    assert_eq!((bodies.len(), dropped), (3, 0));
    assert!(pauses[0] >= Duration::from_secs(1), "{pauses:?}");
    assert!(pauses[1] < Duration::from_secs(1), "{pauses:?}");
}

#[tokio::test]
async fn a_batch_that_is_rejected_for_good_is_dropped_at_once() {
    for status in [400, 401, 413, 500] {
        let (bodies, _, dropped) = sent(&[(status, "")]).await;
        assert_eq!((bodies.len(), dropped), (1, 2), "status {status}");
    }
}

/// Sends a trace to a collector that refuses it for a second, adds more traces meanwhile, and
/// closes. Returns the names of each request's spans and the number of dropped traces.
async fn sent_during_an_outage(more: impl IntoIterator<Item = Vec<Span>>) -> (Vec<Vec<String>>, u64) {
    let (url, posted) = server(&[(503, "Retry-After: 1\r\n")]);
    let (exporter, queue) = start(url);
    queue.add(trace("before"));
    let is_refused = async {
        while posted.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_refused).await.unwrap();
    more.into_iter().for_each(|spans| queue.add(spans));
    let shared = exporter.shared();
    exporter.close().await;
    let posted = posted.lock().unwrap();
    (posted.iter().map(|(_, body)| names(body)).collect(), shared.dropped())
}

#[tokio::test]
async fn traces_that_come_during_an_outage_follow_the_refused_batch() {
    let (bodies, dropped) = sent_during_an_outage([trace("during")]).await;
    let expected = ["before", "before", "during"].map(|name| vec![name.to_owned()]);
    assert_eq!((bodies, dropped), (expected.to_vec(), 0));
}

#[tokio::test]
async fn traces_beyond_the_bound_are_dropped_during_an_outage() {
    let large = || trace(&"x".repeat(WAITING / 4 - 64));
    let (bodies, dropped) = sent_during_an_outage((0..6).map(|_| large())).await;
    let large = bodies.iter().flatten().filter(|name| name.len() > 10).count();
    assert_eq!((&bodies[1], large, dropped), (&vec!["before".to_owned()], 4, 2));
}
