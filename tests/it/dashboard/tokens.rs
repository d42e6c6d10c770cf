//! Recorded tokens: their log-probs are those of the transcripts, and recording changes nothing.

use tests::program::Program;
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
