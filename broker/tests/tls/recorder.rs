//! A relay that records the client's bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) struct Recorder {
    port: u16,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// The port of this machine that it relays to.
    pub(crate) fn new(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = sent.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
                let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let kept = kept.clone();
                std::thread::spawn(move || pump(from, to, |bytes| kept.lock().unwrap().extend(bytes)));
                std::thread::spawn(move || pump(server, client, |_| ()));
            }
        });
        Self { port, sent }
    }

    /// The port for clients.
    pub(crate) fn place(&self) -> String {
        format!(":{}/", self.port)
    }

    /// Fails if the client sent anything except handshakes, or nothing.
    pub(crate) fn assert_only_handshakes(&self, secret: &str) {
        let sent = self.sent.lock().unwrap();
        let has = |text: &[u8]| sent.windows(text.len()).any(|window| window == text);
        // The TLS record type of a handshake.
        assert!(sent.starts_with(&[0x16, 3]), "{sent:?}");
        for clear in ["AMQP", "PLAIN", "AUTH", "HELLO", "dyad", secret] {
            assert!(!has(clear.as_bytes()), "{clear} was sent in the clear");
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        see(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
