//! Messages on the bus, and requests of HTTP clients.

use prometheus_client::metrics::histogram::Histogram;

use crate::observe::table::{CALL_SECONDS, Labelled, Level, SeriesTable, TURN_SECONDS, Total};

pub(crate) struct BusSeries {
    pub(crate) publish: Labelled<Histogram, 1>,
    pub(crate) messages: Labelled<Total, 3>,
    pub(crate) blocked: Labelled<Level, 0>,
    pub(crate) reconnects: Labelled<Total, 0>,
}

impl BusSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            publish: table.histogram(
                "dyad_bus_publish_seconds",
                ["plane"],
                CALL_SECONDS,
                "from a durable publish to its confirm",
            ),
            messages: table.counter(
                "dyad_bus_messages",
                ["plane", "direction", "outcome"],
                "messages `sent` and `received`",
            ),
            blocked: table.gauge("dyad_bus_blocked", [], "1 if the broker takes no publishes"),
            reconnects: table.counter("dyad_bus_reconnects", [], "lost connections that were made again"),
        }
    }
}

#[derive(Clone)]
pub(crate) struct HttpSeries {
    pub(crate) requests: Labelled<Total, 3>,
    pub(crate) seconds: Labelled<Histogram, 2>,
}

impl HttpSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            requests: table.counter(
                "dyad_http_requests",
                ["agent", "route", "code"],
                "requests of clients by the pattern of their path",
            ),
            seconds: table.histogram(
                "dyad_http_request_seconds",
                ["agent", "route"],
                TURN_SECONDS,
                "to the head of the answer",
            ),
        }
    }
}
