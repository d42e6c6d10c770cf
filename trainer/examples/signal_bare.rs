//! The referential game in one process, without queues or engine: the reference for
//! `configs/signal.toml`.
//!
//! Agent a sees one of 16 objects and says one word. Agent b sees only the word and names the
//! object. Both earn 1 if it is right. Two random models, plain policy gradient with a
//! leave-one-out baseline.
//!
//! ```text
//! cargo run -p trainer --example signal_bare -- [key=value ...]  # keys: fields of `Settings`
//! ```

use std::time::Instant;

use broker::protocol::train::{Loss, OptimStep, Policy, Span, TrainBatch, TrainCommand, TrainReply};
use tch::{Device, Kind};
use trainer::model::{Architecture, Biases, Decoder, Init, ModelShape, Rope, RowBatch, Weights};
use trainer::rng;
use trainer::train::{Trainer, TrainerClient, TrainerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const OBJECTS: usize = 16;
/// o0..o15, s0..s15, then end of turn, assistant marker, user marker, padding.
const WORDS: u32 = 32;
const MARKER: u32 = 33;
const VOCAB: usize = 36;

#[derive(Debug, Clone, Copy)]
struct Settings {
    seeds: usize,
    first_seed: usize,
    steps: usize,
    /// The number of objects in a batch, and of conversations about each.
    targets: usize,
    samples: usize,
    lr: f64,
    entropy: f64,
    clip_norm: f64,
    beta2: f64,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    intermediate: usize,
    embedding_std: f64,
    matrix_std: f64,
    /// Further steps after 16 of 16, to see whether the result holds.
    after: usize,
    verbose: usize,
}

impl Settings {
    /// The most reliable settings: 30 of 30 seeds learn in 35 to 140 steps. From lr 6e-4 and
    /// entropy 0.03 to lr 1e-3 and 0.05, all seeds learn too. Entropy 0 or 0.1 fails for up to half
    /// of the seeds, and lr 2e-3 for one in ten.
    fn new() -> Self {
        Self {
            seeds: 5,
            first_seed: 0,
            steps: 1000,
            targets: 16,
            samples: 16,
            lr: 1e-3,
            entropy: 0.04,
            clip_norm: 1.0,
            beta2: 0.999,
            layers: 2,
            hidden: 64,
            heads: 4,
            kv_heads: 4,
            intermediate: 256,
            embedding_std: 1.0,
            matrix_std: 0.2,
            after: 0,
            verbose: 0,
        }
    }

    fn from_args() -> Result<Self> {
        let mut s = Self::new();
        for arg in std::env::args().skip(1) {
            let (key, value) = arg.split_once('=').ok_or_else(|| format!("{arg:?} is not key=value"))?;
            let real = || value.parse::<f64>();
            let whole = || value.parse::<usize>();
            match key {
                "seeds" => s.seeds = whole()?,
                "first_seed" => s.first_seed = whole()?,
                "steps" => s.steps = whole()?,
                "targets" => s.targets = whole()?,
                "samples" => s.samples = whole()?,
                "lr" => s.lr = real()?,
                "entropy" => s.entropy = real()?,
                "clip_norm" => s.clip_norm = real()?,
                "beta2" => s.beta2 = real()?,
                "layers" => s.layers = whole()?,
                "hidden" => s.hidden = whole()?,
                "heads" => s.heads = whole()?,
                "kv_heads" => s.kv_heads = whole()?,
                "intermediate" => s.intermediate = whole()?,
                "embedding_std" => s.embedding_std = real()?,
                "matrix_std" => s.matrix_std = real()?,
                "after" => s.after = whole()?,
                "verbose" => s.verbose = whole()?,
                _ => return Err(format!("there is no setting {key:?}").into()),
            }
        }
        Ok(s)
    }

    fn shape(&self) -> ModelShape {
        ModelShape {
            arch: Architecture::Qwen3,
            biases: Biases::default(),
            vocab: VOCAB,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.hidden / self.heads,
            intermediate: self.intermediate,
            max_context: 16,
            rms_eps: 1e-6,
            rope: Rope::plain(10_000.0),
            tied: false,
            bos: None,
            eos: vec![WORDS],
            pad: None,
        }
    }
}

/// One policy: its trainer, and a model over the same weights that samples.
struct Agent {
    trainer: Trainer,
    sampler: Decoder,
    seq: u64,
}

/// One sampled token.
#[derive(Clone, Copy)]
struct Draw {
    token: u32,
    logprob: f32,
}

impl Agent {
    fn new(settings: &Settings, seed: u64) -> Result<Self> {
        let init = Init {
            embedding_std: settings.embedding_std,
            matrix_std: settings.matrix_std,
        };
        let shape = settings.shape();
        let trainer = Trainer::new(
            shape.clone(),
            Weights::random(&shape, init, seed)?,
            TrainerOptions::default(),
        )?;
        let sampler = Decoder::new(&shape, trainer.weights())?;
        Ok(Self {
            trainer,
            sampler,
            seq: 0,
        })
    }

    /// Log-probs of the next token after each prompt, row by row.
    fn next(&self, prompts: &[Vec<u32>]) -> Result<Vec<f32>> {
        let _no_grad = tch::no_grad_guard();
        let batch = RowBatch::new(self.sampler.shape(), prompts, Device::Cpu)?;
        let hidden = self.sampler.hidden(&batch)?.index_select(0, &batch.last()?);
        let logprobs = self.sampler.logits(&hidden)?.log_softmax(-1, Kind::Float);
        Ok(Vec::<f32>::try_from(logprobs.flatten(0, -1))?)
    }

    fn sample(&self, prompts: &[Vec<u32>], uniform: impl Fn(usize) -> f64) -> Result<Vec<Draw>> {
        let rows = self.next(prompts)?;
        Ok(rows
            .chunks(VOCAB)
            .enumerate()
            .map(|(i, row)| draw(row, uniform(i)))
            .collect())
    }

    fn greedy(&self, prompts: &[Vec<u32>]) -> Result<Vec<u32>> {
        let best = |row: &[f32]| (0..VOCAB).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0) as u32;
        Ok(self.next(prompts)?.chunks(VOCAB).map(best).collect())
    }

    fn learn(&mut self, batch: TrainBatch, settings: &Settings) -> Result<f64> {
        let loss = Loss::Policy(Policy {
            entropy_coef: settings.entropy as f32,
            ..Policy::clipped(0.2, 0.2)
        });
        let params = OptimStep {
            lr: settings.lr,
            beta1: 0.9,
            beta2: settings.beta2,
            eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: settings.clip_norm,
        };
        let seq = self.seq;
        self.seq += 2;
        let reply = self
            .trainer
            .execute(TrainCommand::ForwardBackward { seq, batch, loss })?;
        self.trainer.execute(TrainCommand::OptimStep { seq: seq + 1, params })?;
        match reply {
            TrainReply::Loss(stats) if stats.on_policy_gap > 1e-4 => {
                Err(format!("the ratio is {} off 1 on policy", stats.on_policy_gap).into())
            }
            TrainReply::Loss(stats) => Ok(stats.entropy / stats.tokens),
            other => Err(format!("{other:?} is no answer to a loss").into()),
        }
    }
}

fn draw(logprobs: &[f32], uniform: f64) -> Draw {
    let mut sum = 0.0;
    let token = logprobs.iter().position(|lp| {
        sum += f64::from(*lp).exp();
        sum > uniform
    });
    let token = token.unwrap_or(logprobs.len() - 1);
    Draw {
        token: token as u32,
        logprob: logprobs[token],
    }
}

/// The listener's prompt: control tokens have no text.
fn received(word: u32) -> Vec<u32> {
    if word < WORDS { vec![word, MARKER] } else { vec![MARKER] }
}

fn span(parent: Option<u32>, ids: Vec<u32>, drawn: Option<(Draw, f32, f32)>) -> Span {
    let (draw, advantage, weight) = drawn.unwrap_or((Draw { token: 0, logprob: 0.0 }, 0.0, 0.0));
    Span {
        parent,
        mask: vec![drawn.is_some(); ids.len()],
        behaviour_lp: vec![draw.logprob; ids.len()],
        old_lp: Vec::new(),
        ids,
        advantage,
        advantages: Vec::new(),
        answer: 0,
        role: 0,
        weight,
        temperature: 1.0,
        on_policy: true,
    }
}

/// A prompt and its completion for each conversation.
fn batch_of(prompts: &[Vec<u32>], draws: &[Draw], advantages: &[f32]) -> TrainBatch {
    let weight = 1.0 / draws.len() as f32;
    let mut batch = TrainBatch {
        spans: Vec::with_capacity(2 * draws.len()),
        tokens: draws.len() as u64,
    };
    for ((prompt, draw), advantage) in prompts.iter().zip(draws).zip(advantages) {
        let parent = batch.spans.len() as u32;
        batch.spans.push(span(None, prompt.clone(), None));
        batch
            .spans
            .push(span(Some(parent), vec![draw.token], Some((*draw, *advantage, weight))));
    }
    batch
}

/// Each reward minus the mean of the others in its group.
fn leave_one_out(rewards: &[f32], group: usize) -> Vec<f32> {
    rewards
        .chunks(group)
        .flat_map(|group| {
            let (sum, others) = (group.iter().sum::<f32>(), (group.len() - 1).max(1) as f32);
            group.iter().map(move |reward| reward - (sum - reward) / others)
        })
        .collect()
}

/// The number of objects that are named correctly when both agents take their best token.
fn greedy_score(speaker: &Agent, listener: &Agent) -> Result<usize> {
    let prompts: Vec<Vec<u32>> = (0..OBJECTS as u32).map(|object| vec![object, MARKER]).collect();
    let received: Vec<Vec<u32>> = speaker.greedy(&prompts)?.into_iter().map(received).collect();
    let answers = listener.greedy(&received)?;
    Ok(answers
        .iter()
        .enumerate()
        .filter(|(object, answer)| **answer as usize == *object)
        .count())
}

struct Outcome {
    reached: Option<(usize, f64)>,
    last: usize,
    lowest_after: usize,
}

fn play(settings: &Settings, seed: u64) -> Result<Outcome> {
    let mut speaker = Agent::new(settings, 2 * seed + 1)?;
    let mut listener = Agent::new(settings, 2 * seed + 2)?;
    let begun = Instant::now();
    let mut outcome = Outcome {
        reached: None,
        last: 0,
        lowest_after: OBJECTS,
    };
    for step in 0..settings.steps {
        let objects: Vec<u32> = (0..settings.targets * settings.samples)
            .map(|i| ((step * settings.targets + i / settings.samples) % OBJECTS) as u32)
            .collect();
        let uniform = |stream: u64, i: usize| rng::uniform(seed, 2 * step as u64 + stream, i as u64);
        let prompts: Vec<Vec<u32>> = objects.iter().map(|object| vec![*object, MARKER]).collect();
        let words = speaker.sample(&prompts, |i| uniform(0, i))?;
        let received: Vec<Vec<u32>> = words.iter().map(|word| received(word.token)).collect();
        let answers = listener.sample(&received, |i| uniform(1, i))?;
        let rewards: Vec<f32> = answers
            .iter()
            .zip(&objects)
            .map(|(a, o)| f32::from(u8::from(a.token == *o)))
            .collect();
        let advantages = leave_one_out(&rewards, settings.samples);
        let entropy = [
            speaker.learn(batch_of(&prompts, &words, &advantages), settings)?,
            listener.learn(batch_of(&received, &answers, &advantages), settings)?,
        ];
        if step % 5 == 4 {
            outcome.last = greedy_score(&speaker, &listener)?;
            if settings.verbose > 0 && (step + 1) % settings.verbose == 0 {
                let mean = rewards.iter().sum::<f32>() / rewards.len() as f32;
                println!(
                    "  step {:4} reward {mean:.3} greedy {} entropy {entropy:.2?}",
                    step + 1,
                    outcome.last
                );
            }
            match outcome.reached {
                None if outcome.last == OBJECTS => {
                    outcome.reached = Some((step + 1, begun.elapsed().as_secs_f64()));
                }
                Some((at, _)) if step + 1 >= at + settings.after => break,
                Some(_) => outcome.lowest_after = outcome.lowest_after.min(outcome.last),
                None => {}
            }
        }
        if settings.after == 0 && outcome.reached.is_some() {
            break;
        }
    }
    Ok(outcome)
}

fn main() -> Result<()> {
    tch::set_num_threads(1);
    let settings = Settings::from_args()?;
    println!("{settings:?}");
    for seed in settings.first_seed..settings.first_seed + settings.seeds {
        let outcome = play(&settings, seed as u64)?;
        match outcome.reached {
            Some((step, seconds)) => println!(
                "seed {seed}: 16 of 16 at step {step} after {seconds:.1} s; lowest after {}, last {}",
                outcome.lowest_after, outcome.last
            ),
            None => println!("seed {seed}: {} of 16 after {} steps", outcome.last, settings.steps),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_random_agents_agree_on_a_language() {
        tch::set_num_threads(1);
        let settings = Settings {
            steps: 400,
            ..Settings::new()
        };
        for seed in 0..2 {
            let outcome = play(&settings, seed).expect("a run without errors");
            assert!(
                outcome.reached.is_some(),
                "seed {seed}: {} of 16 after 400 steps",
                outcome.last
            );
        }
    }
}
