//! Exchanges with their bindings: the queues that a message reaches.

use std::collections::HashMap;
use std::sync::Arc;

use super::matching;
use super::queue::QueueCell;
use crate::bus::BusError;
use crate::topology::{Address, Exchange, ExchangeKind};

#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) exchanges: HashMap<String, Bindings>,
    pub(super) queues: HashMap<String, Arc<QueueCell>>,
}

#[derive(Debug)]
pub(super) struct Bindings {
    kind: ExchangeKind,
    pub(super) queues: Vec<(String, Arc<QueueCell>)>,
}

impl Routes {
    pub(super) fn exchange(&mut self, exchange: &Exchange) -> Result<&mut Bindings, BusError> {
        let bindings = self.exchanges.entry(exchange.name.clone()).or_insert_with(|| Bindings {
            kind: exchange.kind,
            queues: Vec::new(),
        });
        if bindings.kind == exchange.kind {
            return Ok(bindings);
        }
        Err(BusError::Declare {
            what: format!("exchange {}", exchange.name),
            reason: format!("it exists as {:?}, not {:?}", bindings.kind, exchange.kind),
            forbidden: false,
        })
    }

    pub(super) fn targets(&self, to: &Address) -> Vec<Arc<QueueCell>> {
        let Some(exchange) = self.exchanges.get(&to.exchange) else {
            return Vec::new();
        };
        let taking = |(binding, _): &&(String, _)| matching::matches(exchange.kind, binding, &to.routing_key);
        exchange
            .queues
            .iter()
            .filter(taking)
            .map(|(_, queue)| queue.clone())
            .collect()
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.queues.remove(name);
        for exchange in self.exchanges.values_mut() {
            exchange.queues.retain(|(_, queue)| *queue.name != *name);
        }
    }
}
