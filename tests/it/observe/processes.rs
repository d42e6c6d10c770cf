//! Metrics of engines and of later ranks of a trainer, which are processes of their own.

use tests::ports::quiet_port;
use tests::program::{signal, wait_until};
use tests::small::Small;

use super::{LISTEN, PATIENCE, SCRAPER, get, targets};
use crate::program;

#[test]
fn engines_and_ranks_show_metrics_of_their_own() {
    let program = program();
    let url = format!("http://127.0.0.1:{}", quiet_port());
    let config = Small::new()
        .set("run.train_steps", 100_000)
        .set(LISTEN.0, LISTEN.1)
        .set("agents.a.train.devices", vec!["cpu", "cpu"])
        .set("agents.b.engine.kind", "dyad")
        .set("agents.b.engine.urls", vec![url]);
    let mut running = program.launch("up", &config.save(&program), &[("DYAD_METRICS_TOKEN", SCRAPER)]);
    let folder = program.run_folder();
    let run = folder.file_name().unwrap().to_str().unwrap().to_owned();
    wait_until("the addresses of all processes", PATIENCE, || {
        let names: Vec<String> = targets(&folder).into_iter().map(|(name, _)| name).collect();
        names == ["a", "a.rank1", "b", "b.engine0", "coordinator"]
    });
    for (name, address) in targets(&folder) {
        let page = get(&address, "/metrics");
        let memory = format!("process_resident_memory_bytes{{run=\"{run}\"}} ");
        assert!(page.contains(&memory), "{name}: {page}");
        assert!(
            page.contains("device=\"cpu\"") || name == "coordinator",
            "{name}: {page}"
        );
    }
    let engine = || {
        targets(&folder)
            .into_iter()
            .find(|(name, _)| name == "b.engine0")
            .unwrap()
            .1
    };
    // It has a value once the engine has weights.
    let usage = format!("dyad_engine_cache_usage_ratio{{run=\"{run}\",agent=\"b\"}} ");
    wait_until("the cache of the engine", PATIENCE, || {
        get(&engine(), "/metrics").contains(&usage)
    });

    let before = engine();
    signal("KILL", *running.pids("b.engine0").last().unwrap());
    wait_until("the new address of the engine", PATIENCE, || engine() != before);
    signal("TERM", running.pid());
    running.end(PATIENCE).expect("it ends");
    assert_eq!(targets(&folder), [], "an ended run has no targets");
}
