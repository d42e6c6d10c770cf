//! Ranks that torchrun, Slurm or another launcher starts, on one host or several: each process
//! takes its place from the launcher's variables, as PyTorch's `init_process_group("env://")` does.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::Context;
use configs::{AgentConfig, DeviceName};

use crate::base::fault::Usage;
use crate::run_folder::connect::allows_plaintext;

/// The variables of a launched process. torchrun sets all of them.
const VARIABLES: [&str; 5] = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"];
/// "True" if torchrun's own process is the server at MASTER_PORT.
const AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";
/// Counts torchrun's restarts of all ranks.
const RESTARTS: &str = "TORCHELASTIC_RESTART_COUNT";

/// The place of a launched process among the ranks of a trainer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    pub rank: usize,
    pub world_size: usize,
    /// The place among the ranks of this host.
    pub local_rank: usize,
    /// The address of the server where the ranks meet.
    pub(crate) master: SocketAddr,
    /// True if this process is that server.
    pub(crate) serves: bool,
    /// Ranks of an earlier start have another number and cannot join.
    pub(crate) restart: u64,
}

impl Launched {
    /// Reads the launcher's variables; `None` if none of them is set.
    ///
    /// # Errors
    /// Variables are missing or invalid, or the ranks would meet on a public address.
    pub fn of_environment() -> anyhow::Result<Option<Self>> {
        Self::read(|name| std::env::var(name).ok(), allows_plaintext())
    }

    /// `public_allowed`: the user trusts a network of public addresses.
    fn read(variable: impl Fn(&str) -> Option<String>, public_allowed: bool) -> anyhow::Result<Option<Self>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let missing: Vec<&str> = VARIABLES.into_iter().filter(|name| variable(name).is_none()).collect();
        if missing.len() == VARIABLES.len() {
            return Ok(None);
        }
        if !missing.is_empty() {
            return Err(half_set(&missing));
        }
        let number = |name: &str| -> anyhow::Result<usize> {
            let value = variable(name).unwrap_or_default();
            let parsed = value.parse();
            parsed.map_err(|_| Usage::new(format!("{name} is {value:?}: it must be a number, 0 or more")).into())
        };
        let (rank, world_size) = (number("RANK")?, number("WORLD_SIZE")?);
        if rank >= world_size {
            return Err(Usage::new(format!(
                "RANK is {rank}: it must be below WORLD_SIZE, which is {world_size}"
            ))
            .into());
        }
        let host = variable("MASTER_ADDR").unwrap_or_default();
        let master = master(&host, number("MASTER_PORT")?)?;
        if !public_allowed && !is_private(master.ip()) {
            return Err(public(&host, master.ip()));
        }
        let hosted = variable(AGENT_STORE).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Ok(Some(Self {
            rank,
            world_size,
            local_rank: number("LOCAL_RANK")?,
            master,
            serves: rank == 0 && !hosted,
            restart: variable(RESTARTS).and_then(|value| value.parse().ok()).unwrap_or(0),
        }))
    }

    /// The device of this rank: that of its place among the ranks of its host.
    ///
    /// # Errors
    /// `train.devices` has no such place.
    pub(crate) fn device(&self, settings: &AgentConfig) -> anyhow::Result<DeviceName> {
        let devices = &settings.train.devices;
        match devices.get(self.local_rank) {
            Some(device) => Ok(*device),
            None if devices.is_empty() && self.local_rank == 0 => Ok(settings.device),
            None => {
                let (place, count) = (self.local_rank, devices.len());
                let problem = format!("LOCAL_RANK is {place}, and train.devices names {count} devices");
                let hint = "start as many ranks on each host as train.devices names, or add a device for each rank";
                Err(Usage::new(problem).hint(hint).into())
            }
        }
    }

    /// This host's address on the way to the server. The other ranks reach this rank there.
    ///
    /// # Errors
    /// Errors of the operating system: there is no way to the server.
    pub(crate) fn address(&self) -> anyhow::Result<IpAddr> {
        let any: SocketAddr = match self.master {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        // Connecting a datagram socket sends nothing: it only chooses the way.
        let chosen = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(self.master)?;
            socket.local_addr()
        });
        let chosen = chosen.with_context(|| format!("there is no way to MASTER_ADDR {}", self.master.ip()))?;
        Ok(chosen.ip())
    }
}

fn half_set(missing: &[&str]) -> anyhow::Error {
    let set = VARIABLES.into_iter().filter(|name| !missing.contains(name));
    let set: Vec<&str> = set.collect();
    let problem = format!(
        "{} set, but {} not: a rank needs all of {}",
        are(&set),
        are(missing),
        VARIABLES.join(", ")
    );
    let hint = "start the ranks with torchrun, set all five yourself, or unset them for a trainer of one process";
    Usage::new(problem).hint(hint).into()
}

fn are(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// Resolves the server's address. An address of every interface is rejected: the server has no
/// password.
fn master(host: &str, port: usize) -> anyhow::Result<SocketAddr> {
    let port = u16::try_from(port)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Usage::new(format!("MASTER_PORT is {port}: it must be from 1 to 65535")))?;
    let found = (host, port).to_socket_addrs();
    let mut found = found.with_context(|| format!("MASTER_ADDR is {host:?}, which has no address"))?;
    let address = found
        .next()
        .with_context(|| format!("MASTER_ADDR is {host:?}, which has no address"))?;
    if address.ip().is_unspecified() {
        let problem = format!("MASTER_ADDR is {host}: the ranks would meet on every address, without a password");
        let hint = "name the private address of rank 0's host, or 127.0.0.1 for ranks of one host";
        return Err(Usage::new(problem).hint(hint).into());
    }
    Ok(address)
}

/// Returns true for this machine's own addresses and for those that no router of the Internet
/// forwards: RFC 1918, 100.64.0.0/10, unique local, link-local.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let shared = first == 100 && (64..128).contains(&second);
            shared || v4.is_loopback() || v4.is_private() || v4.is_link_local()
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn public(host: &str, address: IpAddr) -> anyhow::Error {
    let problem = format!(
        "MASTER_ADDR is {host}, with the public address {address}: the ranks would meet there without a password"
    );
    let hint = "name a private address of rank 0's host (torchrun: --master-addr or --local-addr), or set \
                DYAD_ALLOW_PLAINTEXT=1 if the network is trusted";
    Usage::new(problem).hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str); 5] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29511"),
    ];

    fn read(changes: &[(&str, &str)]) -> anyhow::Result<Option<Launched>> {
        read_in(changes, false)
    }

    fn read_in(changes: &[(&str, &str)], public_allowed: bool) -> anyhow::Result<Option<Launched>> {
        let all = ALL.iter().chain(changes);
        let all: std::collections::BTreeMap<&str, &str> = all.copied().collect();
        Launched::read(|name| all.get(name).map(ToString::to_string), public_allowed)
    }

    fn refused(changes: &[(&str, &str)]) -> String {
        read(changes).unwrap_err().to_string()
    }

    #[test]
    fn place_comes_from_the_variables_of_torchrun() {
        assert_eq!(Launched::read(|_| None, false).unwrap(), None);
        let here = read(&[]).unwrap().unwrap();
        assert_eq!((here.rank, here.world_size, here.local_rank), (3, 4, 1));
        assert_eq!(here.master, "127.0.0.1:29511".parse().unwrap());
        assert!(!here.serves && here.restart == 0);
        assert!(read(&[("RANK", "0")]).unwrap().unwrap().serves);
        let under = [("RANK", "0"), (AGENT_STORE, "True"), (RESTARTS, "2")];
        let under = read(&under).unwrap().unwrap();
        assert!(!under.serves && under.restart == 2, "torchrun is the server");
    }

    #[test]
    fn half_set_or_senseless_variables_are_refused() {
        let half = refused(&[("MASTER_ADDR", ""), ("LOCAL_RANK", "")]);
        assert!(
            half.contains("RANK, WORLD_SIZE, MASTER_PORT are set, but LOCAL_RANK, MASTER_ADDR are not"),
            "{half}"
        );
        assert!(refused(&[("RANK", "4")]).contains("below WORLD_SIZE"));
        assert!(refused(&[("WORLD_SIZE", "many")]).contains("must be a number"));
        assert!(refused(&[("MASTER_PORT", "70000")]).contains("from 1 to 65535"));
        assert!(refused(&[("MASTER_ADDR", "0.0.0.0")]).contains("every address"));
    }

    #[test]
    fn public_master_address_needs_the_switch() {
        let private = [
            "localhost",
            "127.9.9.9",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.7.7",
            "100.64.0.1",
            "100.127.9.9",
            "169.254.1.1",
            "::1",
            "fd12::7",
            "fe80::1",
            "::ffff:10.0.0.1",
        ];
        for address in private {
            assert!(read(&[("MASTER_ADDR", address)]).is_ok(), "{address}");
        }
        let public = [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "192.169.0.1",
            "2001:db8::1",
            "::ffff:8.8.8.8",
        ];
        for address in public {
            let change = [("MASTER_ADDR", address)];
            let error = read(&change).unwrap_err();
            let hint = error.downcast_ref::<Usage>().and_then(|usage| usage.hint.as_deref());
            assert!(
                hint.is_some_and(|hint| hint.contains("DYAD_ALLOW_PLAINTEXT=1")),
                "{address}: {error}"
            );
            assert!(read_in(&change, true).is_ok(), "{address}, allowed");
        }
        assert!(
            read_in(&[("MASTER_ADDR", "0.0.0.0")], true).is_err(),
            "never on every address"
        );
    }

    #[test]
    fn rank_listens_on_its_way_to_the_server() {
        let here = read(&[]).unwrap().unwrap();
        assert_eq!(here.address().unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
