//! A TCP relay in front of a server. The relay can delay, hold, truncate and cut connections, and
//! refuse new ones.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The relay's treatment of connections and their bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    Pass,
    /// Waits for this time before each write, in both directions.
    Delay(Duration),
    /// Holds all bytes until the mode changes. Connections stay open, as with a pulled cable.
    Stall,
    /// Holds only the bytes from the server; the server still receives the client's.
    HalfOpen,
    /// Closes each new connection at once. Open connections pass bytes.
    Refuse,
    /// Cuts each connection after this many bytes from the server, counted since it was opened. The
    /// cut may be in the middle of a message.
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
    /// The client's and the server's socket of every open connection.
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
        for (from, to, from_server) in [(copy(&client), copy(&server), false), (server, client, true)] {
            let _ = to.set_nodelay(true);
            let shared = self.clone();
            std::thread::spawn(move || shared.pump(from, to, from_server));
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, from_server: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut passed = 0;
        loop {
            match from.read(&mut buffer) {
                // A client that has closed its sending side still waits for its answer.
                Ok(0) if !from_server => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(read @ 1..) => {
                    let length = self.admit(read, &mut passed, from_server);
                    if to.write_all(&buffer[..length]).is_err() || length < read {
                        break;
                    }
                }
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
        // Removes the closed sockets: they have no peer address.
        self.lock().sockets.retain(|socket| socket.peer_addr().is_ok());
    }

    /// Waits as long as the mode demands. Returns how many of the `read` bytes may pass. If not all
    /// may pass, the caller must cut the connection after them.
    fn admit(&self, read: usize, passed: &mut usize, from_server: bool) -> usize {
        let mut state = self.lock();
        while state.mode == Mode::Stall || (from_server && state.mode == Mode::HalfOpen) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mode = state.mode;
        drop(state);
        match mode {
            Mode::Delay(pause) => std::thread::sleep(pause),
            Mode::Truncate(after) if from_server && *passed + read > after => return after.saturating_sub(*passed),
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

    /// Sends `text` on a new connection, closes the sending side and returns what the relay passes
    /// back.
    fn exchange(proxy: &Proxy, text: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn relay_passes_holds_delays_and_cuts_bytes() {
        let proxy = Proxy::new(echo());
        assert_eq!(exchange(&proxy, "hello"), "hello");
        proxy.set(Mode::Truncate(3));
        assert_eq!(exchange(&proxy, "hello"), "hel");
        proxy.set(Mode::Refuse);
        assert_eq!(exchange(&proxy, "hello"), "");
        for held in [Mode::HalfOpen, Mode::Stall] {
            proxy.set(held);
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
            stream.write_all(b"late").unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(stream.read(&mut [0; 4]).is_err(), "{held:?} holds bytes");
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
        assert_eq!(exchange(&proxy, "slow"), "slow");
        assert!(began.elapsed() >= pause * 2, "both directions are delayed");
    }
}
