//! Removes reasoning from an agent's output and from the ids that it holds.

use std::borrow::Cow;

use broker::protocol::turn::TurnPrompt;
use configs::History;

use super::{TextCodec, after, message, no_marks};
use crate::reasoning::{Mark, Spelling, behind, visible};
use crate::text::TextError;
use crate::text::guard::free_marks;
use crate::text::opening::{Opened, Opening};

impl TextCodec {
    /// Returns the part of the output that a partner may see: no control tokens and no reasoning.
    /// If the prompt left reasoning open ([`TextCodec::leaves_open`]), it continues up to
    /// `</think>` or to the end. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn decode(&self, prompt: &[u32], output: &[u32]) -> String {
        self.visible(output, self.leaves_open(prompt))
    }

    /// Decodes an output like [`TextCodec::decode`], for callers that decode it many times. `open`
    /// is the result of [`TextCodec::leaves_open`] for its prompt.
    #[must_use]
    pub fn visible(&self, output: &[u32], open: bool) -> String {
        let behind = behind(output, &self.close);
        let text = self.marked(behind.unwrap_or(output));
        visible(&text, open && behind.is_none()).to_owned()
    }

    /// Returns the template's beginning of an answer, without blanks.
    #[must_use]
    pub fn answers_begin_with(&self) -> String {
        self.opening.text()
    }

    /// Returns true if a prompt ends inside reasoning that the chat template began. The sampled
    /// text continues it.
    #[must_use]
    pub fn leaves_open(&self, prompt: &[u32]) -> bool {
        self.opened(prompt).is_some_and(|opened| opened.open)
    }

    /// Returns the ids that a generation starts from: the held ids, then those of
    /// [`TextCodec::render_new`].
    ///
    /// [`History::StripReasoning`] removes the reasoning of the previous turn: the sampled part,
    /// and the part that the template wrote before it. Earlier turns lost theirs in their own
    /// prompts. Messages and control tokens stay.
    #[must_use]
    pub fn join(&self, prompt: &TurnPrompt, new: &[u32], history: History) -> Vec<u32> {
        let held = match history {
            History::Keep => Cow::Borrowed(&*prompt.held),
            History::StripReasoning => Cow::Owned(self.stripped(&prompt.held, prompt.sampled as usize)),
        };
        let ended = held
            .last()
            .is_some_and(|last| self.end_of_turn == Some(*last) && new.first() == Some(last));
        [&*held, &new[usize::from(ended)..]].concat()
    }

    /// Removes the reasoning of a turn from held ids. The last `sampled` ids are that turn's
    /// output.
    fn stripped(&self, held: &[u32], sampled: usize) -> Vec<u32> {
        let prompt = held.len().saturating_sub(sampled);
        let from = self.opened(&held[..prompt]).map_or(prompt, |opened| opened.at);
        let (before, turn) = held.split_at(from);
        let stays = self.spelling(turn).stays();
        let kept = turn.iter().zip(stays);
        let kept = kept.filter(|(id, stays)| *stays || self.is_control(**id) && self.mark(**id).is_none());
        before.iter().copied().chain(kept.map(|(id, _)| *id)).collect()
    }

    /// Finds reasoning that the template began at the end of a prompt.
    fn opened(&self, prompt: &[u32]) -> Option<Opened> {
        let from = prompt.len().saturating_sub(self.opening.window());
        let opened = self.opening.of(&self.spelling(&prompt[from..]))?;
        Some(Opened {
            at: from + opened.at,
            ..opened
        })
    }

    /// Returns the text of ids without control tokens, except for marks of reasoning.
    fn marked(&self, ids: &[u32]) -> String {
        let (mut text, mut rest) = (String::new(), ids);
        while let Some((at, mark)) = rest.iter().enumerate().find_map(|(at, id)| Some((at, self.mark(*id)?))) {
            text.push_str(&self.text(&rest[..at]));
            text.push_str(mark.text());
            rest = &rest[at + 1..];
        }
        text.push_str(&self.text(rest));
        text
    }

    /// Returns the bytes of ids, to find marks of reasoning in them.
    fn spelling(&self, ids: &[u32]) -> Spelling {
        // Without a decoder, texts are separated by blanks.
        let gap = self.tokenizer.get_decoder().is_none().then_some(b' ');
        let mut spelling = Spelling::default();
        for id in ids {
            let bytes = self.bytes(*id).filter(|bytes| !bytes.is_empty());
            // An id without bytes of its own cannot be part of a mark.
            spelling.push(gap.into_iter().chain(bytes.unwrap_or_else(|| vec![u8::MAX])));
        }
        spelling
    }

    /// Returns the mark of reasoning of a control token.
    fn mark(&self, id: u32) -> Option<Mark> {
        self.marks.iter().find(|(of, _)| *of == id).map(|(_, mark)| *mark)
    }

    /// Returns the marks of reasoning that are control tokens.
    pub(super) fn control_marks(&self) -> Vec<(u32, Mark)> {
        let id = |mark: Mark| Some((self.tokenizer.token_to_id(mark.text())?, mark));
        let all = Mark::ALL.into_iter().filter_map(id);
        all.filter(|(id, _)| self.is_control(*id)).collect()
    }

    /// Finds the template's beginning of an answer.
    pub(super) fn find_opening(&self) -> Result<Opening, TextError> {
        let [place] = free_marks(&[]).ok_or_else(no_marks)?;
        let question = [message("user", place)];
        let ending = |generation| -> Result<String, TextError> {
            let text = self.template.render(&question, None, false, generation)?;
            Ok(after(&text, &question[0].content)?.to_owned())
        };
        let (with, without) = (ending(true)?, ending(false)?);
        // Otherwise the opening includes the end of the question, which the template also writes.
        Ok(Opening::new(with.strip_prefix(&*without).unwrap_or(&with)))
    }
}
