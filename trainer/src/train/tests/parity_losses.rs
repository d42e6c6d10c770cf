//! Each loss that TRL also has equals TRL's, value and gradients, on the rows and cases from
//! `fixtures/losses.py`.
//!
//! A case has the settings of both sides. The logits of a row are the hidden states of a head that
//! is the identity.

use configs::{Aggregation, KlKind, LossKind, Ratio, TrainConfig};
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

use super::parity_models::fixtures;
use crate::loss::head::{self, HeadGrad, HeadInput, HeadValues};
use crate::loss::joint::{self, Member};
use crate::loss::{Token, configured};

/// Both sides compute in f32, and sum in another order.
const LOSS_GAP: f64 = 2e-6;
const GRADIENT_GAP: f64 = 1e-5;

#[derive(Deserialize)]
struct Fixture {
    vocab: i64,
    /// TRL's `max_completion_length`, our `max_new_tokens`.
    longest: f64,
    rows: Vec<Row>,
    cases: Vec<Case>,
}

/// An answer, token by token except for the advantage.
#[derive(Deserialize)]
struct Row {
    ids: Vec<i64>,
    mask: Vec<u8>,
    advantage: f64,
    logits: Vec<Vec<f32>>,
    old: Vec<f64>,
    behaviour: Vec<f64>,
    reference: Vec<f64>,
}

impl Row {
    fn trained(&self) -> impl Iterator<Item = usize> {
        (0..self.ids.len()).filter(move |at| self.mask[*at] == 1)
    }
}

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Our settings for TRL's loss.
    ours: TrainConfig,
    loss: f64,
    by_logprob: Vec<Vec<f64>>,
    by_logits: Vec<Vec<Vec<f64>>>,
    #[serde(default)]
    on_policy: bool,
    #[serde(default)]
    gradient_only: bool,
    /// TRL's gradient is ours times this factor.
    #[serde(default = "once")]
    times: f64,
}

fn once() -> f64 {
    1.0
}

impl Fixture {
    fn read() -> Self {
        let path = fixtures().join("losses.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// (row, offset) of every trained token.
    fn places(&self) -> Vec<(usize, usize)> {
        let rows = self.rows.iter().enumerate();
        rows.flat_map(|(row, of)| of.trained().map(move |at| (row, at)))
            .collect()
    }

    /// `u_s / D`, as in `rollout/src/batch/weigh.rs`.
    fn weight(&self, aggregation: Aggregation, row: usize) -> f64 {
        let samples = self.rows.len() as f64;
        match aggregation {
            Aggregation::Token => 1.0 / self.places().len() as f64,
            Aggregation::Sequence => 1.0 / (self.rows[row].trained().count() as f64 * samples),
            Aggregation::Constant => 1.0 / (self.longest * samples),
            other => panic!("TRL has no {other:?}"),
        }
    }

    fn members(&self, case: &Case, values: &HeadValues) -> Vec<Member> {
        let member = |(i, (row, at)): (usize, (usize, usize))| {
            let (of, logprob) = (&self.rows[row], f64::from(values.logprobs[i]));
            let old = if case.on_policy { logprob } else { of.old[at] };
            // If the ratio is to the behaviour, a batch has the behaviour's log-probs in both
            // places.
            let behaviour = match case.ours.loss.ratio {
                Ratio::Behaviour => old,
                Ratio::Decoupled => of.behaviour[at],
            };
            let token = Token {
                logprob,
                old,
                behaviour,
                reference: of.reference[at],
                advantage: of.advantage,
                entropy: f64::from(values.entropies[i]),
            };
            Member {
                token,
                weight: self.weight(case.ours.loss.agg, row),
                answer: row as u32,
                span: row,
                offset: at,
            }
        };
        self.places().into_iter().enumerate().map(member).collect()
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Norm of the gap, relative to the norm of `want`.
fn relative(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    norm(got.iter().zip(want).map(|(a, b)| a - b)) / norm(want.iter().copied())
}

#[test]
fn losses_and_gradients_equal_trls() {
    let fixture = Fixture::read();
    let places = fixture.places();
    let logits: Vec<f32> = places
        .iter()
        .flat_map(|(row, at)| fixture.rows[*row].logits[*at].clone())
        .collect();
    let hidden = Tensor::from_slice(&logits).view([places.len() as i64, fixture.vocab]);
    let matrix = Tensor::eye(fixture.vocab, (Kind::Float, Device::Cpu));
    let targets: Vec<i64> = places.iter().map(|(row, at)| fixture.rows[*row].ids[*at]).collect();
    let temperatures = vec![1.0; places.len()];
    let input = HeadInput {
        hidden: &hidden,
        matrix: &matrix,
        adapter: None,
        targets: &targets,
        temperatures: &temperatures,
        chunk_elements: 80,
    };
    let values = head::values(&input).unwrap();
    for case in &fixture.cases {
        let (shares, _) = joint::shares(
            &configured(&case.ours, case.ours.entropy),
            &fixture.members(case, &values),
        );
        let value: f64 = shares.iter().map(|share| share.value).sum();
        let gap = (value / case.loss - 1.0).abs();
        assert!(
            case.gradient_only || gap < LOSS_GAP,
            "{}: {value}, TRL {}",
            case.name,
            case.loss
        );

        let got: Vec<f64> = shares.iter().map(|s| case.times * s.slope.d_logprob).collect();
        let want: Vec<f64> = places.iter().map(|(row, at)| case.by_logprob[*row][*at]).collect();
        let gap = relative(&got, &want);
        assert!(gap < GRADIENT_GAP, "{}: by log-probs {gap}", case.name);

        let by_logits = head::gradients(&input, HeadGrad::Frozen, |i, _, _| shares[i].slope).unwrap();
        let got = Vec::<f64>::try_from(by_logits.to_kind(Kind::Double).flatten(0, -1) * case.times).unwrap();
        let want: Vec<f64> = places
            .iter()
            .flat_map(|(row, at)| case.by_logits[*row][*at].clone())
            .collect();
        let gap = relative(&got, &want);
        assert!(gap < GRADIENT_GAP, "{}: by logits {gap}", case.name);
    }
}

/// Losses that TRL does not have are tested elsewhere; all others must be here.
#[test]
fn every_loss_that_trl_has_is_a_case() {
    let cases = Fixture::read().cases;
    let has = |of: &dyn Fn(&TrainConfig) -> bool| cases.iter().any(|case| of(&case.ours));
    for kind in [
        LossKind::Grpo,
        LossKind::ImportanceSampling,
        LossKind::Cispo,
        LossKind::Gspo,
        LossKind::CrossEntropy,
    ] {
        assert!(has(&|ours| ours.loss.kind == kind), "{kind:?}");
    }
    for aggregation in [Aggregation::Token, Aggregation::Sequence, Aggregation::Constant] {
        assert!(has(&|ours| ours.loss.agg == aggregation), "{aggregation:?}");
    }
    assert!(has(&|ours| ours.loss.dual_clip.is_some()) && has(&|ours| ours.loss.ratio == Ratio::Decoupled));
    assert!(has(&|ours| ours.kl.coef > 0.0 && ours.kl.kind == KlKind::K3) && has(&|ours| ours.entropy > 0.0));
}
