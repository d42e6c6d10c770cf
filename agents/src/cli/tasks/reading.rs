//! One pass over the dead-letter queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use broker::bus::{Bus, Consumer, Delivery};
use broker::ids::Digest;
use broker::topology::Topology;

use super::letters::Letter;

/// The queue counts as read after this time without a letter.
const QUIET: Duration = Duration::from_millis(700);
/// The same once all letters were read that waited when the reading began.
const QUIET_AT_THE_END: Duration = Duration::from_millis(150);
/// Largest number of letters read at once.
pub(super) const MOST: u16 = 10_000;

/// Reads all letters in their order. They return to the queue when the consumer is dropped or the
/// bus is closed, except those that are acknowledged before.
///
/// # Errors
/// Returns the broker's errors.
pub(super) async fn each(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    visit: impl FnMut(Delivery),
) -> anyhow::Result<Box<dyn Consumer>> {
    let waiting = bus.depth(&topology.dead()).await;
    each_of(bus, topology, waiting, visit).await
}

/// Reads all letters like [`each`]. `waiting` is the number that waited, if it is known.
///
/// # Errors
/// Returns the broker's errors.
pub(super) async fn each_of(
    bus: &Arc<dyn Bus>,
    topology: &Topology,
    waiting: Option<u64>,
    mut visit: impl FnMut(Delivery),
) -> anyhow::Result<Box<dyn Consumer>> {
    let mut consumer = bus.consume(&topology.dead(), MOST).await?;
    for read in 0..u64::from(MOST) {
        let is_last = read > 0 && waiting.is_some_and(|waiting| read >= waiting);
        let quiet = if is_last { QUIET_AT_THE_END } else { QUIET };
        let Ok(Some(delivery)) = tokio::time::timeout(quiet, consumer.next()).await else {
            break;
        };
        visit(delivery);
    }
    Ok(consumer)
}

/// The ids of the letters read so far, and those that different letters share. Every user with
/// write access can take the id of another task.
#[derive(Default)]
pub(super) struct SharedIds {
    bodies: BTreeMap<String, Digest>,
    ambiguous: BTreeSet<String>,
}

impl SharedIds {
    pub(super) fn note(&mut self, letter: &Letter) {
        let body = Digest::of(&letter.body);
        for name in letter.names() {
            if *self.bodies.entry(name.clone()).or_insert(body) != body {
                self.ambiguous.insert(name.clone());
            }
        }
    }

    /// Returns true if another letter with a different body has one of this letter's ids.
    pub(super) fn is_ambiguous(&self, letter: &Letter) -> bool {
        letter.names().any(|name| self.ambiguous.contains(name))
    }
}
