//! The answers over a finished and a live run.

use serde_json::{Value, json};
use tests::program::wait_for;

use super::{PATIENCE, Pages, config, id, printed, serve};
use crate::program;

#[test]
fn finished_run_is_shown_as_its_commands_print_it() {
    let program = program();
    let folder = program.play("run", &config().save(&program), &[]);
    let run = id(&folder);
    let running = serve(&program, "latest", &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{run}/{path}"));

    assert_eq!(api("status"), printed(&program, &["status"])[0]);
    assert_eq!(api("audit")["audit"], printed(&program, &["audit"])[0]);
    assert_eq!(api("audit")["violations"], json!([]));
    let listed = api("conversations?limit=200");
    let listed = listed["conversations"].as_array().unwrap();
    assert!(listed.len() > 60, "{} conversations", listed.len());
    let trained = listed.iter().find(|one| one["eval"] == false).unwrap();
    let conversation = trained["conversation"].as_str().unwrap();
    let shown = api(&format!("conversations/{conversation}"));
    assert_eq!(
        shown["transcript"],
        printed(&program, &["conversation", conversation])[0]
    );
    let mut before = 0.0;
    for turn in shown["transcript"]["turns"].as_array().unwrap() {
        let time = |part: &str| turn["time"][part].as_f64().unwrap_or_else(|| panic!("{part}: {turn}"));
        let engine = time("queue") + time("prompt") + time("decode");
        assert!(time("prompt") > 0.0 && time("asked") >= before, "{turn}");
        assert!(time("asked") + engine <= time("committed"), "{turn}");
        before = time("committed");
    }
    let by_verdict = |verdict: &str| {
        let found = api(&format!("conversations?limit=200&kind=train&verdict={verdict}"));
        found["conversations"].as_array().unwrap().len()
    };
    let of_training = listed.iter().filter(|one| one["eval"] == false).count();
    assert_eq!((by_verdict("trained"), by_verdict("discarded")), (of_training, 0));
    let verdicts = shown["custody"]["agents"]["a"]["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 8, "one for each member: {verdicts:?}");
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict["reason"].is_null() && verdict["step"].as_u64() > Some(0))
    );
    let group = api(&format!("groups/{}", conversation.split('/').next().unwrap()));
    assert_eq!(group["members"].as_array().unwrap().len(), 8);
    let task = group["task"].as_str().unwrap();
    let life = api(&format!("tasks/{}", task.replace('/', "%2F")));
    let fate = &printed(&program, &["conversation", task])[0];
    for field in ["task", "group", "outcome"] {
        assert_eq!(life[field], fate[field], "{life}");
    }
    assert_eq!(life["custody"], shown["custody"], "{life}");
    let reply = pages.get(&format!("/api/runs/{run}/tasks/unknown"));
    assert_eq!(reply.status, 404, "{}", reply.body);
    let rest = api("conversations?limit=3");
    let next = api(&format!(
        "conversations?limit=3&cursor={}",
        rest["next"].as_str().unwrap()
    ));
    assert_ne!(rest["conversations"][2], next["conversations"][0]);

    let curve = &api("series?name=train:reward/mean")["series"];
    let lines = tests::program::metrics(&folder, "train");
    for one in curve.as_array().unwrap() {
        let of_agent = lines.iter().filter(|line| line["agent"] == one["of"]);
        let values: Vec<&Value> = of_agent.map(|line| &line["reward/mean"]).collect();
        assert_eq!(one["mean"].as_array().unwrap().iter().collect::<Vec<_>>(), values);
    }
    assert_eq!(curve.as_array().unwrap().len(), 2);
    let later = &api("series?name=train:reward/mean&agent=b&from=3")["series"];
    assert_eq!(later.as_array().unwrap().len(), 1, "{later}");
    assert_eq!((&later[0]["of"], &later[0]["x"]), (&json!("b"), &json!([3, 4])));
    let csv = pages.get(&format!("/api/runs/{run}/series?name=train:reward/mean&format=csv"));
    assert_eq!(csv.status, 200, "{}", csv.body);
    let mut rows = csv.body.lines();
    assert_eq!(rows.next(), Some("kind,of,name,step,seconds,mean,min,max"));
    let means: Vec<f64> = rows
        .map(|row| row.split(',').nth(5).unwrap().parse().unwrap())
        .collect();
    let curves = curve.as_array().unwrap().iter();
    let shown: Vec<f64> = curves
        .flat_map(|one| one["mean"].as_array().unwrap().iter().filter_map(Value::as_f64))
        .collect();
    assert_eq!(means, shown);
    assert!(api("series/names")["names"].as_array().unwrap().len() > 20);

    let evaluations = api("evaluations");
    let last = evaluations["evaluations"].as_array().unwrap().last().unwrap();
    let status = api("status");
    assert_eq!(last["figures"]["success"]["mean"], status["metrics"]["eval"]["success"]);
    let logs = api("logs");
    for log in logs["logs"].as_array().unwrap() {
        let name = log["process"].as_str().unwrap();
        let lines = api(&format!("logs/{name}?level=trace"));
        let lines: Vec<Value> = lines["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["line"].clone())
            .collect();
        assert_eq!(lines, printed(&program, &["logs", name, "--level", "trace"]), "{name}");
    }
    assert!(api("config")["toml"].as_str().unwrap().contains("group_size = 8"));
    assert_eq!(api("letters")["letters"], json!([]), "as saved at its end");
    let runs = pages.json("/api/runs?limit=1");
    assert!(runs["next"].is_null(), "{runs}");
    assert_eq!(runs["runs"][0]["run"], run.as_str());
    assert_eq!(runs["runs"][0]["step"], 4);
    assert_eq!(pages.json(&format!("/api/runs/{run}")), runs["runs"][0]);
    let document = pages.json("/api/openapi.json");
    for (path, _) in document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, has)| has["get"].is_object())
    {
        let path = path.replace("{run}", &run);
        let reply = pages.get(&format!("{path}?wrong=1"));
        assert_eq!(reply.status, 400, "{path}: {}", reply.body);
        assert!(
            reply.body.contains("unknown query parameter") && reply.body.contains("wrong"),
            "{}",
            reply.body
        );
    }
    let reply = pages.get(&format!("/api/runs/{run}/logs/run?limt=1"));
    assert!(
        reply
            .body
            .contains("this path takes limit, level, q, conversation, before, after"),
        "{}",
        reply.body
    );
    let stream = pages.get(&format!("/api/runs/{run}/stream?topics=turns"));
    assert_eq!(stream.status, 503, "an ended run has no turns: {}", stream.body);
    assert_eq!(pages.json("/readyz")["status"], "ready");
    std::fs::rename(&folder, folder.with_file_name("elsewhere")).unwrap();
    let reply = pages.get("/readyz");
    assert_eq!(reply.status, 503);
    assert!(
        reply.body.contains("the folder of runs cannot be read"),
        "{}",
        reply.body
    );
}

#[test]
fn live_run_prints_its_pages_first_and_streams_turns() {
    let program = program();
    let endless = config()
        .set("run.train_steps", 1_000_000)
        .without("eval")
        .save(&program);
    let runs = program.runs();
    let mut running = program.start(&[
        "run",
        &endless,
        "--folder",
        runs.to_str().unwrap(),
        "--dashboard=127.0.0.1:0",
    ]);
    let pages = Pages::of(&running);
    let run = id(&program.run_folder());
    let text = pages.stream(&run, "turns").until(&["turn", "rate", "rewards"]);
    assert!(running.running(), "{text}{}", running.log());
    assert!(
        text.contains("\"role\":\"speaker\"") || text.contains("\"role\":\"listener\""),
        "{text}"
    );
    let status = wait_for("both agents", PATIENCE, || {
        let status = pages.json(&format!("/api/runs/{run}/status"));
        let agents = status["live"]["agents"].as_object()?.len();
        (agents == 2).then_some(status)
    });
    assert!(status["live"]["queues"].as_object().unwrap().len() > 2, "{status}");
    for beat in pages.stream(&run, "beats").first("beats", 2) {
        let agents: Vec<&String> = beat["live"]["agents"].as_object().unwrap().keys().collect();
        assert_eq!(agents, ["a", "b"], "{beat}");
    }
    assert_eq!(pages.json(&format!("/api/runs/{run}/facts"))["state"], "live");
    assert_eq!(pages.json(&format!("/api/runs/{run}/letters"))["letters"], json!([]));
}
