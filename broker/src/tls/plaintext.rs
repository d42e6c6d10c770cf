//! Hosts that need no TLS: this machine, and a container's network.

/// Returns the reason why a host must not be used in plaintext, or `None` if it may.
#[must_use]
pub fn refuse_plaintext(host: &str, allowed: bool, scheme: &str) -> Option<String> {
    if allowed || stays_inside(host) {
        return None;
    }
    Some(format!(
        "plaintext to {host}, which may be another machine: use {scheme}://, or set DYAD_ALLOW_PLAINTEXT=1 if the network is \
         trusted"
    ))
}

/// Returns true for this machine, or for the bare name of a container's network, where no name has
/// dots.
fn stays_inside(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => !host.is_empty() && !host.contains(['.', ':']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_machine_or_in_a_container_network() {
        for inside in ["127.0.0.1", "127.8.9.1", "localhost", "[::1]", "::1", "rabbitmq"] {
            assert_eq!(refuse_plaintext(inside, false, "amqps"), None, "{inside}");
        }
        for outside in [
            "10.0.0.4",
            "rabbit.example.org",
            "localhost.example.org",
            "2001:db8::1",
            "",
        ] {
            let reason = refuse_plaintext(outside, false, "rediss").unwrap();
            assert!(
                reason.contains("rediss://") && reason.contains("DYAD_ALLOW_PLAINTEXT"),
                "{reason}"
            );
            assert_eq!(refuse_plaintext(outside, true, "rediss"), None, "{outside}");
        }
    }
}
