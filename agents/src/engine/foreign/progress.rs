//! A partial answer, assembled from the pieces that calls return.

use std::sync::Arc;

use broker::ids::{Digest, RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, LogProbs, VersionSpan};
use trainer::engine::UnderWay;
use uuid::Uuid;

use super::server::{CallEnd, Reply, ServerCall};
use super::trouble::Trouble;
use crate::engine::{GenerationJob, GenerationOutput};

/// Log-probs up to this stand for minus infinity: vLLM writes -9999, SGLang the smallest f32.
const IMPOSSIBLE: f32 = -9000.0;

/// Decodes ids to text.
type Decode<'a> = &'a (dyn Fn(&[u32]) -> String + Sync);

/// The functions that decode an answer.
pub(super) struct Reading<'a> {
    /// Decodes everything, as a server searches it for stop texts.
    pub(super) raw: Decode<'a>,
    /// Decodes without reasoning, where stop texts count.
    pub(super) visible: Decode<'a>,
    /// Ids that end an answer.
    pub(super) ends: &'a [u32],
}

/// The next step of a generation.
#[derive(Debug)]
pub(super) enum Next {
    Call(Box<ServerCall>),
    /// There is no room for more.
    Over(Finish),
}

/// The part of a job's answer made so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// The distribution of the log-probs of its pieces.
    logprobs_of: Option<LogProbs>,
    /// The likely tokens of each id, if requested.
    likely: Vec<Vec<TopLogprob>>,
    spans: Vec<VersionSpan>,
    reused: Option<usize>,
    /// The most tokens of one call; 0 means all that remain.
    piece: u32,
    /// The number of most likely tokens requested.
    top: u8,
}

impl Progress {
    /// Starts an answer that is requested in pieces of `tokens` tokens, each reported as it
    /// arrives. `top` of the most likely tokens come with each.
    pub(super) fn in_pieces(tokens: u32, top: u8) -> Self {
        Self {
            piece: tokens,
            top,
            ..Self::default()
        }
    }

    /// Returns the part of the answer to `request` made so far.
    pub(super) fn so_far(&self, request: RequestId) -> UnderWay<'_> {
        UnderWay {
            id: request,
            output_ids: &self.ids,
            logprobs: &self.logprobs,
            top: &self.likely,
            spans: &self.spans,
            prompt: None,
        }
    }

    /// Returns the next call, in a context of `context` tokens.
    ///
    /// # Errors
    /// [`Trouble::TooLong`] when the prompt leaves no room for an answer.
    pub(super) fn next(&self, job: &GenerationJob, context: usize, stop_ids: &Arc<[u32]>) -> Result<Next, Trouble> {
        let (prompt, made) = (job.prompt_ids.len(), self.ids.len());
        let left = (job.sampling.max_new_tokens as usize).saturating_sub(made);
        let room = context.saturating_sub(prompt + made);
        if made == 0 && room == 0 {
            return Err(Trouble::TooLong(format!(
                "the prompt has {prompt} tokens and the engine's context {context}: shorten it, or start the engine with a longer context"
            )));
        }
        let max_new_tokens = u32::try_from(left.min(room)).unwrap_or(u32::MAX);
        if max_new_tokens == 0 {
            return Ok(Next::Over(Finish::Length));
        }
        let max_new_tokens = match self.piece {
            0 => max_new_tokens,
            piece => max_new_tokens.min(piece),
        };
        let mut prompt = job.prompt_ids.to_vec();
        prompt.extend_from_slice(&self.ids);
        Ok(Next::Call(Box::new(ServerCall {
            id: format!("dyad-{}", Uuid::new_v4().simple()),
            prompt,
            sampling: job.sampling.clone(),
            max_new_tokens,
            seed: seed_of(job.seed, made),
            stop_ids: stop_ids.clone(),
            adapter: None,
            top: self.top.into(),
        })))
    }

    /// Sets the distribution of the next piece's log-probs: several servers may have several.
    pub(super) fn log_probs_are(&mut self, of: LogProbs) {
        self.logprobs_of = Some(self.logprobs_of.map_or(of, |before| before.and(of)));
    }

    /// Takes a piece that weights of `version` made; returns the reason if the answer has ended.
    pub(super) fn take(
        &mut self,
        job: &GenerationJob,
        reply: Reply,
        version: WeightVersion,
        reading: &Reading<'_>,
    ) -> Option<Finish> {
        let start = self.ids.len();
        self.reused.get_or_insert(reply.reused);
        self.ids.extend(reply.ids);
        self.logprobs.extend(reply.logprobs);
        if self.top > 0 {
            let likely = reply.top.into_iter().map(|place| ranked(place, self.top));
            self.likely.extend(likely);
        }
        self.cover(start, version);
        if let Some(end) = stop_at(&job.sampling.stop, &self.ids, start, reading) {
            self.cut(end);
            return Some(Finish::Stop);
        }
        match reply.end {
            CallEnd::Stop if self.ids.last().is_some_and(|last| reading.ends.contains(last)) => Some(Finish::Stop),
            // The piece is over but the answer is not: the next call checks the room for another.
            CallEnd::Length
                if self.piece > 0
                    && self.ids.len() - start >= self.piece as usize
                    && self.ids.len() < job.sampling.max_new_tokens as usize =>
            {
                None
            }
            CallEnd::Length => Some(Finish::Length),
            // A server cannot distinguish a stop text inside of reasoning; the answer continues
            // behind it.
            CallEnd::Stop | CallEnd::Aborted => None,
        }
    }

    /// Returns the whole answer.
    #[must_use]
    pub(super) fn made(self, version: WeightVersion, finish: Finish) -> GenerationOutput {
        GenerationOutput {
            // A later piece's cache was recomputed, but tokens of an earlier one were sampled from
            // older weights.
            oldest_kv: self.spans.iter().map(|span| span.version).min().unwrap_or(version),
            output_ids: self.ids,
            logprobs: self.logprobs,
            logprobs_of: self.logprobs_of.unwrap_or(LogProbs::Unknown),
            top: self.likely,
            spans: self.spans,
            reused: self.reused.unwrap_or(0),
            finish,
            times: None,
        }
    }

    fn cover(&mut self, start: usize, version: WeightVersion) {
        let (start, end) = (start as u32, self.ids.len() as u32);
        match self.spans.last_mut() {
            Some(last) if last.version == version => last.end = end,
            _ if start < end => self.spans.push(VersionSpan { version, start, end }),
            _ => {}
        }
    }

    fn cut(&mut self, end: usize) {
        self.ids.truncate(end);
        self.logprobs.truncate(end);
        self.likely.truncate(end);
        self.spans.retain(|span| (span.start as usize) < end);
        if let Some(last) = self.spans.last_mut() {
            last.end = last.end.min(end as u32);
        }
    }
}

/// Returns the first `count` of a server's most likely tokens. Some servers include the chosen one,
/// do not sort them, or add impossible ones.
fn ranked(mut place: Vec<(u32, f32)>, count: u8) -> Vec<TopLogprob> {
    place.retain(|(_, logprob)| *logprob > IMPOSSIBLE);
    place.sort_by(|(a, likelier), (b, other)| other.total_cmp(likelier).then(a.cmp(b)));
    place.truncate(count.into());
    let likely = |(id, logprob)| TopLogprob { id, logprob };
    place.into_iter().map(likely).collect()
}

/// Returns the seed of a piece: random numbers that made earlier tokens are not independent of
/// them.
fn seed_of(seed: u64, made: usize) -> u64 {
    if made == 0 {
        return seed;
    }
    let digest = Digest::of(format!("piece/{seed}/{made}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    u64::from_le_bytes(bytes)
}

/// Returns the number of ids up to the first that completes a stop text behind `start`. The stop
/// text may have begun in an earlier piece, which the server of this one could not see. Ended
/// reasoning hides the text before it, so each position is checked, as our own engine does.
fn stop_at(stops: &[String], ids: &[u32], start: usize, reading: &Reading<'_>) -> Option<usize> {
    let holds = |text: String| stops.iter().any(|stop| text.contains(stop.as_str()));
    if stops.is_empty() || ids.len() == start || !holds((reading.raw)(ids)) {
        return None;
    }
    (start + 1..=ids.len()).find(|end| holds((reading.visible)(&ids[..*end])))
}

#[cfg(test)]
mod tests;
