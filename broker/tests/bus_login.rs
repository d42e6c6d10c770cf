//! A broker that rejects the login ends the first connection at once, with what to correct.
#![cfg(feature = "amqp")]
#![allow(clippy::unwrap_used)]

use broker::bus::BusError;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};

#[tokio::test]
async fn rejected_login_says_what_to_correct() {
    let folder = tempfile::tempdir().unwrap();
    let rabbit = PrivateRabbit::start(folder.path(), RabbitOptions::default())
        .await
        .unwrap();
    let url = rabbit.url();
    let (_, host) = url.split_once('@').unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let stranger = format!("amqp://guest:not-the-password@{host}");
    let nowhere = format!("{server}/nowhere");
    for (url, advice) in [(stranger, "the user or the password is wrong"), (nowhere, "nowhere")] {
        let error = AmqpBus::connect(&url, AmqpOptions::default()).await.unwrap_err();
        let BusError::Login { url, reason } = error else {
            panic!("{error}");
        };
        assert!(reason.contains(advice) && reason.contains(": correct"), "{reason}");
        assert!(!url.contains("not-the-password"), "{url}");
    }
}
