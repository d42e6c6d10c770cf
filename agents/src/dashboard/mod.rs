//! `dyad dashboard`: pages of runs for the browser. It only reads, except with `--write`.
//!
//! [`guard`] checks every request, and [`parameters`] its query. [`assets`] holds the front end, in
//! the binary. [`openapi`] describes the API. [`routes`] connects the paths of the JSON API with
//! the readers in [`api`]. The readers use files by offset, figures of metrics files ([`figures`])
//! and ledgers. Dead letters come a page at a time ([`letter_page`]). [`stream`] sends events:
//! committed turns, thinned by [`sampler`], and new lines of files. [`watch`] shows queues and
//! silent processes to Prometheus. [`CommandAnswers`] passes on the output of commands with
//! `--json`, and makes [`changes`] as the commands do.

pub(crate) mod answer;
mod api;
mod assets;
mod changes;
mod command_answers;
mod figures;
mod guard;
mod letter_page;
mod offsets;
mod openapi;
mod parameters;
mod ready;
mod redact;
mod routes;
mod runs;
mod sampler;
mod server;
mod shapes;
mod stream;
mod token_file;
pub(crate) mod watch;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};

use crate::base::fault::Usage;
use crate::base::log_scope;
use crate::base::secret::{Token, secret_in};
use crate::observe::metrics_token;
pub use command_answers::{ChangeRefused, CommandAnswers, PageChange, TaskOutcome};
use guard::Guard;
pub use letter_page::{DeadLetter, LetterFacts, LetterPage};
pub use runs::Runs;
use server::Server;
use token_file::TokenFile;

/// Environment variable with the token; without it a random one is made.
pub const VARIABLE: &str = "DYAD_DASHBOARD_TOKEN";
/// The address without `--listen`.
pub const ADDRESS: &str = "127.0.0.1:7070";
/// The most open connections.
const CONNECTIONS: usize = 64;
/// The time within which a request's head must arrive.
const HEAD: Duration = Duration::from_secs(5);

/// The settings of a dashboard, checked before anything is started.
pub struct Plan {
    address: SocketAddr,
    guard: Guard,
    /// The token as text, for the URL.
    secret: Option<String>,
    /// True if the token was made here: no variable holds it.
    is_random: bool,
}

impl Plan {
    /// Checks the settings. `hosts` are names that a request may use besides addresses.
    ///
    /// # Errors
    /// A token is weak, or other machines reach the address and the token is random or missing.
    pub fn new(address: SocketAddr, with_token: bool, hosts: Vec<String>) -> Result<Self, Usage> {
        let given = secret_in(VARIABLE)?;
        let is_private = address.ip().to_canonical().is_loopback();
        if !is_private && (given.is_none() || !with_token) {
            let message =
                format!("{address} is reached by other machines, so the dashboard needs the token of {VARIABLE}");
            return Err(Usage::new(message).hint(format!(
                "set {VARIABLE} (`openssl rand -hex 32` makes a good one), or listen on 127.0.0.1"
            )));
        }
        let is_random = with_token && given.is_none();
        let secret = with_token.then(|| given.unwrap_or_else(random));
        let token = secret
            .as_deref()
            .map(|secret| Token::new(VARIABLE, secret))
            .transpose()?;
        Ok(Self {
            address,
            guard: Guard::new(token, hosts).with_metrics(metrics_token()?),
            secret,
            is_random,
        })
    }

    /// Lets pages change runs: publish tasks, handle dead letters, give orders.
    #[must_use]
    pub fn writing(mut self, writes: bool) -> Self {
        self.guard = self.guard.writing(writes);
        self
    }
}

/// Returns 244 random bits as text.
fn random() -> String {
    let half = || uuid::Uuid::new_v4().simple().to_string();
    half() + &half()
}

/// A dashboard that is being served.
pub struct Served {
    /// The URL for the browser, with the token.
    pub url: String,
    server: ServerHandle,
    /// Removes its file on drop.
    _token_file: Option<TokenFile>,
}

/// Begins to serve. Must be called in a runtime.
///
/// # Errors
/// Fails if the address cannot be listened on.
pub fn serve(plan: Plan, runs: Runs, commands: Arc<dyn CommandAnswers>) -> anyhow::Result<Served> {
    let Plan {
        address,
        guard,
        secret,
        is_random,
    } = plan;
    let folder = runs.folder().to_owned();
    let state = Data::new(Server::new(guard, runs, commands));
    let app = move || {
        App::new()
            .app_data(state.clone())
            .wrap(from_fn(parameters::check))
            .wrap(from_fn(guard::check))
            .wrap(guard::headers())
            .configure(routes::routes)
    };
    let server = HttpServer::new(app)
        .workers(1)
        .max_connections(CONNECTIONS)
        .client_request_timeout(HEAD)
        // A client that disconnects is noticed, and its stream ends.
        .h1_allow_half_closed(false)
        .tcp_nodelay(true)
        .disable_signals()
        .shutdown_timeout(1)
        .bind(address)
        .map_err(|error| cannot_listen(address, &error))?;
    let address = server.addrs().first().copied().unwrap_or(address);
    let server = server.run();
    let handle = server.handle();
    log_scope::spawn(server);
    let made = secret.as_deref().filter(|_| is_random);
    let token_file = made.and_then(|token| TokenFile::write(&folder, address.port(), token));
    let token = secret.map(|secret| format!("#token={secret}")).unwrap_or_default();
    Ok(Served {
        url: format!("http://{address}/{token}"),
        server: handle,
        _token_file: token_file,
    })
}

/// Explains why the dashboard cannot listen on an address, and names one that works.
pub fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Usage {
    let port = match error.kind() {
        ErrorKind::AddrInUse => "another program has this port, perhaps another dashboard: ",
        _ => "",
    };
    let free = SocketAddr::new(address.ip(), 0);
    Usage::new(format!("the dashboard cannot listen on {address}: {error}"))
        .hint(format!("{port}name another port, or {free} for a free one"))
}

impl Served {
    pub async fn close(&self) {
        self.server.stop(false).await;
    }
}

#[cfg(test)]
mod series_reference;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_others_reach_needs_a_token_of_its_own() {
        let plan = |address: &str, with_token| Plan::new(address.parse().unwrap(), with_token, vec![]);
        assert!(plan(ADDRESS, false).is_ok(), "the address without --listen is private");
        let private = plan("127.0.0.1:0", true).unwrap();
        assert!(private.secret.is_some_and(|secret| secret.len() == 64));
        assert!(plan("[::1]:0", false).unwrap().secret.is_none());
        for open in ["0.0.0.0:7070", "192.168.0.4:7070", "[::]:7070"] {
            let error = plan(open, true).err().unwrap();
            assert!(error.message.contains(VARIABLE), "{error}");
        }
    }
}
