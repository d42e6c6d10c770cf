//! The bus over `amqps://`.

use std::time::{Duration, Instant};

use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::{Bus, BusError, BusHealth, Consumer, Outgoing};
use broker::ids::RunId;
use broker::local::ServerTls;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::protocol::Kind;
use broker::tls::TlsFiles;
use broker::topology::Topology;

use crate::authority::Authority;
use crate::{known, strangers_are_refused, trust, with, within};

async fn start(tls: ServerTls) -> (PrivateRabbit, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = RabbitOptions {
        tls: Some(tls),
        ..RabbitOptions::default()
    };
    (PrivateRabbit::start(folder.path(), options).await.unwrap(), folder)
}

fn options(tls: TlsFiles) -> AmqpOptions {
    AmqpOptions {
        tls,
        ..AmqpOptions::default()
    }
}

/// Returns the text of a refusal, which must come long before the connection's timeout.
async fn refused(url: &str, tls: TlsFiles) -> String {
    let begun = Instant::now();
    let error = AmqpBus::connect(url, options(tls)).await.unwrap_err();
    assert!(matches!(error, BusError::Tls { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{error}");
    error.to_string()
}

fn topology() -> Topology {
    Topology::new(RunId::new("tls").unwrap())
}

async fn pass(bus: &AmqpBus, consumer: &mut dyn Consumer, id: &str) {
    let message = Outgoing {
        to: topology().to(&topology().tasks()),
        kind: Kind::Task,
        message_id: id.into(),
        correlation_id: None,
        headers: Vec::new(),
        // Large enough for many TLS records.
        body: vec![b'x'; 1 << 20].into(),
        durable: true,
    };
    bus.publish(message).await.unwrap();
    loop {
        let delivery = within("a delivery", consumer.next()).await.unwrap();
        assert_eq!(delivery.body.len(), 1 << 20);
        delivery.ack().await;
        // A killed server forgets an ack that it had not written: its message comes again.
        if delivery.message_id.as_deref() == Some(id) {
            break;
        }
        assert!(delivery.redelivered, "{delivery:?}");
    }
}

async fn until_health(bus: &AmqpBus, wanted: impl Fn(&BusHealth) -> bool) {
    within("the bus's health changes", async {
        while !wanted(&bus.health()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_pass_over_tls_after_restarts_and_bad_certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (good, bad) = (authority.server(), stranger.server());
    let served = authority.sign("served").server();
    let serve = |other: &ServerTls| {
        std::fs::copy(&other.certificate, &served.certificate).unwrap();
        std::fs::copy(&other.key, &served.key).unwrap();
    };
    serve(&good);
    let (mut rabbit, _folder) = start(served.clone()).await;
    let bus = AmqpBus::connect(&rabbit.tls_url(), options(trust(authority.file())))
        .await
        .unwrap();
    bus.declare(&topology(), &[]).await.unwrap();
    let mut consumer = bus.consume(&topology().tasks(), 1).await.unwrap();
    pass(&bus, &mut *consumer, "first").await;

    rabbit.restart().await.unwrap();
    pass(&bus, &mut *consumer, "after a restart").await;

    // A bus that was connected once keeps retrying: the server had a good certificate, and gets it
    // back.
    serve(&bad);
    rabbit.restart().await.unwrap();
    until_health(
        &bus,
        |health| matches!(health, BusHealth::Down(why) if why.contains("DYAD_CA")),
    )
    .await;
    serve(&good);
    rabbit.restart().await.unwrap();
    pass(&bus, &mut *consumer, "after a bad certificate").await;
    bus.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_server_is_rejected_before_any_data_is_sent() {
    let authority = Authority::new();
    let (rabbit, _folder) = start(authority.server()).await;
    strangers_are_refused(&rabbit.tls_url(), &authority, "amqps://127.0.0.1", refused).await;

    // A port without TLS.
    let plain = with(&rabbit.url(), "amqp:", "amqps:");
    let text = refused(&plain, trust(authority.file())).await;
    assert!(text.contains("does not speak TLS at this port"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (rabbit, _folder) = start(authority.sign_for("127.0.0.1", 2020, 2021).server()).await;
    let text = refused(&rabbit.tls_url(), trust(authority.file())).await;
    assert!(text.contains("certificate has expired"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_ask_for_a_certificate_of_ours() {
    let authority = Authority::new();
    let asking = ServerTls {
        clients_of: Some(authority.file()),
        ..authority.server()
    };
    let (rabbit, _folder) = start(asking).await;
    let text = refused(&rabbit.tls_url(), trust(authority.file())).await;
    assert!(
        text.contains("DYAD_CLIENT_CERT") && text.contains("DYAD_CLIENT_KEY"),
        "{text}"
    );
    let ours = known(authority.file(), authority.sign("a-coordinator"));
    let bus = AmqpBus::connect(&rabbit.tls_url(), options(ours)).await.unwrap();
    assert_eq!(bus.health(), BusHealth::Up);
    bus.close().await;
}
