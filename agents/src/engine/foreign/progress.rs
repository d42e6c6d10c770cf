//! An answer in the making: put together from the pieces that calls bring.

use std::sync::Arc;

use broker::ids::{Digest, RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, LogProbs, VersionSpan};
use trainer::engine::UnderWay;
use uuid::Uuid;

use super::server::{Ask, End, Reply};
use super::trouble::Trouble;
use crate::engine::{Job, Made};

/// Log-probs up to this stand for minus infinity: vLLM writes -9999, SGLang the smallest f32.
const IMPOSSIBLE: f32 = -9000.0;

/// Decodes ids to text.
type Decode<'a> = &'a (dyn Fn(&[u32]) -> String + Sync);

/// How an answer is read.
pub(super) struct Reading<'a> {
    /// All of it, as a server looks for stop texts.
    pub(super) raw: Decode<'a>,
    /// Without reasoning, where stop texts count.
    pub(super) visible: Decode<'a>,
    /// Ids that end an answer.
    pub(super) ends: &'a [u32],
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Box<Ask>),
    /// There is no room for more.
    Over(Finish),
}

/// What has been made of a job's answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// What those of its pieces are of.
    logprobs_of: Option<LogProbs>,
    /// Of each id, if they are asked for.
    likely: Vec<Vec<TopLogprob>>,
    spans: Vec<VersionSpan>,
    reused: Option<usize>,
    /// Tokens of one call at most; 0: all that are left.
    piece: u32,
    /// How many of the most likely tokens are asked for.
    top: u8,
}

impl Progress {
    /// An answer that is asked for in pieces of so many tokens, each of which is told as it comes and waits for no longer.
    /// `top` of the most likely tokens come with each.
    pub(super) fn in_pieces(tokens: u32, top: u8) -> Self {
        Self {
            piece: tokens,
            top,
            ..Self::default()
        }
    }

    /// What has been made of the answer to `request`.
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

    /// The call that goes on from here, in a context of so many tokens.
    ///
    /// # Errors
    /// [`Trouble::TooLong`] when the prompt leaves no room for an answer.
    pub(super) fn next(&self, job: &Job, context: usize, stop_ids: &Arc<[u32]>) -> Result<Next, Trouble> {
        let (prompt, made) = (job.prompt_ids.len(), self.ids.len());
        let left = (job.sampling.max_new_tokens as usize).saturating_sub(made);
        let room = context.saturating_sub(prompt + made);
        if made == 0 && room == 0 {
            return Err(Trouble::TooLong(format!(
                "the prompt has {prompt} tokens, and the engine's context {context}: shorten it, or start the engine with more"
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
        Ok(Next::Ask(Box::new(Ask {
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

    /// What the log-probs of the piece that comes next are of: of several servers there may be several kinds.
    pub(super) fn log_probs_are(&mut self, of: LogProbs) {
        self.logprobs_of = Some(self.logprobs_of.map_or(of, |before| before.and(of)));
    }

    /// Takes a piece that weights of `version` made; says why the answer has ended, if it has.
    pub(super) fn take(
        &mut self,
        job: &Job,
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
            End::Stop if self.ids.last().is_some_and(|last| reading.ends.contains(last)) => Some(Finish::Stop),
            // The piece is over, and the answer is not: the next call says whether there is room for another.
            End::Length
                if self.piece > 0
                    && self.ids.len() - start >= self.piece as usize
                    && self.ids.len() < job.sampling.max_new_tokens as usize =>
            {
                None
            }
            End::Length => Some(Finish::Length),
            // At a stop text inside of reasoning, which a server cannot tell from what is said: it goes on behind it.
            End::Stop | End::Aborted => None,
        }
    }

    /// The whole answer.
    #[must_use]
    pub(super) fn made(self, version: WeightVersion, finish: Finish) -> Made {
        Made {
            // A later piece's cache was computed anew; tokens of an earlier one were sampled from older weights' all the same.
            oldest_kv: self.spans.iter().map(|span| span.version).min().unwrap_or(version),
            output_ids: self.ids,
            logprobs: self.logprobs,
            logprobs_of: self.logprobs_of.unwrap_or(LogProbs::Unknown),
            top: self.likely,
            spans: self.spans,
            reused: self.reused.unwrap_or(0),
            finish,
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

/// The first `count` of a server's most likely tokens: one says the chosen one too, does not sort them, or fills up with impossible
/// ones.
fn ranked(mut place: Vec<(u32, f32)>, count: u8) -> Vec<TopLogprob> {
    place.retain(|(_, logprob)| *logprob > IMPOSSIBLE);
    place.sort_by(|(a, likelier), (b, other)| other.total_cmp(likelier).then(a.cmp(b)));
    place.truncate(count.into());
    let likely = |(id, logprob)| TopLogprob { id, logprob };
    place.into_iter().map(likely).collect()
}

/// Each piece has random numbers of its own: those that made the tokens before it are not independent of them any more.
fn seed_of(seed: u64, made: usize) -> u64 {
    if made == 0 {
        return seed;
    }
    let digest = Digest::of(format!("piece/{seed}/{made}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    u64::from_le_bytes(bytes)
}

/// How many ids there are up to the first whose text completes a stop text, in the ids behind `start`. A stop text may have begun
/// in an earlier piece, where the server that made this one could not see it. Reasoning that ends hides what stood before it, so
/// each place is looked at, as the engine of our own does.
fn stop_at(stops: &[String], ids: &[u32], start: usize, reading: &Reading<'_>) -> Option<usize> {
    let holds = |text: String| stops.iter().any(|stop| text.contains(stop.as_str()));
    if stops.is_empty() || ids.len() == start || !holds((reading.raw)(ids)) {
        return None;
    }
    (start + 1..=ids.len()).find(|end| holds((reading.visible)(&ids[..*end])))
}

#[cfg(test)]
mod tests;
