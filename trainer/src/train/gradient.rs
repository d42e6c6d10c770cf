//! The gradient of a batch: trunk with a graph, head in closed form, one backward per micro-batch.

use broker::protocol::train::{Loss, LossStats, Span, TrainBatch};
use configs::Dtype;
use tch::{Kind, Tensor};

use super::micro::pack;
use super::rows::{BatchError, Limits, Row, Trained, flatten};
use crate::loss::head::{self, HeadGrad, HeadInput, Slope};
use crate::loss::{Token, k3, ratio, token_loss};
use crate::model::{Decoder, Layout, Leaf, ModelError, ModelShape, Module, Parts, RowBatch, Weights};
use crate::pulse::Pulse;

/// A model whose backward adds up in one flat buffer.
#[derive(Debug)]
pub(crate) struct Trainable {
    decoder: Decoder,
    /// Without the head's own parameters: their gradient is made by the head.
    trunk: Vec<Leaf>,
    /// `[P]`, in the order of the weights.
    grad: Tensor,
    head: HeadPlace,
    /// What the decoder computes with, where that is not the trained weights themselves: a copy of another kind.
    compute: Option<Weights>,
    /// A mark for each micro-batch.
    pulse: Pulse,
}

/// Where the head's gradient lies: views of the flat one.
#[derive(Debug)]
enum HeadPlace {
    /// The output matrix, which is the embedding when tied.
    Matrix(Tensor),
    Adapter {
        d_a: Tensor,
        d_b: Tensor,
    },
    Frozen,
}

impl HeadPlace {
    fn of(shape: &ModelShape, layout: &Layout, grad: &Tensor) -> Result<Self, ModelError> {
        let view = |name: &str| -> Result<Tensor, ModelError> {
            let spec = layout.get(name)?;
            let flat = grad.f_narrow(0, spec.offset as i64, spec.numel as i64)?;
            Ok(flat.f_view(spec.shape.as_slice())?)
        };
        match layout.lora() {
            None if shape.tied => Ok(Self::Matrix(view("model.embed_tokens.weight")?)),
            None => Ok(Self::Matrix(view("lm_head.weight")?)),
            Some(lora) if lora.targets.has(Module::Head) => Ok(Self::Adapter {
                d_a: view("lm_head.lora_A.weight")?,
                d_b: view("lm_head.lora_B.weight")?,
            }),
            Some(_) => Ok(Self::Frozen),
        }
    }

    fn grad(&mut self) -> HeadGrad<'_> {
        match self {
            Self::Matrix(d_matrix) => HeadGrad::Matrix(d_matrix),
            Self::Adapter { d_a, d_b } => HeadGrad::Adapter { d_a, d_b },
            Self::Frozen => HeadGrad::Frozen,
        }
    }
}

/// Rows of one micro-batch on the device, with the tokens that are trained.
struct Micro {
    rows: RowBatch,
    tokens: Vec<Trained>,
    /// The packed position whose state predicts each token, `[N]`.
    predictors: Tensor,
    targets: Vec<i64>,
    temperatures: Vec<f32>,
}

impl Trainable {
    /// Computes in `dtype`, the kind of the base where `weights` are an adapter of one; the gradient is f32 always.
    pub(crate) fn new(
        shape: &ModelShape,
        base: Option<&Weights>,
        weights: &Weights,
        dtype: Dtype,
    ) -> Result<Self, ModelError> {
        let compute = match dtype {
            Dtype::F32 => None,
            Dtype::Bf16 => Some(weights.copied_to(weights.device(), dtype)?),
        };
        let bound = compute.as_ref().unwrap_or(weights);
        let (decoder, leaves) = Decoder::trainable(shape, Parts::over(base, bound))?;
        let layout = weights.layout();
        let grad = weights.flat().f_detach()?.f_zeros_like()?;
        let head = HeadPlace::of(shape, layout, &grad)?;
        let of_head = |leaf: &Leaf| {
            let spec = layout.params().iter().find(|spec| spec.offset == leaf.offset);
            spec.is_some_and(|spec| spec.name.starts_with("lm_head."))
        };
        let trunk = leaves.into_iter().filter(|leaf| !of_head(leaf)).collect();
        Ok(Self {
            decoder,
            trunk,
            grad,
            head,
            compute,
            pulse: Pulse::default(),
        })
    }

    /// To be called after a change of the trained weights.
    pub(crate) fn follow(&mut self, weights: &Weights) -> Result<(), ModelError> {
        if let Some(compute) = &mut self.compute {
            compute.copy_from(weights)?;
        }
        self.decoder.follow()
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The accumulated gradient, `[P]`.
    pub(crate) fn grad(&self) -> &Tensor {
        &self.grad
    }

    pub(crate) fn clear(&mut self) -> Result<(), ModelError> {
        let _ = self.grad.f_zero_()?;
        Ok(())
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Adds the batch's gradient. `reference` is asked for where the loss has a KL term.
    pub(crate) fn accumulate(
        &mut self,
        rows: &[Row],
        batch: &TrainBatch,
        loss: &Loss,
        reference: Option<&Decoder>,
        budget: usize,
    ) -> Result<LossStats, ModelError> {
        let mut stats = LossStats::default();
        for indices in pack(rows, budget) {
            let micro = Micro::new(&self.decoder, rows, &indices, batch)?;
            let reference = match reference {
                Some(decoder) => Some(micro.values(decoder)?.logprobs),
                None => None,
            };
            tch::with_grad(|| self.accumulate_micro(&micro, batch, loss, reference.as_deref(), &mut stats))?;
            self.pulse.mark();
        }
        Ok(stats)
    }

    fn accumulate_micro(
        &mut self,
        micro: &Micro,
        batch: &TrainBatch,
        loss: &Loss,
        reference: Option<&[f32]>,
        stats: &mut LossStats,
    ) -> Result<(), ModelError> {
        let states = self.decoder.hidden(&micro.rows)?.f_index_select(0, &micro.predictors)?;
        let input = micro.head_input(&states, &self.decoder);
        let d_states = head::gradients(&input, self.head.grad(), |i, logprob, entropy| {
            let trained = micro.tokens[i];
            let span = &batch.spans[trained.span];
            let token = token(span, trained.offset, logprob, entropy, reference.map(|lps| lps[i]));
            measure(stats, loss, span, &token)
        })?;
        if self.trunk.is_empty() {
            return Ok(());
        }
        // tch has no backward with a given upstream gradient; this sum has exactly that gradient.
        let scalar = states.f_mul(&d_states)?.f_sum(Kind::Float)?;
        let leaves: Vec<&Tensor> = self.trunk.iter().map(|leaf| &leaf.tensor).collect();
        let grads = Tensor::f_run_backward(&[scalar], &leaves, false, false)?;
        let _no_grad = tch::no_grad_guard();
        for (leaf, grad) in self.trunk.iter().zip(grads) {
            let mut sum = self.grad.f_narrow(0, leaf.offset as i64, leaf.numel as i64)?;
            let _ = sum.f_add_(&grad.f_reshape([-1])?)?;
        }
        Ok(())
    }
}

/// Log-probs of the trained tokens, span by span: as long as the span's ids, 0 where the mask is false.
pub(crate) fn logprobs(
    decoder: &Decoder,
    rows: &[Row],
    batch: &TrainBatch,
    budget: usize,
    pulse: &Pulse,
) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut spans: Vec<Vec<f32>> = batch.spans.iter().map(|span| vec![0.0; span.ids.len()]).collect();
    for indices in pack(rows, budget) {
        let micro = Micro::new(decoder, rows, &indices, batch)?;
        let values = micro.values(decoder)?;
        for (trained, logprob) in micro.tokens.iter().zip(values.logprobs) {
            spans[trained.span][trained.offset] = logprob;
        }
        pulse.mark();
    }
    Ok(spans)
}

/// The rows of a batch that fits the model.
pub(crate) fn rows_of(batch: &TrainBatch, shape: &ModelShape) -> Result<Vec<Row>, BatchError> {
    flatten(
        batch,
        Limits {
            vocab: shape.vocab,
            context: shape.max_context,
        },
    )
}

impl Micro {
    fn new(decoder: &Decoder, rows: &[Row], indices: &[usize], batch: &TrainBatch) -> Result<Self, ModelError> {
        let inputs: Vec<&[u32]> = indices.iter().map(|i| rows[*i].input.as_slice()).collect();
        let packed = RowBatch::new(decoder.shape(), &inputs, decoder.device())?;
        let tokens: Vec<Trained> = indices.iter().flat_map(|i| &rows[*i].trained).copied().collect();
        let predictors: Vec<i64> = indices
            .iter()
            .enumerate()
            .flat_map(|(r, i)| rows[*i].trained.iter().map(move |t| (r, t.predictor)))
            .map(|(r, predictor)| (packed.start(r) + predictor) as i64)
            .collect();
        let of = |token: &Trained| &batch.spans[token.span];
        Ok(Self {
            rows: packed,
            predictors: Tensor::f_from_slice(&predictors)?.f_to_device(decoder.device())?,
            targets: tokens.iter().map(|t| i64::from(of(t).ids[t.offset])).collect(),
            temperatures: tokens.iter().map(|t| of(t).temperature).collect(),
            tokens,
        })
    }

    fn head_input<'a>(&'a self, states: &'a Tensor, decoder: &'a Decoder) -> HeadInput<'a> {
        HeadInput {
            hidden: states,
            matrix: decoder.head_weight(),
            adapter: decoder.head_adapter(),
            targets: &self.targets,
            temperatures: &self.temperatures,
            chunk_elements: head::chunk_elements(decoder.device()),
        }
    }

    fn values(&self, decoder: &Decoder) -> Result<head::HeadValues, ModelError> {
        let _no_grad = tch::no_grad_guard();
        let states = decoder.hidden(&self.rows)?.f_index_select(0, &self.predictors)?;
        Ok(head::values(&self.head_input(&states, decoder))?)
    }
}

fn token(span: &Span, offset: usize, logprob: f32, entropy: f32, reference: Option<f32>) -> Token {
    let behaviour = span.behaviour_lp[offset];
    Token {
        logprob: f64::from(logprob),
        old: f64::from(span.old_lp.get(offset).copied().unwrap_or(behaviour)),
        behaviour: f64::from(behaviour),
        reference: f64::from(reference.unwrap_or(logprob)),
        advantage: f64::from(span.advantage),
        entropy: f64::from(entropy),
    }
}

/// Adds one token to the statistics and says how the whole loss moves with it.
fn measure(stats: &mut LossStats, loss: &Loss, span: &Span, token: &Token) -> Slope {
    let weight = f64::from(span.weight);
    let term = token_loss(loss, token);
    stats.loss += weight * term.value;
    stats.tokens += 1.0;
    stats.entropy += token.entropy;
    if let Loss::Policy(_) = loss {
        stats.ratio += ratio(token.logprob, token.old);
        stats.clipped += f64::from(u8::from(term.clipped));
        stats.behaviour_kl += k3(token.logprob, token.behaviour).0;
        stats.reference_kl += term.reference_kl;
        let gap = (ratio(token.logprob, token.behaviour) - 1.0).abs();
        let widest = if span.on_policy {
            &mut stats.on_policy_gap
        } else {
            &mut stats.off_policy_gap
        };
        *widest = widest.max(gap);
    }
    Slope {
        d_logprob: weight * term.d_logprob,
        d_entropy: weight * term.d_entropy,
    }
}
