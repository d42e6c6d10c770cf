//! The servers that a configuration names by URL, and the addresses at which its processes listen,
//! as containers see them.

use std::net::{IpAddr, SocketAddr};

use broker::tls::refuse_plaintext;
use configs::RunConfig;
use reqwest::Url;

use super::paths::Reader;

/// The name of Docker's host in containers that ask for it.
const HOST: &str = "host.docker.internal";

/// A server that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct NamedServer {
    key: String,
    url: String,
    pub(super) reader: Reader,
}

/// Returns every server that a process of the run asks.
pub(super) fn named(config: &RunConfig) -> Vec<NamedServer> {
    let mut all = Vec::new();
    let mut add = |key: String, url: &str, reader: Reader| {
        all.push(NamedServer {
            key,
            url: url.to_owned(),
            reader,
        });
    };
    for (name, grader) in &config.graders {
        if let Some(judge) = grader.judge.as_ref().filter(|judge| judge.agent.is_none()) {
            add(format!("graders.{name}.judge.url"), &judge.url, Reader::Coordinator);
        }
    }
    for (name, tool) in config.tools.iter().filter(|(_, tool)| tool.kind.starts_with("http")) {
        add(format!("tools.{name}.kind"), &tool.kind, Reader::Coordinator);
    }
    for name in config.participants() {
        let engine = &config.agents[&name].engine;
        for url in &engine.urls {
            add(format!("agents.{name}.engine.urls"), url, Reader::Agent(name.clone()));
        }
        if let Some(url) = &engine.weights_url {
            add(
                format!("agents.{name}.engine.weights_url"),
                url,
                Reader::Engine(name.clone()),
            );
        }
    }
    all
}

/// Returns true if the URL names the machine or container of its caller.
pub(super) fn is_loopback(url: &str) -> bool {
    let Some(host) = host(url) else { return false };
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let itself = |address: IpAddr| address.to_canonical().is_loopback() || address.is_unspecified();
    host == "localhost" || host.ends_with(".localhost") || address.is_some_and(itself)
}

fn host(url: &str) -> Option<String> {
    Some(Url::parse(url).ok()?.host_str()?.to_owned())
}

impl NamedServer {
    /// Returns the reason why no container reaches the server, and the fix.
    pub(super) fn problem(&self) -> Option<String> {
        let mut url = Url::parse(&self.url).ok().filter(|_| is_loopback(&self.url))?;
        // The password of a URL is not printed.
        let _ = (url.set_username(""), url.set_password(None));
        let here = url.port().map_or(HOST.to_owned(), |port| format!("{HOST}:{port}"));
        Some(format!(
            "{} has {}, which is the container itself: write the address of the server's host, or {}://{here} for this \
             host (with DYAD_ALLOW_PLAINTEXT=1, here and in .env, if the URL begins with http), and let the server listen \
             on 0.0.0.0",
            self.key,
            url.as_str().trim_end_matches('/'),
            url.scheme()
        ))
    }

    /// Returns true if the server is on Docker's host.
    pub(super) fn is_on_host(&self) -> bool {
        host(&self.url).is_some_and(|host| host == HOST)
    }

    /// Returns true if the server is reached only with DYAD_ALLOW_PLAINTEXT=1.
    pub(super) fn is_plaintext(&self) -> bool {
        self.url.starts_with("http:")
            && host(&self.url).is_some_and(|host| refuse_plaintext(&host, false, "https").is_some())
    }
}

/// An address at which a process of the run listens.
struct Listener {
    key: String,
    address: SocketAddr,
}

fn listeners(config: &RunConfig) -> Vec<Listener> {
    let fronts = config.participants().into_iter().flat_map(|name| {
        let agent = &config.agents[&name];
        let front = agent.http.as_ref().map(|http| http.listen.clone());
        let weights = agent.engine.weights_listen.clone();
        [
            (format!("agents.{name}.http.listen"), front.unwrap_or_default()),
            (format!("agents.{name}.engine.weights_listen"), weights),
        ]
    });
    let metrics = config.run.metrics.iter();
    let metrics = metrics.map(|metrics| ("run.metrics.listen".to_owned(), metrics.listen.clone()));
    let known = |(key, text): (String, String)| {
        let address = text.parse().ok()?;
        Some(Listener { key, address })
    };
    metrics.chain(fronts).filter_map(known).collect()
}

/// Returns a problem for each address that a container does not have.
pub(super) fn foreign_listeners(config: &RunConfig) -> Vec<String> {
    let foreign = listeners(config).into_iter().filter(|listener| {
        let ip = listener.address.ip().to_canonical();
        !ip.is_loopback() && !ip.is_unspecified()
    });
    let problem = |Listener { key, address }| {
        let port = address.port();
        format!("{key} is {address}, an address that the container does not have: write 0.0.0.0:{port}")
    };
    foreign.map(problem).collect()
}

/// Returns a note on each address that only its own container reaches.
pub(super) fn hidden_listeners(config: &RunConfig) -> Vec<String> {
    // Weights have this address by default, and most agents send none.
    let shown = listeners(config)
        .into_iter()
        .filter(|one| !one.key.ends_with("weights_listen"));
    let hidden = shown.filter(|one| one.address.ip().to_canonical().is_loopback());
    let note = |Listener { key, address }| {
        format!(
            "{key} is {address}, which only its container reaches: for others write 0.0.0.0:{}",
            address.port()
        )
    };
    hidden.map(note).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const RESEARCH: &str = include_str!("../../../../configs/deep-research-8b.toml");
    const DOCTOR: &str = include_str!("../../../../configs/doctor-patient-8b.toml");
    const SIGNAL: &str = include_str!("../../../../configs/signal.toml");

    fn config(text: &str) -> RunConfig {
        RunConfig::parse(text, Path::new("x.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn problems(text: &str) -> String {
        let problems = named(&config(text))
            .iter()
            .filter_map(NamedServer::problem)
            .collect::<Vec<_>>();
        problems.join("\n")
    }

    #[test]
    fn every_way_to_write_this_machine_is_loopback() {
        for url in [
            "http://127.0.0.1:1/v1",
            "http://localhost",
            "https://LOCALHOST:8443/x",
            "http://[::1]:1",
            "http://0.0.0.0:8000",
            "http://api.localhost:1",
            "http://[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://judge:8000/v1",
            "http://10.0.0.4:1",
            "https://localhost.example.org",
            "nonsense",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn tools_and_judges_on_loopback_are_refused_by_their_key() {
        let tools = problems(RESEARCH);
        for key in ["tools.search.kind", "tools.visit.kind"] {
            assert!(tools.contains(&format!("{key} has http://127.0.0.1:50001/")), "{tools}");
        }
        assert!(
            tools.contains("http://host.docker.internal:50001 for this host"),
            "{tools}"
        );
        assert!(!problems(DOCTOR).contains("judge.url"), "a service of its own");
        let judge = problems(&DOCTOR.replace("http://judge:8000/v1", "http://localhost:8000/v1"));
        assert!(
            judge.contains("judge.url has http://localhost:8000/v1, which is the container itself"),
            "{judge}"
        );
    }

    #[test]
    fn address_of_another_machine_is_refused_and_loopback_noted() {
        let with = |listen: &str| {
            let front = format!("[agents.a]\nhttp = {{ listen = \"{listen}\" }}");
            config(&SIGNAL.replace("[agents.a]", &front))
        };
        let near = with("127.0.0.1:8001");
        assert!(foreign_listeners(&near).is_empty());
        assert_eq!(
            hidden_listeners(&near),
            ["agents.a.http.listen is 127.0.0.1:8001, which only its container reaches: for others write 0.0.0.0:8001"]
        );
        let far = foreign_listeners(&with("10.0.0.5:8001"));
        assert!(far[0].ends_with("does not have: write 0.0.0.0:8001"), "{far:?}");
        let open = with("0.0.0.0:8001");
        assert!(foreign_listeners(&open).is_empty() && hidden_listeners(&open).is_empty());
    }
}
