//! The memory of the page's process.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::program::{Program, Running, json_lines, metrics, signal, wait_for, wait_until};

use super::{PATIENCE, Pages, config, id, printed, serve};
use crate::program;

/// The budget of a page's process, in KiB.
const BUDGET: u64 = 64 << 10;
/// The time for which the overview is open, and the time between two of its requests.
const OPEN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1200);
/// Clock ticks of a second in `/proc`.
const TICKS: f64 = 100.0;

/// Checks the largest resident memory of a process so far.
pub(super) fn stays_in_its_budget(process: u32) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    println!("the dashboard took {peak} KiB at most");
    assert!(peak <= BUDGET, "{peak} KiB");
}

/// Returns the processor time of a process in seconds.
fn processor_time(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let ticks = rest.split(' ').skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS
}

#[test]
fn page_takes_at_most_64_mib() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let listed = pages.json(&format!("/api/runs/{run}/conversations?limit=200"));
    let conversations = listed["conversations"].as_array().unwrap().iter();
    let ids: Vec<&str> = conversations.map(|one| one["conversation"].as_str().unwrap()).collect();
    for path in ["facts", "status", "audit", "logs", "series?name=train:reward/mean"] {
        pages.json(&format!("/api/runs/{run}/{path}"));
    }
    for id in ids {
        pages.json(&format!("/api/runs/{run}/conversations/{id}"));
    }
    stays_in_its_budget(running.pid());
}

#[test]
fn page_of_a_live_run_takes_at_most_64_mib() {
    let program = program();
    let endless = config().set("run.train_steps", 1_000_000).without("eval");
    let _up = program.launch("up", &endless.save(&program), &[]);
    let run = id(&program.run_folder());
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{run}/{path}"));
    wait_for("both agents", PATIENCE, || {
        let agents = api("status")["live"]["agents"].as_object()?.len();
        (agents == 2).then_some(())
    });
    let (since, before) = (Instant::now(), processor_time(running.pid()));
    while since.elapsed() < OPEN {
        api("status");
        api("series?points=300&name=train:reward/mean,eval:success");
        std::thread::sleep(POLL);
    }
    let share = (processor_time(running.pid()) - before) / since.elapsed().as_secs_f64();
    println!("the dashboard took {:.1}% of a core", share * 100.0);
    api("letters");
    api("audit");
    stays_in_its_budget(running.pid());
}

/// Adds steps of both agents to the metrics of a run, each with the figures of a real one.
fn lengthen(folder: &Path, steps: u64) {
    for agent in ["a", "b"] {
        let path = folder.join(format!("metrics/{agent}.jsonl"));
        let mut line = json_lines(&path)
            .into_iter()
            .rfind(|line| line["kind"] == "train")
            .unwrap();
        let first = line["step"].as_u64().unwrap() + 1;
        let file = File::options().append(true).open(&path).unwrap();
        let mut file = BufWriter::new(file);
        for step in first..first + steps {
            line["step"] = json!(step);
            writeln!(file, "{line}").unwrap();
        }
        file.flush().unwrap();
    }
}

#[test]
fn page_of_a_long_run_takes_at_most_64_mib() {
    const STEPS: u64 = 10_000;
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    lengthen(&folder, STEPS);
    let run = id(&folder);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{run}/{path}"));
    for _ in 0..3 {
        let status = printed(&program, &["status"]).remove(0);
        let newest = &status["metrics"]["train"]["b"]["step"];
        assert!(newest.as_u64() >= Some(STEPS), "{newest}");
        // The page repeats a status for a second.
        wait_until("the command's status", PATIENCE, || api("status") == status);
        let curves = api("series?points=100&name=*");
        for curve in curves["series"].as_array().unwrap() {
            let is_long = curve["kind"] == "train" && curve["name"] == "reward/mean";
            assert!(!is_long || curve["count"].as_u64() >= Some(STEPS), "{curve}");
        }
        lengthen(&folder, 1);
    }
    stays_in_its_budget(running.pid());
}

/// Starts an endless run of one process each, with pages that the program of users serves.
fn up_with_pages(program: &Program) -> (Running, Pages, u32) {
    let runs = program.runs();
    let endless = config().set("run.train_steps", 1_000_000).without("eval");
    let args = ["up", &endless.save(program), "--folder", runs.to_str().unwrap()];
    let args = [&args[..], &["--dashboard=127.0.0.1:0"]].concat();
    let up = program.start_with(&args, &[("DYAD_LAUNCHER", crate::LIGHT)]);
    let pages = Pages::of(&up);
    let threads = std::fs::read_dir(format!("/proc/{}/task", up.pid())).unwrap().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children = children.collect::<Vec<_>>().join(" ");
    let serves = |pid: &&str| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some("dashboard")
    };
    let process = children.split_whitespace().find(serves);
    let process = process.expect("a process that serves the pages").parse().unwrap();
    (up, pages, process)
}

#[test]
fn pages_of_up_take_at_most_64_mib_and_end_with_the_run() {
    let program = program();
    let (mut up, pages, process) = up_with_pages(&program);
    let folder = program.run_folder();
    let run = id(&folder);
    let api = |path: &str| pages.json(&format!("/api/runs/{run}/{path}"));
    wait_for("both agents", PATIENCE, || {
        let agents = api("status")["live"]["agents"].as_object()?.len();
        (agents == 2).then_some(())
    });
    for path in ["facts", "letters", "audit", "logs", "series?name=train:*"] {
        api(path);
    }
    stays_in_its_budget(process);
    let tokens = || {
        let names = std::fs::read_dir(&folder).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("dashboard-")).count()
    };
    assert_eq!(tokens(), 1);
    signal("TERM", up.pid());
    up.end(PATIENCE).expect("a run that was stopped ends");
    assert!(!Path::new(&format!("/proc/{process}")).exists());
    assert_eq!(tokens(), 0);
}

#[test]
fn run_goes_on_without_pages_that_failed() {
    let program = program();
    let (mut up, _pages, process) = up_with_pages(&program);
    let steps = |up: &mut Running| {
        assert!(up.running(), "{}", up.log());
        metrics(&program.run_folder(), "train").len()
    };
    wait_for("a batch", PATIENCE, || (steps(&mut up) > 0).then_some(()));
    signal("KILL", process);
    wait_for("its line", PATIENCE, || {
        let lines = up.supervised();
        let is_said = |(label, text): &(String, String)| label == "dashboard" && text.contains("the run goes on");
        lines.iter().any(is_said).then_some(())
    });
    let before = steps(&mut up);
    wait_for("more batches", PATIENCE, || (steps(&mut up) > before + 2).then_some(()));
}
