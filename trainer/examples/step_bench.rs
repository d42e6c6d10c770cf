//! Time of one training step, part by part, and of the same gradient by autograd through the
//! vocabulary.
//!
//! ```text
//! cargo run -p trainer --example step_bench
//! ```

use std::time::Instant;

use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand};
use tch::{Device, Kind, Tensor};
use trainer::model::{Architecture, Biases, Decoder, Init, ModelShape, Rope, RowBatch, Weights};
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Scene {
    name: &'static str,
    layers: usize,
    hidden: usize,
    vocab: usize,
    /// The number of prompts, of completions of each, and of tokens in both.
    prompts: usize,
    samples: usize,
    prompt: usize,
    completion: usize,
}

const SCENES: [Scene; 3] = [
    Scene {
        name: "signal",
        layers: 2,
        hidden: 64,
        vocab: 36,
        prompts: 16,
        samples: 16,
        prompt: 2,
        completion: 1,
    },
    Scene {
        name: "small",
        layers: 4,
        hidden: 128,
        vocab: 300,
        prompts: 8,
        samples: 8,
        prompt: 16,
        completion: 24,
    },
    Scene {
        name: "wide",
        layers: 2,
        hidden: 128,
        vocab: 32_000,
        prompts: 4,
        samples: 4,
        prompt: 32,
        completion: 32,
    },
];

impl Scene {
    fn shape(&self) -> ModelShape {
        ModelShape {
            arch: Architecture::Qwen3,
            biases: Biases::default(),
            vocab: self.vocab,
            layers: self.layers,
            hidden: self.hidden,
            heads: 4,
            kv_heads: 4,
            head_dim: self.hidden / 4,
            intermediate: 4 * self.hidden,
            max_context: 128,
            rms_eps: 1e-6,
            rope: Rope::plain(10_000.0),
            tied: false,
            bos: None,
            eos: vec![],
            pad: None,
        }
    }

    fn ids(&self, n: usize, salt: usize) -> Vec<u32> {
        (0..n)
            .map(|i| ((i * 7919 + salt * 104_729) % self.vocab) as u32)
            .collect()
    }

    fn batch(&self) -> TrainBatch {
        let total = self.prompts * self.samples * self.completion;
        let span = |parent, ids: Vec<u32>, trained: bool| Span {
            parent,
            mask: vec![trained; ids.len()],
            behaviour_lp: vec![-3.0; ids.len()],
            ids,
            advantage: 1.0,
            weight: if trained { 1.0 / total as f32 } else { 0.0 },
            temperature: 1.0,
            ..Span::default()
        };
        let mut spans = Vec::new();
        for p in 0..self.prompts {
            let parent = spans.len() as u32;
            spans.push(span(None, self.ids(self.prompt, p), false));
            for s in 0..self.samples {
                spans.push(span(
                    Some(parent),
                    self.ids(self.completion, 1 + p * self.samples + s),
                    true,
                ));
            }
        }
        TrainBatch {
            spans,
            tokens: total as u64,
        }
    }
}

/// Least and median milliseconds.
fn time(mut work: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (begun.elapsed().as_secs_f64() < 3.0 && times.len() < 300) {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[times.len() / 2]))
}

fn run(scene: &Scene) -> Result<()> {
    let shape = scene.shape();
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.1,
    };
    let mut trainer = Trainer::new(
        shape.clone(),
        Weights::random(&shape, init, 1)?,
        TrainerOptions::default(),
    )?;
    let mut seq = 0;
    let mut send = |make: &dyn Fn(u64) -> TrainCommand| -> Result<()> {
        seq += 1;
        trainer.execute(make(seq))?;
        Ok(())
    };
    let batch = scene.batch();
    let loss = Loss::Policy(Policy {
        entropy_coef: 0.01,
        ..Policy::clipped(0.2, 0.2)
    });
    let (least, median) = time(|| {
        send(&|seq| TrainCommand::ForwardBackward {
            seq,
            batch: batch.clone(),
            loss,
        })
    })?;
    println!(
        "{:7} forward_backward {least:8.2} ms least {median:8.2} median",
        scene.name
    );
    let params = OptimStep {
        lr: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        clip_norm: 1.0,
    };
    let (least, median) = time(|| send(&|seq| TrainCommand::OptimStep { seq, params }))?;
    println!(
        "{:7} optim_step       {least:8.2} ms least {median:8.2} median",
        scene.name
    );
    let (least, median) = autograd(scene, &shape)?;
    println!(
        "{:7} autograd, as rows{least:8.2} ms least {median:8.2} median",
        scene.name
    );
    Ok(())
}

/// The plain way: every row separately, with log-probs and entropy in the graph.
fn autograd(scene: &Scene, shape: &ModelShape) -> Result<(f64, f64)> {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.1,
    };
    let weights = Weights::random(shape, init, 1)?;
    let (decoder, leaves) = Decoder::trainable(shape, &weights)?;
    let (mut rows, mut at, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for p in 0..scene.prompts {
        for s in 0..scene.samples {
            let answer = scene.ids(scene.completion, 1 + p * scene.samples + s);
            let width = scene.prompt + scene.completion - 1;
            at.extend((0..scene.completion).map(|i| (rows.len() * width + scene.prompt - 1 + i) as i64));
            targets.extend(answer.iter().map(|id| i64::from(*id)));
            let mut row = scene.ids(scene.prompt, p);
            row.extend(&answer[..scene.completion - 1]);
            rows.push(row);
        }
    }
    let (at, targets) = (Tensor::from_slice(&at), Tensor::from_slice(&targets).unsqueeze(1));
    let inputs: Vec<&Tensor> = leaves.iter().map(|leaf| &leaf.tensor).collect();
    time(|| {
        let batch = RowBatch::new(shape, &rows, Device::Cpu)?;
        let hidden = decoder.hidden(&batch)?.index_select(0, &at);
        let logprobs = decoder.logits(&hidden)?.log_softmax(-1, Kind::Float);
        let picked = logprobs.gather(1, &targets, false);
        let ratio = (picked + 3.0).exp();
        let policy = -ratio.minimum(&ratio.clamp(0.8, 1.2)).mean(Kind::Float);
        let entropy = -(logprobs.exp() * &logprobs).sum_dim_intlist(&[-1i64][..], false, Kind::Float);
        let loss = policy - entropy.mean(Kind::Float) * 0.01;
        let _ = Tensor::f_run_backward(&[loss], &inputs, false, false)?;
        Ok(())
    })
}

fn main() -> Result<()> {
    tch::set_num_threads(1);
    SCENES.iter().try_for_each(run)
}
