//! Metrics of a live run, read by a real Prometheus: every expression of the shipped dashboard and
//! alerts has a value.

mod processes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use broker::local::rabbitmq::RabbitOptions;
use serde_json::Value;
use tests::ports;
use tests::program::{Program, Running, signal, wait_for, wait_until};
use tests::servers::Servers;
use tests::small::Small;
use tests::trace::batches;

use crate::program;

const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The token that opens the metrics of the processes and of the dashboard.
const SCRAPER: &str = "fedcba9876543210fedcba9876543210";
const STEPS: usize = 20;

/// Returns a program of Debian's package, where it is installed.
fn installed(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A Prometheus that reads a run each second.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// `runs` are the folders of runs, `pages` is the address of a dashboard, and `queues` of the
    /// metrics of RabbitMQ.
    fn start(binary: &Path, program: &Program, runs: &[PathBuf], pages: &str, queues: &str) -> Self {
        let rules = rules_file();
        let files = runs
            .iter()
            .map(|runs| format!("\"{}/prometheus/*.json\"", runs.display()));
        let files = files.collect::<Vec<_>>().join(", ");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{rules}]\n\
             scrape_configs:\n\
             - job_name: dyad\n\
             \x20 honor_labels: true\n\
             \x20 authorization: {{credentials: {SCRAPER}}}\n\
             \x20 file_sd_configs: [{{files: [{files}], refresh_interval: 1s}}]\n\
             - job_name: dyad-dashboard\n\
             \x20 honor_labels: true\n\
             \x20 authorization: {{credentials: {SCRAPER}}}\n\
             \x20 scrape_interval: 2s\n\
             \x20 scrape_timeout: 2s\n\
             \x20 static_configs: [{{targets: [\"{pages}\"]}}]\n\
             - job_name: rabbitmq-queues\n\
             \x20 metrics_path: /metrics/detailed\n\
             \x20 params: {{family: [queue_metrics], vhost: [/]}}\n\
             \x20 static_configs: [{{targets: [\"{queues}\"]}}]\n",
            rules = rules.display(),
        );
        let config = program.file("prometheus.yml", &config);
        let address = format!("127.0.0.1:{}", ports::quiet_port());
        let child = Command::new(binary)
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", program.home().join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address }
    }

    /// Returns the values of an expression now; none before it answers.
    fn values(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let Some((status, body)) = ask(&self.address, &format!("/api/v1/query?query={encoded}")) else {
            return Vec::new();
        };
        assert_ne!(status, 400, "{expression}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rules_file() -> PathBuf {
    Program::root().join("agents/observe/dyad.rules.yml")
}

/// Returns the expressions of the dashboard, with its variables replaced.
fn dashboard_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(Program::root().join("agents/observe/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let variables = [("$__rate_interval", "1m"), ("$run", ".+"), ("$agent", ".+")];
    let replaced = |expression: &str| {
        let all = variables.iter();
        all.fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    targets
        .map(|target| replaced(target["expr"].as_str().unwrap()))
        .collect()
}

/// Returns the expressions of the alerts. Their comparisons return 0 or 1, so that an alert that
/// does not fire has a value too.
fn alert_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(rules_file()).unwrap();
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(expression) = line.trim().strip_prefix("expr: ") else {
            continue;
        };
        let mut whole = expression.replace(">-", "");
        while let Some(more) = lines.next_if(|line| whole.is_empty() || line.starts_with("          ")) {
            whole = format!("{whole} {}", more.trim());
        }
        let compared = [" > ", " >= ", " == "].iter().fold(whole, |text, sign| {
            text.replace(sign, &format!(" {} bool ", sign.trim()))
        });
        found.push(compared);
    }
    found
}

/// Returns status and body of an answer, or nothing if no server is there.
fn ask(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("Host: {address}\r\nAuthorization: Bearer {SCRAPER}");
    write!(stream, "GET {path} HTTP/1.0\r\n{head}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Returns the body of a good answer.
fn get(address: &str, path: &str) -> String {
    let (status, body) = ask(address, path).unwrap();
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Returns component and address of each entry of `prometheus.json`.
fn targets(run: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(run.join("prometheus.json")).unwrap_or_default();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    entries
        .iter()
        .map(|entry| (text(&entry["labels"]["component"]), text(&entry["targets"][0])))
        .collect()
}

const LISTEN: (&str, &str) = ("run.metrics.listen", "127.0.0.1:0");

/// `front` is the address at which agent a answers clients.
fn start(program: &Program, servers: &Servers, front: &str) -> Running {
    let config = Small::new()
        .set("run.train_steps", 100_000)
        .set(LISTEN.0, LISTEN.1)
        .set("workflow.group_size", 16)
        .set("agents.a.http.listen", front)
        .set("defaults.agent.train.alarms.entropy", 1e-6)
        .set("eval.every", 5)
        .set("eval.source", "generator:signal")
        .set("eval.tasks", 4)
        .set("eval.params.objects", 16);
    up(program, servers, &config, &["--dashboard=127.0.0.1:0"])
}

/// Starts a run as processes, over these servers.
fn up(program: &Program, servers: &Servers, config: &Small, more: &[&str]) -> Running {
    let (config, runs) = (config.save(program), program.runs());
    let (broker, state) = (servers.rabbit.url(), servers.redis.url());
    let args = ["up", &config, "--folder", runs.to_str().unwrap()];
    let args = [&args, &["--broker", &broker, "--state", &state][..], more].concat();
    let tokens = [("DYAD_DASHBOARD_TOKEN", TOKEN), ("DYAD_METRICS_TOKEN", SCRAPER)];
    program.start_with(&args, &tokens)
}

/// Starts a run with tools, with a grader that is a program, and with an engine process.
fn start_with_tools(program: &Program, servers: &Servers) -> Running {
    let grader = program.file("grader.py", GRADER);
    let config = Small::of("configs/deep-research.toml")
        .set("run.train_steps", 100_000)
        .set(LISTEN.0, LISTEN.1)
        .set("graders.colour.kind", format!("process:{grader}"))
        .set("graders.colour.timeout", "120s")
        .set("agents.main.engine.kind", "dyad")
        .set(
            "agents.main.engine.urls",
            vec![format!("http://127.0.0.1:{}", ports::quiet_port())],
        );
    up(program, servers, &config, &[])
}

/// Pays an answer that contains the label.
const GRADER: &str = "
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    reward = float(str(asked['task']['label']) in asked['text'])
    print(json.dumps({'id': asked['id'], 'reward': reward}), flush=True)
";

/// Starts a run in which agent b asks a server at `front` and waits a second for each answer.
fn start_with_clients(program: &Program, servers: &Servers, front: &str) -> Running {
    let config = Small::new()
        .set("run.mode", "async")
        .set("run.train_steps", 100_000)
        .set(LISTEN.0, LISTEN.1)
        .set("workflow.group_size", 16)
        .set("agents.b.train.enabled", false)
        .set("agents.b.model.served", "a")
        .set("agents.b.engine.kind", "openai")
        .set("agents.b.engine.urls", vec![format!("http://{front}")])
        .set("agents.b.engine.stuck_after", "1s");
    up(program, servers, &config, &[])
}

/// Returns the address of the dashboard, which stands in the first line.
fn pages(running: &Running) -> String {
    wait_for("the dashboard's URL", PATIENCE, || {
        let log = running.log();
        let (first, _) = log.split_once('\n')?;
        let address = first.strip_prefix("http://")?.split('/').next()?;
        Some(address.to_owned())
    })
}

fn check_metrics(promtool: &Path, page: &str) {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && found.is_empty(), "{found}\n{page}");
}

#[test]
fn alerts_are_valid_and_each_fires_for_its_cause() {
    let Some(promtool) = installed("promtool") else {
        eprintln!("no Prometheus on this machine: alerts were not tried (tests/setup/machine.sh prometheus)");
        return;
    };
    let tool = |arguments: [&str; 2], file: &Path| {
        let output = Command::new(&promtool).args(arguments).arg(file).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    };
    let rules = rules_file();
    tool(["check", "rules"], &rules);
    tool(["test", "rules"], &rules.with_extension("test.yml"));
    tool(["check", "config"], &config_as_mounted(&program()));
}

/// Lays out the files of Prometheus as `compose.observe.yaml` mounts them, in the program's folder.
/// Returns its configuration, in which only the folders differ.
fn config_as_mounted(program: &Program) -> PathBuf {
    let root = Program::root();
    let compose = std::fs::read_to_string(root.join("compose.observe.yaml")).unwrap();
    for mount in compose.lines().filter_map(|line| line.trim().strip_prefix("- ./")) {
        let (own, mounted) = mount.strip_suffix(":ro,z").unwrap().split_once(':').unwrap();
        if let Some(name) = mounted.strip_prefix("/etc/prometheus/") {
            let _ = program.file(name, &std::fs::read_to_string(root.join(own)).unwrap());
        }
    }
    assert!(compose.contains("target: /etc/prometheus/targets.json"));
    assert!(compose.contains("secrets: [metrics_token]"));
    let (_, targets) = compose.split_once("content: |\n").unwrap();
    let (targets, _) = targets.split_once("\n\n").unwrap();
    let _ = program.file("targets.json", &targets.replace("${DYAD_RUN:-signal}", "signal"));
    let token = program.file("metrics_token", SCRAPER);
    let config = program.home().join("prometheus.yml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("/run/secrets/metrics_token", &token);
    let folder = format!("{}/", program.home().display());
    std::fs::write(&config, text.replace("/etc/prometheus/", &folder)).unwrap();
    config
}

#[test]
#[ignore = "slow: `make test-long`"]
fn prometheus_has_a_value_for_every_expression_of_dashboard_and_alerts() {
    let (Some(binary), Some(promtool)) = (installed("prometheus"), installed("promtool")) else {
        eprintln!("no Prometheus on this machine: metrics were not read (tests/setup/machine.sh prometheus)");
        return;
    };
    let (program, with_tools, with_clients) = (program(), program(), program());
    let queues = format!("127.0.0.1:{}", ports::quiet_port());
    let (ip, port) = queues.split_once(':').unwrap();
    let servers = Servers::with(RabbitOptions {
        plugins: &["rabbitmq_prometheus"],
        config: format!("prometheus.tcp.ip = {ip}\nprometheus.tcp.port = {port}\n"),
        ..RabbitOptions::default()
    });
    let front = format!("127.0.0.1:{}", ports::quiet_port());
    let mut running = start(&program, &servers, &front);
    let tools = start_with_tools(&with_tools, &servers);
    let clients = start_with_clients(&with_clients, &servers, &front);
    let runs = [&program, &with_tools, &with_clients].map(Program::runs);
    let prometheus = Prometheus::start(&binary, &program, &runs, &pages(&running), &queues);
    let run = program.run_folder();
    wait_until("20 steps of both agents", PATIENCE, || {
        ["a", "b"].iter().all(|agent| batches(&run, agent) >= STEPS)
    });
    let asking = with_clients.run_folder();
    wait_until("a batch with answers of the other run", PATIENCE, || {
        batches(&asking, "a") > 0
    });
    let asked = *running.pids("a").last().unwrap();
    signal("STOP", asked);
    wait_until("turns that are tried again", PATIENCE, || {
        !prometheus.values("dyad_turns_total{outcome=\"retried\"}").is_empty()
    });
    signal("CONT", asked);
    check_metrics(&promtool, &get(&pages(&running), "/metrics"));
    let components: Vec<String> = targets(&run).into_iter().map(|(name, _)| name).collect();
    assert_eq!(components, ["a", "b", "coordinator"]);
    for (_, address) in targets(&run) {
        check_metrics(&promtool, &get(&address, "/metrics"));
        assert_eq!(get(&address, "/readyz"), "ready\n");
    }

    let expressions = [dashboard_expressions(), alert_expressions()].concat();
    assert!(expressions.len() > 60, "{} expressions", expressions.len());
    // A rate needs two samples, and the first evaluation comes after some steps.
    let mut empty: Vec<&String> = expressions.iter().collect();
    wait_for("values of every expression", PATIENCE, || {
        empty.retain(|expression| prometheus.values(expression).is_empty());
        if (1..8).contains(&empty.len()) {
            eprintln!("no value yet: {empty:#?}");
        }
        empty.is_empty().then_some(())
    });
    drop((tools, clients));

    // A process that was killed is found at its new address.
    let address_of = |wanted: &str| targets(&run).into_iter().find(|(name, _)| name == wanted).unwrap().1;
    let before = address_of("b");
    signal("KILL", *running.pids("b").last().unwrap());
    wait_until("b to be scraped again", PATIENCE, || {
        let after = address_of("b");
        let is_up = format!("up{{component=\"b\", instance=\"{after}\"}} == 1");
        after != before && !prometheus.values(&is_up).is_empty()
    });

    signal("TERM", running.pid());
    running.end(PATIENCE).expect("it ends");
    assert_eq!(targets(&run), [], "an ended run has no targets");
}

#[test]
fn other_machines_need_a_token_and_several_processes_need_port_0() {
    let program = program();
    let runs = program.runs();
    let refused = |command: &str, listen: &str| {
        let config = Small::new().set("run.metrics.listen", listen).save(&program);
        program.fail(2, &[command, &config, "--folder", runs.to_str().unwrap()])
    };
    let said = refused("run", "0.0.0.0:0");
    assert!(said.contains("DYAD_METRICS_TOKEN"), "{said}");
    let said = refused("up", "127.0.0.1:9464");
    assert!(said.contains("port 0"), "{said}");
}
