//! Ports of servers that start after their address is known, or that are away for a time.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// Below the ports that Linux hands out itself (32768 and above by default).
const QUIET: Range<u16> = 20_000..32_000;

/// Ports that this process holds until it ends.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns a port of loopback on which no server listens. The system does not hand it out, and no
/// other test receives it until this process ends.
#[must_use]
pub fn quiet_port() -> u16 {
    // Each process begins at another place: a client that still looks for the server of an earlier
    // test must not find the next test's.
    let first = std::process::id() as usize * 16 % QUIET.len();
    let mut from_there = QUIET.cycle().skip(first).take(QUIET.len());
    let (port, hold) = from_there
        .find_map(|port| Some((port, hold(port)?)))
        .expect("one of twelve thousand ports is free, and abstract sockets are allowed");
    HELD.lock().unwrap().push(hold);
    port
}

/// Holds a port by an abstract socket name, which the system frees when the process ends. Returns
/// `None` if another process holds the name or listens on the port.
fn hold(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("dyad-tests-port-{port}")).unwrap();
    let hold = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(hold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_whoever_was_given_it_may_listen() {
        let (one, other) = (quiet_port(), quiet_port());
        assert_ne!(one, other);
        assert!(hold(one).is_none() && hold(other).is_none(), "no other test gets it");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, one)).unwrap();
        drop(taken);
        let apart = QUIET.rev().find_map(|port| Some((port, hold(port)?))).unwrap();
        let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, apart.0)).unwrap();
        drop(apart.1);
        assert!(hold(apart.0).is_none(), "somebody listens there");
        drop(busy);
        assert!(hold(apart.0).is_some(), "what was let go may be had again");
    }
}
