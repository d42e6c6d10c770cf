//! One contract for both buses: in memory, and on a private RabbitMQ.
#![allow(clippy::unwrap_used)]

use broker::bus::contract;

macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            use broker::bus::memory::MemoryBus;
            $(
                #[tokio::test]
                async fn $case() {
                    let bus = MemoryBus::new();
                    let peer = bus.peer();
                    super::contract::$case(&*bus, &*peer).await;
                }
            )+
        }

        #[cfg(feature = "amqp")]
        mod rabbitmq {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let bus = super::connect().await;
                    let peer = super::connect().await;
                    super::contract::$case(&*bus, &*peer).await;
                }
            )+
        }
    };
}

cases![
    a_confirmed_message_is_in_its_queue,
    unacked_messages_come_again_in_place,
    prefetch_bounds_what_is_out,
    a_requeued_message_keeps_its_place,
    a_rejected_message_is_in_the_dead_letters,
    the_dead_letter_helper_keeps_bytes_and_reason,
    unroutable_messages_are_refused,
    a_full_queue_refuses_and_recovers,
    a_queue_is_first_in_first_out,
    a_single_active_consumer_fails_over,
    listeners_get_what_they_asked_for,
    an_exclusive_queue_belongs_to_one,
    closing_gives_everything_back,
    concurrent_publishers_are_all_confirmed,
];

/// Returns a connection to the one RabbitMQ of this test binary: a virtual host of the server that
/// tests share, or else a private node. Statics are never dropped: the node's watchdog ends it with
/// the process.
#[cfg(feature = "amqp")]
async fn connect() -> std::sync::Arc<broker::bus::amqp::AmqpBus> {
    use broker::bus::amqp::{AmqpBus, AmqpOptions};
    use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
    use broker::local::shared;

    static HOST: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(shared::take);
    static NODE: tokio::sync::OnceCell<(tempfile::TempDir, PrivateRabbit)> = tokio::sync::OnceCell::const_new();
    let start = || async {
        let folder = tempfile::tempdir().unwrap();
        let node = PrivateRabbit::start(folder.path(), RabbitOptions::default())
            .await
            .unwrap();
        (folder, node)
    };
    let url = match &*HOST {
        Some(url) => url.clone(),
        None => NODE.get_or_init(start).await.1.url(),
    };
    AmqpBus::connect(&url, AmqpOptions::default()).await.unwrap()
}
