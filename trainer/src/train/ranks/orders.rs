//! Orders: the messages of rank 0 to the other ranks.

use broker::codec;
use broker::protocol::train::TrainCommand;

use super::Ranks;
use crate::collective::{Collective, CollectiveError, Patience, broadcast_bytes};
use crate::train::stop::Stop;

/// An order of rank 0 to the others.
#[derive(Debug)]
pub(in crate::train) enum Order {
    Command(TrainCommand),
    TakeReference,
    /// A sign of life.
    Nothing,
    /// The run ends.
    End,
}

const COMMAND: u8 = 0;
const REFERENCE: u8 = 1;
const END: u8 = 2;
const NOTHING: u8 = 3;

impl Ranks {
    /// Passes `body` on to the other ranks, which wait in [`Self::receive`].
    fn send(&self, kind: u8, body: impl FnOnce() -> Vec<u8>) -> Result<(), CollectiveError> {
        if self.is_alone() {
            return Ok(());
        }
        let mut bytes = vec![kind];
        bytes.extend(body());
        broadcast_bytes(self.group(), bytes, 0, Patience::Step).map(|_| ())
    }

    pub(in crate::train) fn order_command(&self, command: &TrainCommand) -> Result<(), CollectiveError> {
        self.send(COMMAND, || codec::encode(command))
    }

    pub(in crate::train) fn order_reference(&self) -> Result<(), CollectiveError> {
        self.send(REFERENCE, Vec::new)
    }

    /// Sends a sign of life.
    pub(in crate::train) fn order_nothing(&self) -> Result<(), CollectiveError> {
        self.send(NOTHING, Vec::new)
    }

    /// Sends the order to end. Returns when the other ranks have received it.
    pub(in crate::train) fn order_end(&self) -> Result<(), CollectiveError> {
        self.send(END, Vec::new)?;
        self.meet_at_end();
        Ok(())
    }

    /// Waits for the other ranks after [`Order::End`]. If this process closed its connections at
    /// once, the last message might not reach another host. An error is harmless: a faster rank has
    /// left.
    pub(in crate::train) fn meet_at_end(&self) {
        if self.is_alone() {
            return;
        }
        if let Err(error) = self.group().barrier() {
            tracing::debug!(%error, "another rank left first");
        }
    }

    /// Waits for rank 0's next order. Without a command rank 0 sends signs of life.
    pub(in crate::train) fn receive(&self) -> Result<Order, Stop> {
        let bytes = broadcast_bytes(self.group(), Vec::new(), 0, Patience::Idle).map_err(Stop::Ended)?;
        parse(&bytes).ok_or_else(|| Stop::Broken("rank 0 sent an order that does not decode".into()))
    }
}

fn parse(bytes: &[u8]) -> Option<Order> {
    let (kind, body) = bytes.split_first()?;
    match *kind {
        COMMAND => codec::decode(body).ok().map(Order::Command),
        REFERENCE => Some(Order::TakeReference),
        NOTHING => Some(Order::Nothing),
        END => Some(Order::End),
        _ => None,
    }
}
