//! Fake servers with the interfaces of SGLang and vLLM, made from their documentation: no real
//! server was available.
//!
//! They really compute: a small model, read from the published folders, samples every token, so
//! log-probs are true. Each token's context is recomputed, so the cache always matches the weights.
//! [`model`] computes, [`sglang`] and [`vllm`] have the routes, [`FakeFault`] lists the failures.

mod generate;
mod model;
mod sglang;
mod vllm;

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::web::{Data, JsonConfig, PayloadConfig};
use actix_web::{App, HttpResponse, HttpServer};
use configs::EngineKind;
use rollout::text::TextCodec;
use serde_json::Value;
use tokio::sync::watch;

pub(super) use model::Model;

use crate::base::ports::HeldPort;

/// A failure that replaces the answer of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FakeFault {
    /// The connection breaks before the answer.
    Dropped,
    /// HTTP 500.
    Failing,
    /// Half of the body, and then the connection breaks.
    Half,
    /// Half of the body as if it were whole.
    Truncated,
    /// A log-prob is null.
    NoLogprob,
    /// One log-prob fewer than ids.
    Fewer,
    /// A token that no model has.
    Foreign,
    /// The answer, and then more than the size limit.
    Endless,
    /// HTTP 500 with an endless body.
    Complaining,
}

/// The state that a restart resets.
pub(super) struct FakeHeld {
    pub(super) model: Model,
    pub(super) label: String,
    pub(super) adapters: BTreeMap<String, Model>,
}

/// The state that survives a restart.
pub(super) struct Shared {
    pub(super) kind: EngineKind,
    /// The model folder that it is started with.
    pub(super) folder: PathBuf,
    pub(super) text: TextCodec,
    pub(super) held: Mutex<FakeHeld>,
    pub(super) faults: Mutex<VecDeque<FakeFault>>,
    /// Bodies of generations, in the order in which they came.
    pub(super) asked: Mutex<Vec<Value>>,
    /// Folders that it was ordered to load, with true for success.
    pub(super) loads: Mutex<Vec<(PathBuf, bool)>>,
    /// The number of following loads that it rejects.
    pub(super) refuses: Mutex<usize>,
    pub(super) unloaded: Mutex<Vec<String>>,
    /// The number of following adapters that it fails to unload.
    pub(super) clings: Mutex<usize>,
    /// The number of following requests to empty its prefix cache that it ignores.
    pub(super) keeps: Mutex<usize>,
    /// True if that cache has values of other weights.
    pub(super) stale: AtomicBool,
    /// True if log-probs are of raw logits.
    pub(super) raw: AtomicBool,
    /// True if another program gives it other weights during each call.
    pub(super) meddled: AtomicBool,
    /// The required key.
    pub(super) key: Option<String>,
    /// True if replies report the weights that made them.
    pub(super) says_versions: bool,
    /// Tokens that a call may make before it waits.
    pub(super) allowed: watch::Sender<usize>,
    /// Counts orders to abort calls.
    pub(super) aborts: watch::Sender<u64>,
    /// Calls in progress.
    pub(super) running: watch::Sender<usize>,
    /// Tokens made, over all calls.
    pub(super) made: watch::Sender<usize>,
    pub(super) well: watch::Sender<bool>,
    /// Counts checks of its health.
    pub(super) looks: watch::Sender<usize>,
    /// Counts whole weights that changed during a call.
    pub(super) torn: Mutex<usize>,
}

/// A server that can be killed and restarted.
pub(super) struct Fake {
    pub(super) shared: Data<Shared>,
    /// Reserved while it is away, too.
    port: HeldPort,
    server: Mutex<Option<ServerHandle>>,
}

/// The options of a fake.
#[derive(Clone, Default)]
pub(super) struct How {
    pub(super) raw: bool,
    pub(super) key: Option<String>,
    pub(super) quiet: bool,
}

impl Fake {
    pub(super) fn start(kind: EngineKind, folder: &Path) -> Arc<Self> {
        Self::start_as(kind, folder, How::default())
    }

    pub(super) fn start_as(kind: EngineKind, folder: &Path, how: How) -> Arc<Self> {
        let shared = Data::new(Shared {
            kind,
            folder: folder.to_owned(),
            text: TextCodec::open(folder).unwrap(),
            held: Mutex::new(FakeHeld::new(folder)),
            faults: Mutex::default(),
            asked: Mutex::default(),
            loads: Mutex::default(),
            refuses: Mutex::default(),
            unloaded: Mutex::default(),
            clings: Mutex::default(),
            keeps: Mutex::default(),
            stale: AtomicBool::new(false),
            raw: AtomicBool::new(how.raw),
            meddled: AtomicBool::new(false),
            key: how.key,
            says_versions: !how.quiet,
            allowed: watch::Sender::new(usize::MAX),
            aborts: watch::Sender::default(),
            running: watch::Sender::default(),
            made: watch::Sender::default(),
            well: watch::Sender::new(true),
            looks: watch::Sender::default(),
            torn: Mutex::default(),
        });
        let port = HeldPort::new();
        let listener = TcpListener::bind(port.address()).unwrap();
        let server = serve(&shared, listener);
        Arc::new(Self {
            shared,
            port,
            server: Mutex::new(Some(server)),
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// Kills the server like `kill -9`: connections break. Its workers end a moment after the order
    /// and could still answer a call, so this waits until no call is in progress.
    pub(super) async fn kill(&self) {
        let server = self.server.lock().unwrap().take();
        if let Some(server) = server {
            server.stop(false).await;
        }
        self.until_running(0).await;
    }

    /// Restarts with the original weights.
    pub(super) fn start_again(&self) {
        *self.shared.held.lock().unwrap() = FakeHeld::new(&self.shared.folder);
        let listener = TcpListener::bind(self.port.address()).unwrap();
        *self.server.lock().unwrap() = Some(serve(&self.shared, listener));
    }

    /// Forgets its weights, faster than a health check can notice.
    pub(super) fn forget(&self) {
        *self.shared.held.lock().unwrap() = FakeHeld::new(&self.shared.folder);
    }

    pub(super) fn fail_next(&self, faults: &[FakeFault]) {
        self.shared.faults.lock().unwrap().extend(faults);
    }

    /// Lets every call make `tokens` tokens, and wait then.
    pub(super) fn allow(&self, tokens: usize) {
        self.shared.allowed.send_replace(tokens);
    }

    pub(super) async fn until_running(&self, calls: usize) {
        let mut running = self.shared.running.subscribe();
        running.wait_for(|running| *running == calls).await.unwrap();
    }

    pub(super) async fn until_made(&self, tokens: usize) {
        let mut made = self.shared.made.subscribe();
        made.wait_for(|made| *made >= tokens).await.unwrap();
    }

    pub(super) fn label(&self) -> String {
        self.shared.held.lock().unwrap().label.clone()
    }

    pub(super) fn loads(&self) -> Vec<(PathBuf, bool)> {
        self.shared.loads.lock().unwrap().clone()
    }

    pub(super) fn torn(&self) -> usize {
        *self.shared.torn.lock().unwrap()
    }
}

impl FakeHeld {
    fn new(folder: &Path) -> Self {
        Self {
            model: Model::open(folder).unwrap(),
            label: "default".into(),
            adapters: BTreeMap::new(),
        }
    }
}

fn serve(shared: &Data<Shared>, listener: TcpListener) -> ServerHandle {
    let shared = shared.clone();
    let server = HttpServer::new(move || {
        let app = App::new()
            .app_data(shared.clone())
            .app_data(JsonConfig::default().limit(1 << 20))
            .app_data(PayloadConfig::new(1 << 20));
        match shared.kind {
            EngineKind::Vllm => app.configure(vllm::routes),
            _ => app.configure(sglang::routes),
        }
    });
    let server = server
        .workers(1)
        .h1_allow_half_closed(false)
        .disable_signals()
        .listen(listener)
        .unwrap()
        .run();
    let handle = server.handle();
    tokio::spawn(server);
    handle
}

impl Shared {
    fn health(&self) -> HttpResponse {
        self.looks.send_modify(|looks| *looks += 1);
        if *self.well.borrow() {
            HttpResponse::Ok().finish()
        } else {
            HttpResponse::ServiceUnavailable().finish()
        }
    }

    /// Returns the response for a rejected request.
    fn turned_away(&self, request: &actix_web::HttpRequest) -> Option<HttpResponse> {
        let key = self.key.as_ref()?;
        let shown = request.headers().get("authorization");
        let good = shown.is_some_and(|shown| shown.as_bytes() == format!("Bearer {key}").as_bytes());
        (!good).then(|| HttpResponse::Unauthorized().json(serde_json::json!({ "error": "Unauthorized" })))
    }

    /// Loads whole weights, or returns the reason of the failure.
    fn load(&self, folder: &Path) -> Result<(), String> {
        if *self.running.borrow() > 0 {
            *self.torn.lock().unwrap() += 1;
        }
        let loaded = self.refuse().and_then(|()| Model::open(folder));
        let outcome = loaded.map(|model| self.held.lock().unwrap().model = model);
        self.loads.lock().unwrap().push((folder.to_owned(), outcome.is_ok()));
        outcome
    }

    fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), String> {
        let loaded = self.refuse().and_then(|()| Model::with_adapter(&self.folder, folder));
        self.loads.lock().unwrap().push((folder.to_owned(), loaded.is_ok()));
        self.held.lock().unwrap().adapters.insert(name.to_owned(), loaded?);
        Ok(())
    }

    fn refuse(&self) -> Result<(), String> {
        if takes_one(&self.refuses) {
            return Err("out of memory".into());
        }
        Ok(())
    }

    /// Unloads an adapter; returns true if it was loaded, None on failure.
    fn unload(&self, name: &str) -> Option<bool> {
        if takes_one(&self.clings) {
            return None;
        }
        self.unloaded.lock().unwrap().push(name.to_owned());
        Some(self.held.lock().unwrap().adapters.remove(name).is_some())
    }
}

fn takes_one(from: &Mutex<usize>) -> bool {
    let mut left = from.lock().unwrap();
    let some = *left > 0;
    *left -= usize::from(some);
    some
}
