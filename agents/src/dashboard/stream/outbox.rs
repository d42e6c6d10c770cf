//! The events that wait for a slow page, bounded in number and in bytes.

use std::sync::Arc;

use actix_web::web::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The sending side. Clones share the bounds.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    send: mpsc::Sender<Waiting>,
    /// A permit for each free byte.
    room: Arc<Semaphore>,
    bytes: usize,
}

/// An event that waits. It takes its room until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) event: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Outbox {
    /// Makes both sides, for at most so many waiting events and bytes.
    pub(super) fn new(events: usize, bytes: usize) -> (Self, mpsc::Receiver<Waiting>) {
        let (send, receive) = mpsc::channel(events);
        let room = Arc::new(Semaphore::new(bytes));
        (Self { send, room, bytes }, receive)
    }

    /// Returns the permits of an event. One that is larger than all room waits until it is alone.
    fn size(&self, event: &Bytes) -> u32 {
        u32::try_from(event.len().min(self.bytes)).unwrap_or(u32::MAX)
    }

    /// Sends an event as soon as there is room. Returns false if the page is gone.
    pub(super) async fn send(&self, event: Bytes) -> bool {
        let Ok(room) = self.room.clone().acquire_many_owned(self.size(&event)).await else {
            return false;
        };
        self.send.send(Waiting { event, _room: room }).await.is_ok()
    }

    /// Sends an event if there is room now. Returns true if it was sent.
    pub(super) fn try_send(&self, event: Bytes) -> bool {
        let Ok(room) = self.room.clone().try_acquire_many_owned(self.size(&event)) else {
            return false;
        };
        self.send.try_send(Waiting { event, _room: room }).is_ok()
    }

    /// Waits until the page is gone.
    pub(super) async fn closed(&self) {
        self.send.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_events_are_bounded_in_number_and_bytes() {
        let event = |size: usize| Bytes::from(vec![b'x'; size]);
        let (outbox, mut receive) = Outbox::new(3, 100);
        assert!(outbox.try_send(event(60)) && !outbox.try_send(event(60)));
        assert!(outbox.try_send(event(40)) && outbox.try_send(event(0)) && !outbox.try_send(event(0)));
        assert_eq!(receive.recv().await.unwrap().event.len(), 60);
        assert!(outbox.try_send(event(60)), "its room is free again");
        let large = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(event(1000)).await }
        });
        for size in [40, 0, 60, 1000] {
            assert_eq!(receive.recv().await.unwrap().event.len(), size);
        }
        assert!(large.await.unwrap());
        drop(receive);
        assert!(!outbox.send(event(1)).await && !outbox.try_send(event(1)));
        outbox.closed().await;
    }
}
