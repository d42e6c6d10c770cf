//! Generations with the current weights between two commands: a look at the policy, not a rollout.

use std::sync::Arc;

use broker::ids::RequestId;
use broker::protocol::train::{Drawn, SampleParams, TrainReply};
use configs::Swap;

use super::error::Refusal;
use super::pieces::Buffer;
use super::stop::Stop;
use super::trainer::Trainer;
use crate::engine::{Engine, EngineError, EngineOptions, Finished, GenRequest, RequestFault};
use crate::model::{ModelShape, ParamSource, Weights, kind_of};
use crate::sampling::SamplingParams;
use crate::weights::Published;

/// A few prompts at a time, each computed from its first token.
const OPTIONS: EngineOptions = EngineOptions {
    slots: 32,
    prefill_tokens: 4096,
    prefix_cache: 0,
    cache: None,
    swap: Swap::Drain,
    deterministic: false,
    prepack: true,
};

impl Trainer {
    /// Answers each prompt on rank 0, with an engine over a copy of the weights. The generations
    /// are a wave: their bits are a function of the command and the weights.
    pub(super) fn sample(&mut self, prompts: &[Vec<u32>], params: &SampleParams) -> Result<TrainReply, Stop> {
        let failed = |error: EngineError| Stop::Failed(error.to_string());
        judge(&self.shape, params)?;
        let requests = requests(prompts, params);
        answerable(&self.shape, &requests)?;
        let answers = self.on_first(|pieces| {
            if requests.is_empty() {
                return Ok(Vec::new());
            }
            // The engine is dropped with its weights and cache: training needs the memory.
            let engine = self.engine(&pieces.stored(Buffer::Computing));
            engine.and_then(|mut engine| engine.run_wave(requests)).map_err(failed)
        });
        // The reply of another rank has no reader.
        let answers = answers?.unwrap_or_default();
        Ok(TrainReply::Samples {
            version: self.version.filter(|_| self.published),
            answers: answers.into_iter().map(drawn).collect(),
        })
    }

    /// Call where the weights change: they belong to no version until they are published.
    pub(super) fn weights_move(&mut self) {
        self.published = false;
    }

    /// An engine over a copy of `weights`.
    fn engine(&self, weights: &dyn ParamSource) -> Result<Engine, EngineError> {
        let copy = Weights::copy_of(weights, self.weights.device(), kind_of(self.options.dtype))?;
        let weights = Published::new(copy, self.version.unwrap_or_default());
        let mut engine = match &self.base {
            Some(base) => Engine::with_base(&self.shape, base.share(), weights, OPTIONS)?,
            None => Engine::new(&self.shape, weights, OPTIONS)?,
        };
        engine.mark_on(self.pulse());
        Ok(engine)
    }
}

fn requests(prompts: &[Vec<u32>], params: &SampleParams) -> Vec<GenRequest> {
    let stop_ids: Arc<[u32]> = params.stop_ids.as_slice().into();
    let request = |(place, prompt): (u64, &Vec<u32>)| GenRequest {
        id: RequestId(u128::from(place).to_le_bytes()),
        prompt_ids: prompt.as_slice().into(),
        max_new_tokens: params.max_new_tokens,
        sampling: sampling(params),
        stop_ids: Arc::clone(&stop_ids),
        stop: None,
        seed: params.seed.wrapping_add(place),
        keep: false,
        top: 0,
        prompt_top: None,
    };
    (0..).zip(prompts).map(request).collect()
}

fn sampling(params: &SampleParams) -> SamplingParams {
    SamplingParams {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        min_p: params.min_p,
    }
}

/// Rejects parameters that no prompt can be answered with.
fn judge(shape: &ModelShape, params: &SampleParams) -> Result<(), Refusal> {
    let vocab = shape.vocab;
    let unknown = params.stop_ids.iter().find(|id| **id as usize >= vocab);
    let fault = if let Some(fault) = sampling(params).fault() {
        Some(RequestFault::Sampling(fault))
    } else if params.max_new_tokens == 0 {
        Some(RequestFault::NothingToDo)
    } else {
        unknown.map(|token| RequestFault::BadToken { token: *token, vocab })
    };
    fault.map_or(Ok(()), |source| Err(Refusal::Sampling { source }))
}

/// Rejects the first prompt that the engine can never answer.
fn answerable(shape: &ModelShape, requests: &[GenRequest]) -> Result<(), Refusal> {
    for (place, request) in requests.iter().enumerate() {
        request
            .check(shape)
            .map_err(|source| Refusal::Prompt { place, source })?;
    }
    Ok(())
}

fn drawn(finished: Finished) -> Drawn {
    Drawn {
        ids: finished.output_ids,
        logprobs: finished.logprobs,
        finish: finished.finish,
    }
}
