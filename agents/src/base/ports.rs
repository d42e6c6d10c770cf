//! Ports for tests whose servers come late or come back.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of loopback that is given to nobody else while this lives: bound, and not listened on. Who connects is refused until a
/// server listens there that binds with SO_REUSEADDR, as std's, actix's and Python's do; and again when that server is gone.
#[derive(Debug)]
pub(crate) struct HeldPort(TcpSocket);

impl HeldPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

#[test]
fn a_held_port_is_for_servers_that_come_and_go() {
    use std::net::{TcpListener, TcpStream};
    let held = HeldPort::new();
    for _ in 0..2 {
        assert!(TcpStream::connect(held.address()).is_err(), "nobody is there");
        let server = TcpListener::bind(held.address()).unwrap();
        assert!(TcpStream::connect(held.address()).is_ok());
        assert!(TcpListener::bind(held.address()).is_err(), "one listens, and no second");
        drop(server);
    }
}
