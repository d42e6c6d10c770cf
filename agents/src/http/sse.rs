//! An answer as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::sync::watch;

use super::answers::AnswerWriter;
use super::choice::Choice;
use super::gate::{FrontPhase, closed};
use super::generations::Generations;
use super::request_error::RequestError;
use crate::engine::VisitUpdate;

/// A running stream.
pub struct Sse {
    pub paper: AnswerWriter,
    pub open: Generations,
    pub choices: Vec<Choice>,
    pub phases: watch::Receiver<FrontPhase>,
    begun: Vec<bool>,
    ready: VecDeque<Bytes>,
    ended: bool,
}

/// Formats one event.
#[must_use]
pub fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// The event that ends every successful stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Sent when no event is, so that no proxy closes the connection as dead; clients skip comments.
const KEEP_ALIVE: &[u8] = b": wait\n\n";
/// The longest time without any bytes.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);

impl Sse {
    pub fn new(
        paper: AnswerWriter,
        open: Generations,
        choices: Vec<Choice>,
        phases: watch::Receiver<FrontPhase>,
    ) -> Self {
        Self {
            begun: vec![false; choices.len()],
            paper,
            open,
            choices,
            phases,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Converts a report for a choice into events.
    pub fn take(&mut self, index: usize, update: VisitUpdate) {
        let Some(choice) = self.choices.get_mut(index) else {
            return;
        };
        let piece = match choice.take(update) {
            Ok(piece) => piece,
            Err(failure) => return self.fail(&RequestError::failure(&failure)),
        };
        if piece.ids.is_empty() && piece.end.is_none() {
            return;
        }
        let first = !std::mem::replace(&mut self.begun[index], true);
        let chunk = self.paper.chunk(index, &piece, first, &choice.spans);
        self.ready.push_back(event(&chunk));
        if piece.end.is_some() {
            self.open.leave(index);
            self.finish();
        }
    }

    /// After the last choice: sends the counts if they are wanted, and the end mark.
    fn finish(&mut self) {
        if self.choices.iter().any(|choice| choice.end.is_none()) {
            return;
        }
        if self.paper.include_usage {
            let made = self.choices.iter().map(|choice| choice.tokens).sum();
            self.ready.push_back(event(&self.paper.usage_chunk(made)));
        }
        self.ready.push_back(Bytes::from_static(DONE));
        self.ended = true;
    }

    /// Sends an error in the middle of a stream, without the mark of a good end.
    fn fail(&mut self, refusal: &RequestError) {
        self.ready.push_back(event(&refusal.json()));
        self.ended = true;
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                update = self.open.next() => match update {
                    Some((index, update)) => self.take(index, update),
                    None => self.fail(&RequestError::lost()),
                },
                () = closed(&mut self.phases) => self.fail(&RequestError::closing()),
                () = tokio::time::sleep(LONGEST_SILENCE) => return Some(Bytes::from_static(KEEP_ALIVE)),
            }
        }
    }

    /// Returns all events. Dropping the stream cancels the running generations.
    pub fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold(
            self,
            |mut sse| async move { sse.next().await.map(|bytes| (Ok(bytes), sse)) },
        )
    }
}
