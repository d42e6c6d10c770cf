//! Runs the built-in trainer as the program at the other end of the wire.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use broker::protocol::train::{ForwardWeights, Loss, Span, TrainBatch};
use serde_json::{Value, json};

use super::{Driver, LOSS, STEP};
use crate::checkpoint::moments;
use crate::model::Weights;
use crate::train::Trainer;
use crate::train::rows::rows_of;

/// Answers commands until the end.
pub(super) fn serve(stream: UnixStream, trainer: Trainer) {
    serve_some(stream, trainer, usize::MAX);
}

/// Answers `count` commands.
pub(super) fn serve_some(stream: UnixStream, trainer: Trainer, count: usize) {
    let mut out = stream.try_clone().unwrap();
    writeln!(out, "{}", json!({"hello": "built-in", "protocol": 1})).unwrap();
    let mut driver = Driver::new(trainer);
    for line in BufReader::new(stream).lines().take(count) {
        let command: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if command["command"] == "end" {
            return;
        }
        writeln!(out, "{}", json!({"progress": 1})).unwrap();
        let mut reply = answer(&mut driver, &command);
        reply["seq"] = command["seq"].clone();
        writeln!(out, "{reply}").unwrap();
    }
}

fn answer(driver: &mut Driver<Trainer>, command: &Value) -> Value {
    let folder = PathBuf::from(command["folder"].as_str().unwrap_or_default());
    match command["command"].as_str().unwrap() {
        "open" => json!({"reply": "opened"}),
        "forward_backward" => forward_backward(driver, command),
        "forward" => {
            let weights = match command["weights"].as_str().unwrap() {
                "trained" => ForwardWeights::Trained,
                _ => ForwardWeights::Reference,
            };
            let (batch, counts) = batch_of(&command["rows"]);
            let logprobs = by_row(&driver.logprobs(&batch, weights), &counts);
            json!({"reply": "log_probs", "logprobs": logprobs})
        }
        "optim_step" => {
            assert_eq!(command["params"], as_passed(&STEP));
            json!({"reply": "step", "grad_norm": driver.step(STEP), "skipped": false})
        }
        "publish" => {
            if command["reference"] == true {
                driver.trainer.take_reference().unwrap();
            }
            save_weights(driver.trainer.weights(), driver, &folder);
            json!({"reply": "published"})
        }
        "save" => {
            save(driver, &folder);
            json!({"reply": "saved"})
        }
        "load" => {
            driver.load(&folder);
            json!({"reply": "loaded"})
        }
        other => panic!("{other}"),
    }
}

/// Returns a value as it comes out of a line: f32 numbers have fewer digits there.
fn as_passed<T: serde::Serialize>(value: &T) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn forward_backward(driver: &mut Driver<Trainer>, command: &Value) -> Value {
    let passed = |loss: &Loss| command["loss"] == as_passed(loss);
    let loss = [LOSS, Loss::CrossEntropy].into_iter().find(passed);
    let (batch, counts) = batch_of(&command["rows"]);
    let reference = match loss {
        Some(LOSS) => by_row(&driver.logprobs(&batch, ForwardWeights::Reference), &counts),
        _ => Vec::new(),
    };
    let logprobs = by_row(&driver.logprobs(&batch, ForwardWeights::Trained), &counts);
    let entropies = by_row(&entropies(&driver.trainer, &batch), &counts);
    let total = driver.loss(&batch, loss.unwrap()).unwrap().loss;
    json!({"reply": "loss", "loss": total, "logprobs": logprobs, "entropies": entropies, "reference": reference})
}

/// Returns the entropies of a batch, span by span like log-probs.
fn entropies(trainer: &Trainer, batch: &TrainBatch) -> Vec<Vec<f32>> {
    let work = trainer.work(batch, rows_of(batch, &trainer.shape).unwrap());
    let lists = trainer.model.head_lists(&work, None).unwrap();
    let mut spans: Vec<Vec<f32>> = batch.spans.iter().map(|span| vec![0.0; span.ids.len()]).collect();
    for (micro, (_, entropies, _)) in lists.into_iter().enumerate() {
        for (trained, entropy) in work.tokens(micro).zip(entropies) {
            spans[trained.span][trained.offset] = entropy;
        }
    }
    spans
}

/// Turns rows into a batch: each trained token is an answer to its own context. Also returns the
/// number of trained tokens in each row.
fn batch_of(rows: &Value) -> (TrainBatch, Vec<usize>) {
    let (mut spans, mut counts) = (Vec::new(), Vec::new());
    let floats = |row: &Value, name: &str, place: usize| row[name][place].as_f64().unwrap() as f32;
    let number = |value: &Value| value.as_u64().unwrap() as u32;
    for row in rows.as_array().unwrap() {
        let ids: Vec<u32> = row["ids"].as_array().unwrap().iter().map(number).collect();
        let at: Vec<u32> = row["at"].as_array().unwrap().iter().map(number).collect();
        counts.push(at.len());
        for (place, at) in at.into_iter().enumerate() {
            let context = ids[..=at as usize].to_vec();
            let length = context.len();
            spans.push(Span {
                ids: context,
                mask: vec![false; length],
                behaviour_lp: vec![0.0; length],
                ..Span::default()
            });
            spans.push(Span {
                parent: Some(spans.len() as u32 - 1),
                ids: vec![number(&row["targets"][place])],
                mask: vec![true],
                behaviour_lp: vec![floats(row, "behaviour", place)],
                old_lp: vec![floats(row, "old", place)],
                advantage: floats(row, "advantage", place),
                weight: floats(row, "weight", place),
                temperature: floats(row, "temperature", place),
                ..Span::default()
            });
        }
    }
    (TrainBatch { spans, tokens: 0 }, counts)
}

/// Returns the values of the trained tokens, row by row. In [`batch_of`] every second span is one
/// trained token.
fn by_row(spans: &[Vec<f32>], counts: &[usize]) -> Vec<Vec<f32>> {
    let mut values = spans.iter().skip(1).step_by(2).map(|span| span[0]);
    counts
        .iter()
        .map(|count| values.by_ref().take(*count).collect())
        .collect()
}

fn save_weights(weights: &Weights, driver: &Driver<Trainer>, folder: &Path) {
    weights.save(&driver.trainer.shape, folder).unwrap();
}

fn save(driver: &Driver<Trainer>, folder: &Path) {
    let trainer = &driver.trainer;
    save_weights(trainer.weights(), driver, folder);
    let layout = || std::sync::Arc::clone(trainer.weights().layout());
    let (first, second) = trainer.owned.optimizer.moments();
    let [first, second] = [first, second].map(|moment| Weights::at_start_of(moment, layout()).unwrap());
    moments::file([&first, &second]).put(folder).unwrap();
    if let Some(reference) = &trainer.reference {
        save_weights(&reference.weights, driver, &folder.join("reference"));
    }
}
