//! A TCP relay between a process and a server that delays, stalls, cuts and truncates.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The relay's treatment of bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    Pass,
    /// Every piece is delayed by this time.
    Delay(Duration),
    /// Connections stay open and pass no bytes, as with a pulled cable.
    Stall,
    /// Stalls towards the client only: the server receives, and its answers are held.
    HalfOpen,
    /// New connections are closed at once.
    Refuse,
    /// Each connection is cut in the middle of a piece, after this many bytes from the server.
    Truncate(usize),
}

/// A relay on its own port.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    /// Both ends of every connection.
    sockets: Vec<TcpStream>,
}

impl Proxy {
    /// Starts a relay to a port of this machine.
    #[must_use]
    pub fn new(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            mode: Mode::Pass,
            sockets: Vec::new(),
        };
        let shared = Arc::new(Shared {
            target,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|client| accepting.relay(client)));
        Self { port, shared }
    }

    /// Starts a relay to the server of `url` and returns the URL to use instead.
    #[must_use]
    pub fn before(url: &str) -> (Self, String) {
        let (head, tail) = url.rsplit_once(':').unwrap();
        let (port, path) = tail.split_once('/').unwrap();
        let proxy = Self::new(port.parse().unwrap());
        let url = format!("{head}:{}/{path}", proxy.port);
        (proxy, url)
    }

    /// Changes the mode of open and new connections.
    pub fn set(&self, mode: Mode) {
        self.shared.lock().mode = mode;
        self.shared.changed.notify_all();
    }

    /// Cuts every open connection.
    pub fn cut(&self) {
        for socket in self.shared.lock().sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relay(self: &Arc<Self>, client: TcpStream) {
        if self.lock().mode == Mode::Refuse {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) else {
            return;
        };
        let copy = |socket: &TcpStream| socket.try_clone().unwrap();
        self.lock().sockets.extend([copy(&client), copy(&server)]);
        for (from, to, answers) in [(copy(&client), copy(&server), false), (server, client, true)] {
            let _ = to.set_nodelay(true);
            let shared = self.clone();
            std::thread::spawn(move || shared.pump(from, to, answers));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut passed = 0;
        loop {
            match from.read(&mut buffer) {
                // A client that has closed its sending side still waits for its answer.
                Ok(0) if !answers => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(read @ 1..) => {
                    let length = self.admit(read, &mut passed, answers);
                    if to.write_all(&buffer[..length]).is_err() || length < read {
                        break;
                    }
                }
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
        // Closed sockets have no peer any more.
        self.lock().sockets.retain(|socket| socket.peer_addr().is_ok());
    }

    /// Waits as long as the mode demands and returns how many of `read` bytes may pass.
    fn admit(&self, read: usize, passed: &mut usize, answers: bool) -> usize {
        let mut state = self.lock();
        while state.mode == Mode::Stall || (answers && state.mode == Mode::HalfOpen) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mode = state.mode;
        drop(state);
        match mode {
            Mode::Delay(pause) => std::thread::sleep(pause),
            Mode::Truncate(after) if answers && *passed + read > after => return after.saturating_sub(*passed),
            _ => {}
        }
        *passed += read;
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that echoes everything.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut &stream));
            }
        });
        port
    }

    fn talk(proxy: &Proxy, text: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn bytes_pass_are_held_and_are_cut() {
        let proxy = Proxy::new(echo());
        assert_eq!(talk(&proxy, "hello"), "hello");
        proxy.set(Mode::Truncate(3));
        assert_eq!(talk(&proxy, "hello"), "hel");
        proxy.set(Mode::Refuse);
        assert_eq!(talk(&proxy, "hello"), "");
        for held in [Mode::HalfOpen, Mode::Stall] {
            proxy.set(held);
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
            stream.write_all(b"late").unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(stream.read(&mut [0; 4]).is_err(), "{held:?} holds what is said");
            proxy.set(Mode::Pass);
            stream.set_read_timeout(None).unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"late");
            proxy.cut();
            assert_eq!(stream.read(&mut answer).unwrap_or(0), 0, "cut");
        }
        let pause = Duration::from_millis(50);
        proxy.set(Mode::Delay(pause));
        let began = std::time::Instant::now();
        assert_eq!(talk(&proxy, "slow"), "slow");
        assert!(began.elapsed() >= pause * 2, "there and back");
    }
}
