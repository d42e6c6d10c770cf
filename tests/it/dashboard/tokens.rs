//! Recorded tokens: their log-probs are those of the transcripts, their outcomes in training add up
//! to the trainer's figures, and recording changes nothing.

use std::collections::BTreeMap;

use tests::program::{Program, metrics};
use tests::trace::digests;

use super::{Pages, config, id, serve};
use crate::program;

#[test]
fn recorded_tokens_have_the_stated_mean_and_change_no_digest() {
    let (program, other) = (program(), program());
    let play = |program: &Program, records: &str| {
        let config = config().set("run.token_records", records);
        program.play("run", &config.save(program), &[])
    };
    let (none, all) = (play(&other, "none"), play(&program, "all"));
    assert!(!digests(&none).is_empty());
    assert_eq!(digests(&none), digests(&all));
    assert!(!none.join("tokens").exists());

    let running = serve(&program, &id(&all), &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{}/{path}", id(&all)));
    let mut turns = 0;
    for listed in api("conversations?limit=30")["conversations"].as_array().unwrap() {
        let path = format!("conversations/{}", listed["conversation"].as_str().unwrap());
        let (shown, tokens) = (api(&path), api(&format!("{path}/tokens")));
        for turn in shown["transcript"]["turns"].as_array().unwrap() {
            let mut of_turn = tokens["tokens"].as_array().unwrap().iter();
            let record = of_turn
                .find(|one| one["role"] == turn["role"] && one["turn"] == turn["turn"])
                .unwrap_or_else(|| panic!("{path}: {turn}\n{tokens}"));
            let values: Vec<f64> = record["logprobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value.as_f64().unwrap())
                .collect();
            assert_eq!(turn["tokens"], values.len());
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let stated = turn["mean_logprob"].as_f64().unwrap();
            assert!((mean - stated).abs() < 1e-5, "{mean} is not {stated}");
            let pieces: String = record["pieces"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|one| one.as_str())
                .collect();
            assert!(pieces.contains(turn["text"].as_str().unwrap()), "{pieces:?}: {turn}");
            let spans = record["spans"].as_array().unwrap();
            assert_eq!(spans.last().unwrap()["version"], turn["version"], "{record}");
            turns += 1;
        }
    }
    assert!(turns > 30, "{turns} turns");
}

/// Tokens of one optimizer batch, as their records add up.
#[derive(Debug, Default)]
struct Sums {
    tokens: f64,
    clipped: f64,
    ratio: f64,
}

#[test]
fn recorded_outcomes_add_up_to_the_trainers_figures() {
    let program = program();
    let config = config()
        .set("run.token_records", "all")
        .set("defaults.agent.train.epochs", 3)
        .set("defaults.agent.train.optimizer.lr", 0.02)
        .set("defaults.agent.train.loss.clip_high", 0.05);
    let run = program.play("run", &config.save(&program), &[]);
    let running = serve(&program, &id(&run), &[]);
    let pages = Pages::of(&running);
    let api = |path: &str| pages.json(&format!("/api/runs/{}/{path}", id(&run)));
    let mut sums: BTreeMap<(String, u64), Sums> = BTreeMap::new();
    for listed in api("conversations?limit=200&kind=train")["conversations"]
        .as_array()
        .unwrap()
    {
        let path = format!("conversations/{}", listed["conversation"].as_str().unwrap());
        let (shown, tokens) = (api(&path), api(&format!("{path}/tokens")));
        for record in tokens["tokens"].as_array().unwrap() {
            let turns = shown["transcript"]["turns"].as_array().unwrap();
            let agent = turns.iter().find(|turn| turn["role"] == record["role"]).unwrap()["agent"]
                .as_str()
                .unwrap();
            let verdicts = shown["custody"]["agents"][agent]["verdicts"].as_array().unwrap();
            let training = record["training"].as_array().unwrap();
            let updates: Vec<u64> = training.iter().map(|one| one["update"].as_u64().unwrap()).collect();
            match verdicts
                .iter()
                .find(|one| one["role"] == record["role"] && one["reason"].is_null())
            {
                Some(_) => assert_eq!(updates, [1, 2, 3], "{record}"),
                None => assert!(updates.is_empty(), "{record}"),
            }
            for one in training {
                let key = (agent.to_owned(), one["step"].as_u64().unwrap());
                assert!(
                    verdicts.iter().any(|verdict| verdict["step"] == key.1),
                    "{verdicts:?}: {one}"
                );
                let sum = sums.entry(key).or_default();
                for (outcome, ratio) in one["outcomes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .zip(one["ratios"].as_array().unwrap())
                {
                    sum.tokens += 1.0;
                    sum.clipped += f64::from(u8::from(outcome == "clipped"));
                    sum.ratio += ratio.as_f64().unwrap();
                    assert!(outcome == "clipped" || outcome == "trained", "{one}");
                }
            }
        }
    }
    let lines = metrics(&run, "train");
    assert_eq!(lines.len(), 8);
    for line in &lines {
        let key = (
            line["agent"].as_str().unwrap().to_owned(),
            line["step"].as_u64().unwrap(),
        );
        let sum = &sums[&key];
        for (name, found) in [("loss/clipped", sum.clipped), ("loss/ratio", sum.ratio)] {
            let (found, stated) = (found / sum.tokens, line[name].as_f64().unwrap());
            assert!(
                (found - stated).abs() < 1e-5,
                "{key:?}: {name} is {stated}, the records say {found}"
            );
        }
    }
    let clipped: f64 = sums.values().map(|sum| sum.clipped).sum();
    let tokens: f64 = sums.values().map(|sum| sum.tokens).sum();
    assert!(clipped > 0.0 && clipped < tokens, "{clipped} of {tokens} are clipped");
}
