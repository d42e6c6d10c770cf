//! An answer in the making: put together from the pieces that calls bring.

use std::sync::Arc;

use broker::ids::{Digest, WeightVersion};
use broker::protocol::turn::{Finish, VersionSpan};
use uuid::Uuid;

use super::server::{Ask, End, Reply};
use super::trouble::Trouble;
use crate::engine::{Job, Made};

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
    spans: Vec<VersionSpan>,
    reused: Option<usize>,
    /// Tokens of one call at most; 0: all that are left.
    piece: u32,
}

impl Progress {
    /// An answer that is asked for in pieces of so many tokens, each of which is told as it comes and waits for no longer.
    pub(super) fn in_pieces(tokens: u32) -> Self {
        Self {
            piece: tokens,
            ..Self::default()
        }
    }

    /// Ids, their log-probs, and which weights made them.
    pub(super) fn so_far(&self) -> (&[u32], &[f32], &[VersionSpan]) {
        (&self.ids, &self.logprobs, &self.spans)
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
            top: 0,
        })))
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
        self.spans.retain(|span| (span.start as usize) < end);
        if let Some(last) = self.spans.last_mut() {
            last.end = last.end.min(end as u32);
        }
    }
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
mod tests {
    use broker::ids::{GroupId, RequestId};
    use broker::protocol::turn::Sampling;
    use proptest::prelude::*;

    use super::*;

    fn job(max_new_tokens: u32, stop: &[&str]) -> Job {
        Job {
            request: RequestId([1; 16]),
            group: GroupId([1; 16]),
            member: 0,
            prompt_ids: vec![1, 2, 3].into(),
            sampling: Arc::new(Sampling {
                temperature: 1.0,
                top_p: 1.0,
                top_k: 0,
                min_p: 0.0,
                max_new_tokens,
                stop: stop.iter().map(|&stop| stop.into()).collect(),
            }),
            seed: 7,
            keep: false,
        }
    }

    fn reply(ids: &[u32], end: End) -> Reply {
        Reply {
            ids: ids.to_vec(),
            logprobs: ids.iter().map(|&id| -(id as f32)).collect(),
            end,
            label: None,
            reused: 2,
            top: Vec::new(),
        }
    }

    fn version(step: u64) -> WeightVersion {
        WeightVersion { lineage: 1, step }
    }

    fn piece(text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    /// An id is a letter.
    fn letters(ids: &[u32]) -> String {
        ids.iter().filter_map(|id| char::from_u32(*id)).collect()
    }

    fn visible(ids: &[u32]) -> String {
        rollout::text::visible_text(&letters(ids)).to_owned()
    }

    const READ: Reading<'_> = Reading {
        raw: &letters,
        visible: &visible,
        ends: &[9],
    };

    fn ask(progress: &Progress, job: &Job, context: usize) -> Option<Ask> {
        match progress.next(job, context, &[9].into()) {
            Ok(Next::Ask(ask)) => Some(*ask),
            _ => None,
        }
    }

    #[test]
    fn a_call_goes_on_behind_what_was_made_with_what_is_left() {
        let (job, mut progress) = (job(5, &[]), Progress::default());
        let first = ask(&progress, &job, 32).unwrap();
        assert_eq!(
            (first.prompt.as_slice(), first.max_new_tokens, first.seed),
            ([1, 2, 3].as_slice(), 5, 7)
        );
        assert_eq!(
            progress.take(&job, reply(&[5, 6, 7], End::Aborted), version(1), &READ),
            None
        );
        let second = ask(&progress, &job, 32).unwrap();
        assert_eq!(
            (second.prompt.as_slice(), second.max_new_tokens),
            ([1, 2, 3, 5, 6, 7].as_slice(), 2)
        );
        assert!(second.seed != first.seed && second.id != first.id);
        // The context is shorter than what is left.
        assert_eq!(ask(&progress, &job, 7).unwrap().max_new_tokens, 1);
        assert!(matches!(
            progress.next(&job, 6, &[9].into()),
            Ok(Next::Over(Finish::Length))
        ));
        let end = progress.take(&job, reply(&[8, 9], End::Length), version(2), &READ);
        let made = progress.made(version(2), end.unwrap());
        assert_eq!(
            (made.output_ids.len(), made.logprobs.len(), made.finish),
            (5, 5, Finish::Length)
        );
        let spans: Vec<_> = made
            .spans
            .iter()
            .map(|span| (span.version.step, span.start, span.end))
            .collect();
        assert_eq!(spans, [(1, 0, 3), (2, 3, 5)]);
        assert_eq!((made.oldest_kv, made.reused), (version(1), 2));
    }

    #[test]
    fn a_prompt_without_room_is_told_and_all_that_may_be_made_is_enough() {
        let job = job(2, &[]);
        let error = Progress::default().next(&job, 3, &[9].into()).unwrap_err();
        assert!(
            matches!(&error, Trouble::TooLong(said) if said.contains("3 tokens")),
            "{error}"
        );
        let mut progress = Progress::default();
        assert_eq!(
            progress.take(&job, reply(&[5, 6], End::Aborted), version(1), &READ),
            None
        );
        assert!(matches!(
            progress.next(&job, 99, &[9].into()),
            Ok(Next::Over(Finish::Length))
        ));
    }

    #[test]
    fn a_piece_without_tokens_leaves_no_span() {
        let (job, mut progress) = (job(4, &[]), Progress::default());
        progress.take(&job, reply(&[], End::Aborted), version(1), &READ);
        let end = progress.take(&job, reply(&[9], End::Stop), version(2), &READ);
        let made = progress.made(version(2), end.unwrap());
        assert_eq!((made.spans.len(), made.oldest_kv), (1, version(2)));
    }

    #[test]
    fn a_stop_text_that_began_in_an_earlier_piece_ends_the_answer() {
        let (job, mut progress) = (job(99, &["END"]), Progress::default());
        assert_eq!(
            progress.take(&job, reply(&piece("abE"), End::Aborted), version(1), &READ),
            None
        );
        let end = progress.take(&job, reply(&piece("NDxyz"), End::Length), version(2), &READ);
        assert_eq!(end, Some(Finish::Stop));
        let made = progress.made(version(2), Finish::Stop);
        assert_eq!(letters(&made.output_ids), "abEND");
        assert_eq!((made.logprobs.len(), made.spans[1].end), (5, 5));
    }

    #[test]
    fn an_answer_in_pieces_is_asked_for_until_nothing_is_left() {
        let (job, mut progress) = (job(5, &[]), Progress::in_pieces(2));
        for (ids, left) in [([4, 5], 2), ([6, 7], 1)] {
            assert_eq!(ask(&progress, &job, 32).unwrap().max_new_tokens, 2);
            assert_eq!(progress.take(&job, reply(&ids, End::Length), version(1), &READ), None);
            assert_eq!(ask(&progress, &job, 32).unwrap().max_new_tokens, left);
        }
        // Shorter than a piece: the server's own end.
        let end = progress.take(&job, reply(&[8], End::Length), version(1), &READ);
        assert_eq!((end, progress.so_far().0.len()), (Some(Finish::Length), 5));
        // All that may be made, whose last piece is a whole one: nobody is asked again.
        let mut whole = Progress::in_pieces(5);
        let end = whole.take(&job, reply(&[4; 5], End::Length), version(1), &READ);
        assert_eq!(end, Some(Finish::Length));
    }

    /// A server looks for stop texts in all that is made, and ends at an id of which we know nothing.
    #[test]
    fn a_stop_that_ends_nothing_for_us_is_gone_on_behind() {
        let (job, mut progress) = (job(99, &["END"]), Progress::default());
        let mut take = |text: &str| progress.take(&job, reply(&piece(text), End::Stop), version(1), &READ);
        assert_eq!(take("<think>an END"), None, "it is not said");
        assert_eq!(take("</think>b"), None, "no id of ours");
        assert_eq!(take("c END, x"), Some(Finish::Stop));
        let made = progress.made(version(1), Finish::Stop);
        assert_eq!(letters(&made.output_ids), "<think>an END</think>bc END");
        let mut progress = Progress::default();
        let end = progress.take(&job, reply(&[5, 9], End::Stop), version(1), &READ);
        assert_eq!(end, Some(Finish::Stop));
    }

    proptest! {
        /// However an answer is cut into pieces, it is the same answer, and its spans cover it.
        #[test]
        fn pieces_make_one_answer(text in "[a-dEND]{1,40}", cuts in prop::collection::vec(0usize..40, 0..6)) {
            let job = job(99, &["END"]);
            let ids: Vec<u32> = text.chars().map(u32::from).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(ids.len())).chain([0, ids.len()]).collect();
            cuts.sort_unstable();
            let mut progress = Progress::default();
            let mut finish = None;
            for (step, pair) in cuts.windows(2).enumerate() {
                let end = if pair[1] == ids.len() { End::Length } else { End::Aborted };
                finish = progress.take(&job, reply(&ids[pair[0]..pair[1]], end), version(step as u64), &READ);
                if finish.is_some() {
                    break;
                }
            }
            let stop = text.find("END");
            prop_assert_eq!(finish, Some(if stop.is_some() { Finish::Stop } else { Finish::Length }));
            let made = progress.made(version(0), Finish::Stop);
            let expected = stop.map_or(text.as_str(), |at| &text[..at + 3]);
            prop_assert_eq!(letters(&made.output_ids), expected);
            prop_assert_eq!(made.logprobs.len(), made.output_ids.len());
            let mut at = 0;
            for span in &made.spans {
                prop_assert_eq!(span.start, at);
                prop_assert!(span.end > span.start);
                at = span.end;
            }
            prop_assert_eq!(at as usize, made.output_ids.len());
        }
    }
}
