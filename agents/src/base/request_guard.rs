//! Checks the head of a request to a local server: host and token.

use super::secret::{Token, is_own_name};

/// The reason why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestDenied {
    /// The request names a host that a web page could have chosen.
    Host,
    Token,
}

/// The rules for requests.
pub(crate) struct RequestGuard {
    token: Option<Token>,
    /// Names of the server besides addresses and localhost.
    hosts: Vec<String>,
}

impl RequestGuard {
    pub(crate) fn new(token: Option<Token>, hosts: Vec<String>) -> Self {
        Self { token, hosts }
    }

    /// Checks a request by its headers. `authorization` is `None` for a path that needs no token.
    pub(crate) fn allow(&self, host: Option<&[u8]>, authorization: Option<Option<&[u8]>>) -> Result<(), RequestDenied> {
        if !self.is_known(&String::from_utf8_lossy(host.unwrap_or_default())) {
            return Err(RequestDenied::Host);
        }
        match (&self.token, authorization) {
            (Some(token), Some(header)) if !token.is_shown(header) => Err(RequestDenied::Token),
            _ => Ok(()),
        }
    }

    /// Returns true if there is a token and the request presents it.
    pub(crate) fn is_proven(&self, authorization: Option<&[u8]>) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_shown(authorization))
    }

    /// Returns true for a host that no foreign page can name.
    fn is_known(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        is_own_name(host) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_comes_before_token_and_open_paths_need_none() {
        let token = Token::new("T", "0123456789abcdef").unwrap();
        let guard = RequestGuard::new(Some(token), vec!["box.local".into()]);
        let right: Option<&[u8]> = Some(b"Bearer 0123456789abcdef");
        assert_eq!(guard.allow(Some(b"BOX.local:1"), Some(right)), Ok(()));
        assert_eq!(guard.allow(Some(b"127.0.0.1:1"), Some(None)), Err(RequestDenied::Token));
        assert_eq!(guard.allow(Some(b"127.0.0.1:1"), None), Ok(()));
        for forged in [&b"evil.example"[..], b"", b"127.0.0.1.evil.example"] {
            assert_eq!(guard.allow(Some(forged), Some(right)), Err(RequestDenied::Host));
        }
        assert_eq!(guard.allow(None, None), Err(RequestDenied::Host));
        assert!(guard.is_proven(right) && !guard.is_proven(None));
        assert!(
            !RequestGuard::new(None, Vec::new()).is_proven(right),
            "no token is no proof"
        );
    }
}
