//! The acts that each user of `dyad topology export` may perform, and those that the servers
//! refuse; all are tried on real servers.

mod of_an_agent;
mod of_participants;
mod of_people;
mod of_the_store;

use std::time::Duration;

use broker::AgentName;
use broker::topology::Queue;
use lapin::options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel};
use tests::secured::Secured;

use crate::login::{Login, publish};
use crate::program;

const PATIENCE: Duration = Duration::from_secs(60);
const REFUSED: &str = "ACCESS_REFUSED";

/// One test, because a start of the servers takes longer than all acts on them.
#[test]
fn every_user_can_perform_its_own_acts_and_no_others() {
    let program = program();
    let servers = Secured::start(&program);
    of_an_agent::only_its_own_queues(&servers);
    of_participants::only_its_questions(&servers);
    of_people::only_their_own_acts(&servers);
    of_people::an_order_forged_as_a_dead_letter_is_rejected(&servers);
    of_the_store::only_coordinators_and_only_their_own_run(&servers);
}

fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

async fn consume(channel: Channel, queue: &str) -> lapin::Result<()> {
    let (tag, options) = ("".into(), BasicConsumeOptions::default());
    let consuming = channel.basic_consume(queue.into(), tag, options, FieldTable::default());
    consuming.await.map(drop)
}

async fn bind(channel: Channel, queue: &str, exchange: &str, key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel
        .queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            options,
            FieldTable::default(),
        )
        .await
}

/// Declares a listener's own queue, as every process does to receive the others' heartbeats.
async fn own_queue(channel: &Channel, name: &str) -> lapin::Result<()> {
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(name.into(), options, FieldTable::default());
    declared.await.map(drop)
}

fn refused_publish(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.refused(deed, REFUSED, exchange, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn refused_key(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.refused(deed, REFUSED, key, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn allowed_publish(login: &Login, deed: &str, exchange: &str, key: &str) {
    login.allowed(deed, async |channel| {
        publish(channel, exchange, key, BasicProperties::default()).await
    });
}

fn refused_consume(login: &Login, deed: &str, queue: &Queue) {
    login.refused(deed, REFUSED, &queue.name, async |channel| {
        consume(channel, &queue.name).await
    });
}
