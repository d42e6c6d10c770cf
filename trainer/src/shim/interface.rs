//! The network interfaces of this machine.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address, and the name of the interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

impl Interface {
    /// Lists the addresses of all interfaces.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let mut first = std::ptr::null_mut();
        // SAFETY: on success the call makes a list and writes its first entry.
        if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut found = Vec::new();
        let mut next = first;
        // SAFETY: each entry is null or valid until the list is freed below.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: the name ends with zero; the address is null or valid.
            if let Some(address) = unsafe { address(entry.ifa_addr) } {
                let name = unsafe { CStr::from_ptr(entry.ifa_name) };
                let name = name.to_string_lossy().into_owned();
                found.push(Self { name, address });
            }
            next = entry.ifa_next;
        }
        // SAFETY: `first` came from `getifaddrs` and is freed once.
        unsafe { libc::freeifaddrs(first) };
        Ok(found)
    }

    /// Returns the interface of `address` among `all`. The whole of 127.0.0.0/8 belongs to that of
    /// 127.0.0.1.
    pub(crate) fn of(address: IpAddr, all: &[Self]) -> Option<&Self> {
        let wanted = match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            other => other,
        };
        all.iter().find(|interface| interface.address == wanted)
    }
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: promised by the caller; the family decides the type.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn interface_of_an_address_is_the_one_that_has_it() {
        let all = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("public", "203.0.113.7"),
            ("private", "10.1.0.5"),
            ("private", "fd12::7"),
        ];
        let all = all.map(|(name, address)| Interface {
            name: name.into(),
            address: ip(address),
        });
        let of = |address| Interface::of(ip(address), &all).map(|found| found.name.as_str());
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(of(address), Some("lo"), "{address}");
        }
        for address in ["10.1.0.5", "fd12::7", "::ffff:10.1.0.5"] {
            assert_eq!(of(address), Some("private"), "{address}");
        }
        assert_eq!(of("10.1.0.6"), None, "another host's");
    }

    #[test]
    fn this_machine_s_own_addresses_have_interfaces() {
        let all = Interface::all().unwrap();
        let name = |address| Interface::of(address, &all).map(|found| found.name.as_str());
        assert_eq!(name(ip("127.0.0.7")), Some("lo"));
        // The address on the way out, on a machine with a network.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            let name = name(own).unwrap();
            assert!(own.is_loopback() || name != "lo", "{own} is on {name}");
        }
    }
}
