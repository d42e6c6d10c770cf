//! How the connections to RabbitMQ are made, waited for and filled.

use std::time::Duration;

use crate::tls::TlsFiles;

/// Settings of the connection.
#[derive(Debug, Clone)]
pub struct AmqpOptions {
    /// Whose connection it is, for the broker's list of connections.
    pub name: String,
    /// Allow `amqp://` to other machines (DYAD_ALLOW_PLAINTEXT=1).
    pub allow_plaintext: bool,
    /// For `amqps://`: files beside the system's certificates.
    pub tls: TlsFiles,
    /// How long [`AmqpBus::connect`] waits for the first connection.
    pub connect_timeout: Duration,
    /// How long the broker may take for one answer (a declare, a channel, an ack's write).
    pub answer_timeout: Duration,
    /// How long a channel with unconfirmed messages may be silent before the connection is replaced.
    pub confirm_timeout: Duration,
    /// How long a publish is tried, through lost connections, before its outcome is [`PublishError::Unknown`].
    pub publish_timeout: Duration,
    /// How long the end of a connection may take.
    pub close_timeout: Duration,
    /// Unconfirmed messages per destination.
    pub window: usize,
    /// Unconfirmed bytes per exchange.
    pub window_bytes: usize,
    /// Largest body, in bytes: RabbitMQ 4 closes the channel at 16 MiB.
    pub max_message: usize,
}

impl Default for AmqpOptions {
    fn default() -> Self {
        Self {
            name: format!("pid {}", std::process::id()),
            allow_plaintext: false,
            tls: TlsFiles::default(),
            connect_timeout: Duration::from_secs(30),
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
