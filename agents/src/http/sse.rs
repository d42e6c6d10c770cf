//! An answer as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::sync::watch;

use super::answers::Paper;
use super::choice::Choice;
use super::gate::{Phase, closed};
use super::open::Open;
use super::refusal::Refusal;
use crate::engine::VisitUpdate;

/// A stream under way.
pub struct Sse {
    pub paper: Paper,
    pub open: Open,
    pub choices: Vec<Choice>,
    pub phases: watch::Receiver<Phase>,
    begun: Vec<bool>,
    ready: VecDeque<Bytes>,
    ended: bool,
}

/// One event.
#[must_use]
pub fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// What closes every stream that ended well.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Said while nothing else is, so that nothing on the way takes the connection for dead; clients skip comments.
const STILL_HERE: &[u8] = b": wait\n\n";
/// How long nothing is said at most.
const SILENCE: Duration = Duration::from_secs(15);

impl Sse {
    pub fn new(paper: Paper, open: Open, choices: Vec<Choice>, phases: watch::Receiver<Phase>) -> Self {
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

    /// Makes events of what a choice was told.
    pub fn take(&mut self, index: usize, told: VisitUpdate) {
        let Some(choice) = self.choices.get_mut(index) else {
            return;
        };
        let piece = match choice.take(told) {
            Ok(piece) => piece,
            Err(failure) => return self.fail(&Refusal::failure(&failure)),
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

    /// After the last choice: the counts if they are wanted, and the mark of the end.
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

    /// An error in the middle: it is told, and the mark of a good end does not come.
    fn fail(&mut self, refusal: &Refusal) {
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
                told = self.open.next() => match told {
                    Some((index, told)) => self.take(index, told),
                    None => self.fail(&Refusal::lost()),
                },
                () = closed(&mut self.phases) => self.fail(&Refusal::closing()),
                () = tokio::time::sleep(SILENCE) => return Some(Bytes::from_static(STILL_HERE)),
            }
        }
    }

    /// The events, to their end. Dropped earlier, what is under way is cancelled.
    pub fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold(
            self,
            |mut sse| async move { sse.next().await.map(|bytes| (Ok(bytes), sse)) },
        )
    }
}
