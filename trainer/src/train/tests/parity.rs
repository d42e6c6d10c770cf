//! Loss, gradients and optimizer steps equal PyTorch's, on the fixtures from `fixtures/make.py`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use broker::protocol::train::{
    self, ForwardWeights, Loss, M2poMode, M2poScope, OptimStep, Span, Surrogate, TrainBatch, TrainCommand, TrainReply,
};
use safetensors::SafeTensors;
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

use super::parity_models::fixtures;
use super::{Trainer, TrainerClient, TrainerOptions, defaults, loss_of};
use crate::model::{ModelShape, Weights};

#[derive(Deserialize)]
struct Case {
    spans: Vec<CaseSpan>,
    policy: Policy,
    gspo: Clip,
    m2po: Budget,
    returns: Returns,
    optim: Optim,
    scalars: Scalars,
}

#[derive(Deserialize)]
struct CaseSpan {
    parent: Option<u32>,
    ids: Vec<u32>,
    mask: Vec<bool>,
    behaviour_lp: Vec<f32>,
    old_lp: Vec<f32>,
    advantage: f32,
    answer: u32,
    weight: f32,
    temperature: f32,
    on_policy: bool,
}

#[derive(Deserialize)]
struct Policy {
    clip_low: f32,
    clip_high: f32,
    kl_coef: f32,
    entropy_coef: f32,
}

#[derive(Deserialize)]
struct Clip {
    low: f32,
    high: f32,
}

#[derive(Deserialize)]
struct Budget {
    budget: f32,
}

#[derive(Deserialize)]
struct Returns {
    coef: f64,
    low: f32,
    high: f32,
}

#[derive(Deserialize)]
struct Optim {
    lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    clip_norm: f64,
}

#[derive(Deserialize)]
struct Scalars {
    ce: f64,
    policy: f64,
    grad_norms: Vec<f64>,
    many_norms: BTreeMap<String, Vec<f64>>,
    #[serde(flatten)]
    many: BTreeMap<String, f64>,
}

struct Fixture {
    folder: PathBuf,
    case: Case,
    expected: Vec<u8>,
}

impl Fixture {
    fn read(variant: &str) -> Self {
        let folder = fixtures().join(variant);
        Self {
            case: serde_json::from_str(&std::fs::read_to_string(folder.join("case.json")).unwrap()).unwrap(),
            expected: std::fs::read(folder.join("expected.safetensors")).unwrap(),
            folder,
        }
    }

    fn tensor(&self, name: &str) -> Tensor {
        let all = SafeTensors::deserialize(&self.expected).unwrap();
        let view = all.tensor(name).unwrap();
        let size: Vec<i64> = view.shape().iter().map(|n| *n as i64).collect();
        Tensor::from_data_size(view.data(), &size, Kind::Float)
    }

    fn batch(&self) -> TrainBatch {
        let spans = self.case.spans.iter().map(|s| Span {
            parent: s.parent,
            ids: s.ids.clone(),
            mask: s.mask.clone(),
            behaviour_lp: s.behaviour_lp.clone(),
            old_lp: s.old_lp.clone(),
            advantage: s.advantage,
            advantages: Vec::new(),
            answer: s.answer,
            role: 0,
            weight: s.weight,
            temperature: s.temperature,
            on_policy: s.on_policy,
        });
        TrainBatch {
            spans: spans.collect(),
            tokens: 0,
        }
    }

    /// A trainer of the fixture's model, with the fixture's other model as reference policy.
    fn trainer(&self) -> Trainer {
        self.trainer_with(defaults())
    }

    fn trainer_with(&self, options: TrainerOptions) -> Trainer {
        let shape = ModelShape::load(&self.folder).unwrap();
        let aside = tempfile::tempdir().unwrap();
        std::fs::copy(self.folder.join("config.json"), aside.path().join("config.json")).unwrap();
        let reference = self.folder.join("reference.safetensors");
        std::fs::copy(reference, aside.path().join("model.safetensors")).unwrap();
        let other = Weights::load(&shape, aside.path()).unwrap();
        let mut trainer = Trainer::new(shape.clone(), other, options).unwrap();
        trainer.take_reference().unwrap();
        trainer
            .weights
            .copy_from(&Weights::load(&shape, &self.folder).unwrap())
            .unwrap();
        trainer
    }

    fn policy(&self) -> Loss {
        let p = &self.case.policy;
        Loss::Policy(train::Policy {
            kl_coef: p.kl_coef,
            entropy_coef: p.entropy_coef,
            ..train::Policy::clipped(p.clip_low, p.clip_high)
        })
    }

    /// A loss of many tokens, with the data that it needs from the batch.
    fn many(&self, kind: &str, trainer: &mut Trainer) -> (TrainBatch, Loss) {
        let mut batch = self.batch();
        let m2po = |mode| Surrogate::M2po {
            mode,
            budget: self.case.m2po.budget,
            scope: M2poScope::Minibatch,
        };
        let surrogate = match kind {
            "gspo" => Surrogate::Gspo {
                low: self.case.gspo.low,
                high: self.case.gspo.high,
            },
            "m2po_clip" => m2po(M2poMode::Clip),
            "m2po_cap" => m2po(M2poMode::Cap),
            "m2po_mask" => m2po(M2poMode::Mask),
            "reinforce_plus_plus" => {
                let Returns { coef, low, high } = self.case.returns;
                let forward = TrainCommand::Forward {
                    seq: 0,
                    batch: batch.clone(),
                    weights: ForwardWeights::Reference,
                };
                let TrainReply::LogProbs(reference) = trainer.execute(forward).unwrap() else {
                    panic!()
                };
                let steps = std::slice::from_mut(&mut batch);
                crate::loss::kl_returns(steps, &[reference], train::Kl::K1, coef).unwrap();
                return (batch, Loss::Policy(train::Policy::clipped(low, high)));
            }
            other => panic!("{other}"),
        };
        let policy = train::Policy {
            surrogate,
            ..train::Policy::clipped(0.0, 0.0)
        };
        (batch, Loss::Policy(policy))
    }

    fn optim(&self) -> OptimStep {
        let o = &self.case.optim;
        OptimStep {
            lr: o.lr,
            beta1: o.beta1,
            beta2: o.beta2,
            eps: o.eps,
            weight_decay: o.weight_decay,
            clip_norm: o.clip_norm,
        }
    }

    /// The largest gap between a flat buffer and the expected tensors, each relative to the
    /// tensor's norm.
    fn gap(&self, prefix: &str, trainer: &Trainer, flat: &Tensor) -> f64 {
        let gaps = trainer.weights().params().iter().map(|spec| {
            let want = self.tensor(&format!("{prefix}.{}", spec.name)).flatten(0, -1);
            let got = flat
                .narrow(0, spec.offset as i64, spec.numel as i64)
                .detach()
                .to_device(Device::Cpu);
            ((got - &want).norm() / want.norm()).double_value(&[])
        });
        gaps.fold(0.0, f64::max)
    }
}

const VARIANTS: [&str; 2] = ["untied", "tied"];

#[test]
fn logprobs_equal() {
    for variant in VARIANTS {
        let fixture = Fixture::read(variant);
        let batch = fixture.batch();
        let reply = fixture.trainer().execute(TrainCommand::Forward {
            seq: 0,
            batch: batch.clone(),
            weights: ForwardWeights::Trained,
        });
        let TrainReply::LogProbs(spans) = reply.unwrap() else {
            panic!()
        };
        let got: Vec<f32> = spans
            .iter()
            .zip(&batch.spans)
            .flat_map(|(lps, span)| lps.iter().zip(&span.mask).filter(|(_, m)| **m).map(|(lp, _)| *lp))
            .collect();
        let gap = (Tensor::from_slice(&got) - fixture.tensor("logprobs"))
            .abs()
            .max()
            .double_value(&[]);
        assert!(gap < 1e-5, "{variant}: {gap}");
    }
}

#[test]
fn losses_and_gradients_equal() {
    for variant in VARIANTS {
        let fixture = Fixture::read(variant);
        let scalars = &fixture.case.scalars;
        for (kind, loss, want) in [
            ("ce", Loss::CrossEntropy, scalars.ce),
            ("policy", fixture.policy(), scalars.policy),
        ] {
            let mut trainer = fixture.trainer();
            let batch = fixture.batch();
            let stats = loss_of(
                trainer
                    .execute(TrainCommand::ForwardBackward { seq: 0, batch, loss })
                    .unwrap(),
            );
            assert!(
                (stats.loss - want).abs() < 1e-5 * want.abs().max(1.0),
                "{variant} {kind}: {} {want}",
                stats.loss
            );
            let entropy = fixture.tensor("entropies").sum(Kind::Double).double_value(&[]);
            assert!(
                (stats.entropy - entropy).abs() < 1e-4,
                "{variant}: entropy {}",
                stats.entropy
            );
            let gap = fixture.gap(&format!("grad.{kind}"), &trainer, trainer.model.grad());
            assert!(gap < 1e-4, "{variant} {kind}: gradient {gap}");
        }
    }
}

#[test]
fn three_steps_of_adamw_with_clipping_equal() {
    // In blocks, as on a CPU, and by the fused kernel, as on a GPU.
    for (variant, fused) in VARIANTS
        .into_iter()
        .flat_map(|variant| [(variant, false), (variant, true)])
    {
        let fixture = Fixture::read(variant);
        let mut trainer = fixture.trainer();
        trainer.owned.optimizer.set_fused(fused);
        let params = fixture.optim();
        for (step, want) in fixture.case.scalars.grad_norms.iter().enumerate() {
            let seq = 2 * step as u64;
            let (batch, loss) = (fixture.batch(), fixture.policy());
            trainer
                .execute(TrainCommand::ForwardBackward { seq, batch, loss })
                .unwrap();
            let reply = trainer
                .execute(TrainCommand::OptimStep { seq: seq + 1, params })
                .unwrap();
            let TrainReply::Step {
                grad_norm,
                skipped: false,
            } = reply
            else {
                panic!("{reply:?}")
            };
            assert!(
                (grad_norm / want - 1.0).abs() < 1e-3,
                "{variant} step {step}: {grad_norm} {want}"
            );
        }
        let gap = fixture.gap("after", &trainer, trainer.weights().flat());
        assert!(gap < 1e-4, "{variant}, fused {fused}: {gap}");
    }
}

#[test]
fn losses_of_many_tokens_equal() {
    for variant in VARIANTS {
        let fixture = Fixture::read(variant);
        let kinds: Vec<&String> = fixture.case.scalars.many_norms.keys().collect();
        assert_eq!(kinds.len(), 5);
        // Whole, and with rows of one answer and of one minibatch in different micro-batches.
        for (kind, micro_batch_tokens) in kinds.into_iter().flat_map(|kind| [(kind, 10_000), (kind, 1)]) {
            let options = TrainerOptions {
                micro_batch_tokens,
                ..defaults()
            };
            let mut trainer = fixture.trainer_with(options);
            let (batch, loss) = fixture.many(kind, &mut trainer);
            let command = TrainCommand::ForwardBackward { seq: 1, batch, loss };
            let stats = loss_of(trainer.execute(command).unwrap());
            let want = fixture.case.scalars.many[kind];
            let gap = (stats.loss - want).abs();
            assert!(
                gap < 1e-5 * want.abs().max(1.0),
                "{variant} {kind}: {} {want}",
                stats.loss
            );
            let gap = fixture.gap(&format!("grad.{kind}"), &trainer, trainer.model.grad());
            assert!(gap < 1e-4, "{variant} {kind}: gradient {gap}");
            let params = fixture.optim();
            let reply = trainer.execute(TrainCommand::OptimStep { seq: 2, params }).unwrap();
            let TrainReply::Step { grad_norm, .. } = reply else {
                panic!("{reply:?}")
            };
            let norm = fixture.case.scalars.many_norms[kind][0];
            assert!(
                (grad_norm / norm - 1.0).abs() < 1e-4,
                "{variant} {kind}: {grad_norm} {norm}"
            );
            let gap = fixture.gap(&format!("after.{kind}"), &trainer, trainer.weights().flat());
            assert!(gap < 1e-4, "{variant} {kind}: weights {gap}");
        }
    }
}
