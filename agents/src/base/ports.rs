//! Ports for tests with servers that start late or restart.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A loopback port that is reserved while this lives: bound, but without a listener. Connections
/// are refused until a server binds it with SO_REUSEADDR and listens (std, actix and Python do so),
/// and again after that server ends.
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
        assert!(TcpStream::connect(held.address()).is_err(), "no server is there");
        let server = TcpListener::bind(held.address()).unwrap();
        assert!(TcpStream::connect(held.address()).is_ok());
        assert!(
            TcpListener::bind(held.address()).is_err(),
            "a second listener is refused"
        );
        drop(server);
    }
}
