//! Cases about dead letters.

use super::{id, message, next, setup, until_depth};
use crate::bus::Bus;
use crate::bus::letter::{
    Class, HEADER_ATTEMPTS, HEADER_CLASS, HEADER_FIRST, HEADER_KEY, HEADER_QUEUE, HEADER_REASON, HEADER_STAGE,
    HEADER_TYPE, Refusal, Stage, dead_letter,
};
use crate::protocol::Kind;

/// `reject(false)` moves a message to the dead letters, byte for byte, with a reason.
pub async fn a_rejected_message_is_in_the_dead_letters(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    let mut sent = message(topology.to(&queue), "poison");
    sent.body = vec![0, 255, 1, 254].into();
    bus.publish(sent.clone()).await.unwrap();
    let got = next(&mut bus.consume(&queue, 1).await.unwrap()).await;
    // Its consumer is dropped by now: only a live consumer can reject.
    assert!(!got.acker.reject(false).await);
    let mut consumer = bus.consume(&queue, 1).await.unwrap();
    assert!(next(&mut consumer).await.acker.reject(false).await);
    let dead = next(&mut bus.consume(&topology.dead(), 1).await.unwrap()).await;
    assert_eq!((&dead.body, id(&dead)), (&sent.body, "poison"));
    assert_eq!(dead.header(HEADER_REASON), Some("rejected"));
    assert_eq!(dead.header(HEADER_CLASS), Some("rejected"));
    assert_eq!(dead.header(HEADER_STAGE), Some("broker"));
    assert_eq!(dead.header(HEADER_KEY), Some(sent.to.routing_key.as_str()));
    assert_eq!(dead.header(HEADER_ATTEMPTS), Some("1"));
    assert!(
        dead.header(HEADER_FIRST)
            .is_some_and(|time| time.starts_with("20") && time.ends_with('Z'))
    );
    assert_eq!(dead.header(HEADER_QUEUE), Some(queue.name.as_str()));
}

/// `dead_letter` moves a message with a reason for people and its type.
pub async fn the_dead_letter_helper_keeps_bytes_and_reason(bus: &dyn Bus, _peer: &dyn Bus) {
    let topology = setup(bus).await;
    let queue = topology.tasks();
    let mut sent = message(topology.to(&queue), "bad");
    sent.body = b"{\"prompt\": \xff".to_vec().into();
    sent.headers = vec![("kept".into(), "yes".into())];
    bus.publish(sent.clone()).await.unwrap();
    let mut consumer = bus.consume(&queue, 1).await.unwrap();
    let got = next(&mut consumer).await;
    let refusal = Refusal::new(Class::NotText, "the body is not UTF-8");
    dead_letter(bus, &topology, &got, Stage::Intake, &refusal)
        .await
        .unwrap();
    until_depth(bus, &queue, Some(0)).await;
    let dead = next(&mut bus.consume(&topology.dead(), 1).await.unwrap()).await;
    assert_eq!(
        (&dead.body, id(&dead), dead.kind),
        (&sent.body, "bad", Some(Kind::Task))
    );
    assert_eq!(dead.header(HEADER_REASON), Some("the body is not UTF-8"));
    assert_eq!(dead.header(HEADER_QUEUE), Some(queue.name.as_str()));
    assert_eq!(dead.header(HEADER_TYPE), Some("task.v1"));
    assert_eq!(dead.header(HEADER_KEY), Some(sent.to.routing_key.as_str()));
    assert_eq!(dead.header(HEADER_CLASS), Some("not_text"));
    assert_eq!(dead.header(HEADER_STAGE), Some("intake"));
    assert_eq!(dead.header(HEADER_ATTEMPTS), Some("1"));
    assert_eq!(dead.header("kept"), Some("yes"));
}
