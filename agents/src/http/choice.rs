//! Assembles one choice of an answer from the engine's reports.

use std::sync::Arc;

use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{Finish, VersionSpan};
use rollout::text::{TextCodec, TextStream};
use serde::Serialize;
use trainer::engine::PromptScores;

use super::stopping::Stopping;
use super::stops::Stops;
use crate::engine::{EngineFailure, VisitUpdate};

/// A choice so far.
pub struct Choice {
    stream: TextStream<Arc<TextCodec>>,
    stops: Stops,
    /// Tokens that end it.
    stop_ids: Vec<u32>,
    /// True if a stop token's text is sent.
    kept: bool,
    /// Characters of the tokens so far, stop texts included.
    characters: usize,
    /// The number of tokens so far.
    pub tokens: usize,
    pub spans: Vec<VersionSpan>,
    pub end: Option<Finish>,
    reason: Option<StopReason>,
}

/// The client's stop condition that ended a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StopReason {
    Text(String),
    Token(u32),
}

/// The new part of a choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChoicePiece {
    pub text: String,
    pub ids: Vec<u32>,
    pub logprobs: Vec<f32>,
    /// For each id, the most likely tokens in its place; empty unless the client asked for them.
    pub top: Vec<Vec<TopLogprob>>,
    /// The position of each id's text, in characters.
    pub offsets: Vec<usize>,
    /// With the first piece: log-probs of the prompt, if the client asked for them.
    pub prompt: Option<Arc<PromptScores>>,
    pub end: Option<Finish>,
    /// With the end: the stop text or stop token that caused it, if any.
    pub reason: Option<StopReason>,
}

impl Choice {
    #[must_use]
    pub fn new(codec: Arc<TextCodec>, stop: Stopping) -> Self {
        Self {
            stream: TextStream::new(codec),
            stops: Stops::new(stop.texts, stop.kept),
            stop_ids: stop.ids,
            kept: stop.kept,
            characters: 0,
            tokens: 0,
            spans: Vec::new(),
            end: None,
            reason: None,
        }
    }

    /// Adds an engine's report, in which `top` is empty or as long as `ids`. Tokens after a stop
    /// text or a stop token are dropped, because the choice has ended with it. A stop token is
    /// among the tokens, and its text is sent only if stop texts are kept.
    pub fn take(&mut self, report: VisitUpdate) -> Result<ChoicePiece, EngineFailure> {
        let mut piece = ChoicePiece::default();
        if self.end.is_some() {
            return Ok(piece);
        }
        piece.prompt = report.prompt;
        let first = self.tokens;
        let mut top = report.top.into_iter();
        for (id, logprob) in report.ids.iter().zip(&report.logprobs) {
            piece.ids.push(*id);
            piece.logprobs.push(*logprob);
            piece.top.extend(top.next());
            piece.offsets.push(self.characters);
            self.tokens += 1;
            let stops = self.stop_ids.contains(id);
            if (self.kept || !stops) && self.add_token(*id, &mut piece) {
                break;
            }
            if stops {
                self.finish(Finish::Stop, &mut piece);
                self.reason.get_or_insert(StopReason::Token(*id));
                break;
            }
        }
        self.cover(&report.spans, first);
        match report.end {
            Some(Err(failure)) => return Err(failure),
            Some(Ok(finish)) if self.end.is_none() => self.finish(finish, &mut piece),
            _ => {}
        }
        (piece.end, piece.reason) = (self.end, self.reason.clone());
        Ok(piece)
    }

    /// Adds the text that this id completes. Returns true if a stop text has come with it.
    fn add_token(&mut self, id: u32, piece: &mut ChoicePiece) -> bool {
        let new = self.stream.push(id);
        self.add_text(&new, piece)
    }

    /// Adds text. Returns true if a stop text has come.
    fn add_text(&mut self, new: &str, piece: &mut ChoicePiece) -> bool {
        self.characters += new.chars().count();
        let (text, stopped) = self.stops.push(new);
        piece.text.push_str(&text);
        if stopped {
            self.end = Some(Finish::Stop);
            self.reason = self.stops.found().map(|text| StopReason::Text(text.to_owned()));
        }
        stopped
    }

    fn finish(&mut self, finish: Finish, piece: &mut ChoicePiece) {
        let rest = self.stream.rest();
        if !self.add_text(&rest, piece) {
            piece.text.push_str(&self.stops.rest());
            self.end = Some(finish);
        }
    }

    /// Records which weights generated the new tokens.
    fn cover(&mut self, spans: &[VersionSpan], first: usize) {
        let (first, taken) = (first as u32, self.tokens as u32);
        for span in spans.iter().filter(|span| span.start < taken && span.end > first) {
            let end = span.end.min(taken);
            match self.spans.last_mut() {
                Some(last) if last.version == span.version => last.end = end,
                _ => self.spans.push(VersionSpan { end, ..*span }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::{RequestId, WeightVersion};
    use configs::TokenizerConfig;

    use super::*;

    fn codec() -> Arc<TextCodec> {
        let folder = tempfile::tempdir().unwrap();
        rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
        Arc::new(TextCodec::open(folder.path()).unwrap())
    }

    fn stop(texts: &[&str], bytes: &[u8], kept: bool) -> Stopping {
        Stopping {
            texts: texts.iter().map(ToString::to_string).collect(),
            ids: bytes.iter().map(|byte| u32::from(*byte)).collect(),
            kept,
        }
    }

    fn likely(byte: u8) -> TopLogprob {
        TopLogprob {
            id: u32::from(byte),
            logprob: -1.0,
        }
    }

    /// A report of bytes generated by weights of `step`, from place `start`.
    fn report(bytes: &[u8], start: u32, step: u64, end: Option<Finish>) -> VisitUpdate {
        VisitUpdate {
            request: RequestId([0; 16]),
            ids: bytes.iter().map(|byte| u32::from(*byte)).collect(),
            logprobs: vec![-1.0; bytes.len()],
            top: bytes.iter().map(|byte| vec![likely(*byte)]).collect(),
            spans: vec![VersionSpan {
                version: WeightVersion { lineage: 1, step },
                start,
                end: start + bytes.len() as u32,
            }],
            prompt: None,
            end: end.map(Ok),
        }
    }

    #[test]
    fn half_a_character_waits_until_it_is_complete_or_the_end() {
        let mut choice = Choice::new(codec(), Stopping::default());
        let piece = choice.take(report(&[b'a', 0xE2, 0x98], 0, 1, None)).unwrap();
        assert_eq!((piece.text.as_str(), piece.ids.len(), piece.end), ("a", 3, None));
        let piece = choice
            .take(report(&[0x83, b'b', 0xC3], 3, 2, Some(Finish::Length)))
            .unwrap();
        assert_eq!(
            (piece.text.as_str(), piece.end),
            ("\u{2603}b\u{FFFD}", Some(Finish::Length))
        );
        assert_eq!(piece.offsets, [1, 2, 3]);
        let steps: Vec<_> = choice.spans.iter().map(|s| (s.version.step, s.start, s.end)).collect();
        assert_eq!(steps, [(1, 0, 3), (2, 3, 6)]);
    }

    #[test]
    fn tokens_after_a_stop_text_are_dropped() {
        let mut choice = Choice::new(codec(), stop(&["\n\n"], &[], false));
        assert_eq!(choice.take(report(b"ab\n", 0, 1, None)).unwrap().text, "ab");
        let piece = choice.take(report(b"\ncd", 3, 2, Some(Finish::Length))).unwrap();
        assert_eq!((piece.text.as_str(), piece.ids.as_slice()), ("", [10].as_slice()));
        assert_eq!(piece.top, [vec![likely(b'\n')]]);
        assert_eq!(piece.reason, Some(StopReason::Text("\n\n".into())));
        assert_eq!((piece.end, choice.tokens), (Some(Finish::Stop), 4));
        assert_eq!(choice.spans.last().unwrap().end, 4);
        assert_eq!(choice.take(report(b"ef", 6, 2, None)).unwrap(), ChoicePiece::default());
    }

    #[test]
    fn an_end_without_tokens_and_a_failure_are_passed_on() {
        let mut choice = Choice::new(codec(), stop(&["xy"], &[], false));
        assert_eq!(choice.take(report(b"ax", 0, 1, None)).unwrap().text, "a");
        assert_eq!(choice.take(report(b"", 2, 1, Some(Finish::Stop))).unwrap().text, "x");
        let failure = EngineFailure {
            cause: broker::protocol::failure::Failure::engine("x"),
            retry: true,
        };
        let failed = VisitUpdate {
            end: Some(Err(failure.clone())),
            ..report(b"", 0, 1, None)
        };
        assert_eq!(Choice::new(codec(), Stopping::default()).take(failed), Err(failure));
    }

    #[test]
    fn a_stop_token_ends_a_choice_and_sends_its_text_if_kept() {
        for (kept, text) in [(false, "ax"), (true, "ax.")] {
            // Text that could begin the stop text is sent when the token ends the choice.
            let mut choice = Choice::new(codec(), stop(&["xy"], b".!", kept));
            assert_eq!(choice.take(report(b"ax", 0, 1, None)).unwrap().text, "a");
            let piece = choice.take(report(b".bc", 2, 1, Some(Finish::Length))).unwrap();
            assert_eq!("a".to_owned() + &piece.text, text);
            assert_eq!((piece.ids.as_slice(), piece.end), ([46].as_slice(), Some(Finish::Stop)));
            assert_eq!(piece.reason, Some(StopReason::Token(46)));
            assert_eq!((choice.tokens, choice.spans.last().unwrap().end), (3, 3));
            assert_eq!(choice.take(report(b"ef", 5, 1, None)).unwrap(), ChoicePiece::default());
        }
    }

    #[test]
    fn half_a_character_before_a_stop_token_becomes_u_fffd() {
        let mut choice = Choice::new(codec(), stop(&[], b".", false));
        let piece = choice.take(report(&[b'a', 0xE2, b'.'], 0, 1, None)).unwrap();
        assert_eq!((piece.text.as_str(), piece.end), ("a\u{FFFD}", Some(Finish::Stop)));
    }
}
