//! What of an agent's own words stays its own: reasoning in what it sampled and in what it holds.

use std::borrow::Cow;

use broker::protocol::turn::Prompt;
use configs::History;

use super::{TextCodec, after, message, no_marks};
use crate::text::TextError;
use crate::text::guard::free_marks;
use crate::text::opening::{Opened, Opening};
use crate::text::reasoning::{Mark, Spelling, behind, visible};

impl TextCodec {
    /// What a partner may see of the output that follows a prompt: no control tokens, no reasoning. A reasoning that the prompt left
    /// open ([`TextCodec::leaves_open`]) goes on in it, up to `</think>` or to the end. Bytes that are no UTF-8 show as U+FFFD.
    #[must_use]
    pub fn decode(&self, prompt: &[u32], output: &[u32]) -> String {
        self.visible(output, self.leaves_open(prompt))
    }

    /// As [`TextCodec::decode`], for whoever looks at one output many times: `open` is what [`TextCodec::leaves_open`] says of
    /// its prompt.
    #[must_use]
    pub fn visible(&self, output: &[u32], open: bool) -> String {
        let behind = behind(output, &self.close);
        let text = self.marked(behind.unwrap_or(output));
        visible(&text, open && behind.is_none()).to_owned()
    }

    /// What the chat template writes for an answer to begin with, without blanks.
    #[must_use]
    pub fn answers_begin_with(&self) -> String {
        self.opening.text()
    }

    /// Whether a prompt ends inside of a reasoning, which the chat template began: what is sampled goes on with it.
    #[must_use]
    pub fn leaves_open(&self, prompt: &[u32]) -> bool {
        self.opened(prompt).is_some_and(|opened| opened.open)
    }

    /// The ids that a generation starts from: what is held, then what [`TextCodec::render_new`] made.
    ///
    /// With [`History::StripReasoning`] the reasoning of the turn before is left out: of what was sampled then, and of what the
    /// template wrote for it to begin with. That of earlier turns was left out of that turn's own prompt. What anybody else said
    /// stays as it is, and so do control tokens.
    #[must_use]
    pub fn join(&self, prompt: &Prompt, new: &[u32], history: History) -> Vec<u32> {
        let held = match history {
            History::Keep => Cow::Borrowed(&*prompt.held),
            History::StripReasoning => Cow::Owned(self.stripped(&prompt.held, prompt.sampled as usize)),
        };
        let ended = held
            .last()
            .is_some_and(|last| self.end_of_turn == Some(*last) && new.first() == Some(last));
        [&*held, &new[usize::from(ended)..]].concat()
    }

    /// Held ids, the last `sampled` of which are a turn's output, without that turn's reasoning.
    fn stripped(&self, held: &[u32], sampled: usize) -> Vec<u32> {
        let prompt = held.len().saturating_sub(sampled);
        let from = self.opened(&held[..prompt]).map_or(prompt, |opened| opened.at);
        let (before, turn) = held.split_at(from);
        let stays = self.spelling(turn).stays();
        let kept = turn.iter().zip(stays);
        let kept = kept.filter(|(id, stays)| *stays || self.is_control(**id) && self.mark(**id).is_none());
        before.iter().copied().chain(kept.map(|(id, _)| *id)).collect()
    }

    /// The reasoning that the template began at the end of a prompt.
    fn opened(&self, prompt: &[u32]) -> Option<Opened> {
        let from = prompt.len().saturating_sub(self.opening.window());
        let opened = self.opening.of(&self.spelling(&prompt[from..]))?;
        Some(Opened {
            at: from + opened.at,
            ..opened
        })
    }

    /// The text of ids without control tokens but for marks of reasoning.
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

    /// The bytes of ids, in which marks of reasoning can be found.
    fn spelling(&self, ids: &[u32]) -> Spelling {
        // Without a decoder, texts stand apart from each other.
        let gap = self.tokenizer.get_decoder().is_none().then_some(b' ');
        let mut spelling = Spelling::default();
        for id in ids {
            let bytes = self.bytes(*id).filter(|bytes| !bytes.is_empty());
            // What has no bytes of its own is no part of a mark.
            spelling.push(gap.into_iter().chain(bytes.unwrap_or_else(|| vec![u8::MAX])));
        }
        spelling
    }

    /// The mark of reasoning that a control token is, if it is one.
    fn mark(&self, id: u32) -> Option<Mark> {
        self.marks.iter().find(|(of, _)| *of == id).map(|(_, mark)| *mark)
    }

    /// Marks of reasoning that are control tokens.
    pub(super) fn control_marks(&self) -> Vec<(u32, Mark)> {
        let id = |mark: Mark| Some((self.tokenizer.token_to_id(mark.text())?, mark));
        let all = Mark::ALL.into_iter().filter_map(id);
        all.filter(|(id, _)| self.is_control(*id)).collect()
    }

    /// What the template writes for an answer to begin with.
    pub(super) fn find_opening(&self) -> Result<Opening, TextError> {
        let [place] = free_marks(&[]).ok_or_else(no_marks)?;
        let question = [message("user", place)];
        let ending = |generation| -> Result<String, TextError> {
            let text = self.template.render(&question, None, false, generation)?;
            Ok(after(&text, &question[0].content)?.to_owned())
        };
        let (with, without) = (ending(true)?, ending(false)?);
        // Else the end of the question is a part of it, which the template writes too.
        Ok(Opening::new(with.strip_prefix(&*without).unwrap_or(&with)))
    }
}
