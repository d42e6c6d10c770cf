//! Server-sent events of a run, while it plays.
//!
//! [`turns`] come from the broker and are thinned. Lines of [`files`] are all sent, with ids. A
//! client that reconnects with its last id gets every later line exactly once.

mod files;
mod outbox;
mod topics;
mod turns;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::web::Bytes;
use actix_web::{HttpResponse, http::header};
use broker::topology::Topology;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::sync::mpsc;

use super::answer::{Answer, ApiError, whole};
use super::command_answers::CommandAnswers;
use super::offsets::Offsets;
use crate::base::log_scope;
use crate::run_folder::RunFolder;
use files::FileTail;
use outbox::{Outbox, Waiting};
pub(crate) use topics::Topics;

/// The largest number of open streams.
const STREAMS: usize = 16;
/// The number of events, and their bytes, that may wait for a slow page. Further turns are dropped
/// and counted.
const WAITING: usize = 1024;
const WAITING_BYTES: usize = 256 << 10;
/// The time between two `rate` events, and between two `beats` events.
const TICK: Duration = Duration::from_secs(1);

/// Counts the open streams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// The place of a stream, freed on drop.
struct Place(Arc<AtomicUsize>);

impl Places {
    fn take(&self) -> Result<Place, ApiError> {
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.0.clone());
        if taken < STREAMS {
            Ok(place)
        } else {
            Err(ApiError::new(
                429,
                format!("{STREAMS} streams are open, as many as there may be: close a page"),
            ))
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Formats an event.
fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// Answers with the events from now on, or from after the event with the id `last`.
///
/// # Errors
/// Too many streams are open, `last` is not the id of an event, or turns are requested and the run
/// has none any more.
pub(crate) async fn open(
    (commands, places): (Arc<dyn CommandAnswers>, &Places),
    folder: RunFolder,
    topics: &Topics,
    last: Option<&str>,
) -> Answer {
    let place = places.take()?;
    let last = last.map(Offsets::parse).transpose()?;
    let (send, receive) = Outbox::new(WAITING, WAITING_BYTES);
    if topics.turns {
        let topology = Topology::new(folder.run().clone());
        let (asked, answers) = (folder.clone(), commands.clone());
        let bus = whole(async move { answers.bus(&asked).await }).await?;
        let bus = bus.map_err(|error| ApiError::new(503, format!("{error:#}")))?;
        turns::begin(bus, &topology, send.clone()).await?;
    }
    if topics.beats {
        log_scope::spawn(beats(commands, folder.clone(), send.clone()));
    }
    if !topics.files.is_empty() {
        let tail = FileTail::open(folder, topics.files.clone(), last)?;
        log_scope::spawn(tail.forward(send));
    }
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(events(receive, place)))
}

/// Sends the run's state every second until the page is gone.
async fn beats(commands: Arc<dyn CommandAnswers>, folder: RunFolder, send: Outbox) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = send.closed() => return,
        }
        match commands.status(&folder).await {
            Ok(status) => {
                if !send.send(event("beats", &status)).await {
                    return;
                }
            }
            Err(error) => tracing::debug!(error = format!("{error:#}"), "no state to stream"),
        }
    }
}

fn events(receive: mpsc::Receiver<Waiting>, place: Place) -> impl Stream<Item = Result<Bytes, Infallible>> {
    unfold((receive, place), |(mut receive, place)| async move {
        let waiting = receive.recv().await?;
        Some((Ok(waiting.event), (receive, place)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_streams_are_open() {
        let places = Places::default();
        let taken: Vec<_> = (0..STREAMS).map(|_| places.take().unwrap()).collect();
        assert_eq!(places.take().err().unwrap().status, 429);
        drop(taken);
        assert!(places.take().is_ok());
    }
}
