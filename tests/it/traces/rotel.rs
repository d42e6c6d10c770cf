//! Traces that pass through a real OpenTelemetry collector, which decodes them and encodes them
//! again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tests::ports::quiet_port;
use tests::program::{Program, signal, wait_until};

use super::collector::Collector;
use super::{PATIENCE, config, is_the_run, now};
use crate::program;

/// Returns the program of the Python package, where it is installed.
fn installed() -> Option<PathBuf> {
    let lib = Program::root().join("tests/.venv-collector/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons
        .map(|python| python.path().join("site-packages/rotel/rotel-agent"))
        .find(|path| path.is_file())
}

/// A collector that sends all it receives to another one.
struct Rotel {
    child: Child,
    url: String,
}

impl Rotel {
    fn start(binary: &Path, home: &Path, to: &str) -> Self {
        let addresses = [quiet_port(), quiet_port()].map(|port| format!("127.0.0.1:{port}"));
        let [http, grpc] = &addresses;
        let child = Command::new(binary)
            .arg("start")
            .args(["--otlp-http-endpoint", http, "--otlp-grpc-endpoint", grpc])
            .args(["--exporter", "otlp", "--otlp-exporter-protocol", "http"])
            .args(["--otlp-exporter-endpoint", to])
            .arg("--pid-file")
            .arg(home.join("rotel.pid"))
            .arg("--log-file")
            .arg(home.join("rotel.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the collector", PATIENCE, || std::net::TcpStream::connect(http).is_ok());
        Self {
            child,
            url: format!("http://{http}"),
        }
    }
}

impl Rotel {
    /// Ends it: it sends what it holds first.
    fn end(mut self) {
        signal("TERM", self.child.id());
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_collector_passes_on_every_trace_of_a_run() {
    let Some(binary) = installed() else {
        eprintln!("no OpenTelemetry collector on this machine: none was tried (tests/setup/machine.sh collector)");
        return;
    };
    let (program, collector) = (program(), Collector::start(&[], 200));
    let rotel = Rotel::start(&binary, program.home(), &collector.url);
    let begun = now();
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", rotel.url.as_str()),
        ("OTEL_SERVICE_NAME", "dyad-test"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
    ];
    program
        .launch("run", &config().save(&program), &environment)
        .finish(PATIENCE);
    rotel.end();
    is_the_run(&program.run_folder(), &collector.taken(), (begun, now()));
}
