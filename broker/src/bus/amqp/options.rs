//! Settings of the connections to RabbitMQ: access, timeouts and windows.

use std::time::Duration;

use crate::tls::TlsFiles;

/// Settings of the connection.
#[derive(Debug, Clone)]
pub struct AmqpOptions {
    /// The name in the broker's list of connections.
    pub name: String,
    /// Allow `amqp://` to other machines (DYAD_ALLOW_PLAINTEXT=1).
    pub allow_plaintext: bool,
    /// Files for `amqps://`, in addition to the system's certificates.
    pub tls: TlsFiles,
    /// The longest wait of [`AmqpBus::connect`](super::AmqpBus::connect) for the first connection.
    pub connect_timeout: Duration,
    /// The first failure to connect ends [`AmqpBus::connect`](super::AmqpBus::connect).
    pub tries_once: bool,
    /// The longest wait for one answer of the broker (a declare, a channel, an ack's write).
    pub answer_timeout: Duration,
    /// The longest silence of a channel with unconfirmed messages before the connection is
    /// replaced.
    pub confirm_timeout: Duration,
    /// The longest time for a publish, over lost connections, before it returns
    /// [`PublishError::Unknown`](crate::bus::PublishError::Unknown).
    pub publish_timeout: Duration,
    /// The longest time for closing a connection.
    pub close_timeout: Duration,
    /// The largest number of unconfirmed messages per destination.
    pub window: usize,
    /// The largest number of unconfirmed bytes per exchange.
    pub window_bytes: usize,
    /// The largest body in bytes: RabbitMQ 4 closes the channel at 16 MiB.
    pub max_message: usize,
}

impl Default for AmqpOptions {
    fn default() -> Self {
        Self {
            name: format!("pid {}", std::process::id()),
            allow_plaintext: false,
            tls: TlsFiles::default(),
            connect_timeout: Duration::from_secs(30),
            tries_once: false,
            answer_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(15),
            publish_timeout: Duration::from_secs(120),
            close_timeout: Duration::from_secs(2),
            window: 512,
            window_bytes: 64 << 20,
            max_message: 15 << 20,
        }
    }
}
