//! A collector of the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;

/// A received request. Header names are in lower case.
#[derive(Clone)]
pub(super) struct Posted {
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    /// It may have come compressed.
    pub(super) body: Vec<u8>,
    /// The status of the answer.
    status: u16,
}

/// A collector that gives a list of answers, and from then on always the same.
pub(super) struct Collector {
    pub(super) url: String,
    posted: Arc<Mutex<Vec<Posted>>>,
}

impl Collector {
    pub(super) fn start(first: &[u16], then: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posted: Arc<Mutex<Vec<Posted>>> = Arc::default();
        let (kept, first) = (posted.clone(), first.to_vec());
        std::thread::spawn(move || {
            let statuses = first.into_iter().chain(std::iter::repeat(then));
            for (stream, status) in listener.incoming().flatten().zip(statuses) {
                kept.lock().unwrap().push(receive(stream, status));
            }
        });
        Self { url, posted }
    }

    pub(super) fn posted(&self) -> Vec<Posted> {
        self.posted.lock().unwrap().clone()
    }

    /// Returns the requests that were answered with success.
    pub(super) fn taken(&self) -> Vec<Posted> {
        let mut posted = self.posted();
        posted.retain(|one| one.status == 200);
        posted
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
    if headers.get("content-encoding").is_some_and(|coding| coding == "gzip") {
        let packed = std::mem::take(&mut body);
        GzDecoder::new(&packed[..]).read_to_end(&mut body).unwrap();
    }
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    Posted {
        path,
        headers,
        body,
        status,
    }
}
