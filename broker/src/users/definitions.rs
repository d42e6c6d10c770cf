//! RabbitMQ users, permissions and the run's durable topology as definitions, for
//! `load_definitions` or `rabbitmqctl import_definitions`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{PasswordError, User};
use crate::local::process::random_bytes;
use crate::topology::{Argument, Exchange, ExchangeKind, Principal, Queue, Topology};
use configs::AgentName;

/// Returns the definitions of one run in `vhost`: its users with their permissions, its exchanges,
/// queues and bindings. Repeating an import changes nothing. Other runs of the vhost are not
/// affected.
///
/// # Errors
/// The system has no random numbers for the salts.
pub fn definitions(
    topology: &Topology,
    agents: &[AgentName],
    vhost: &str,
    users: &[User],
) -> Result<Value, PasswordError> {
    let mut queues = topology.durable_queues(agents);
    queues.extend(users.iter().filter_map(|user| match &user.who {
        Principal::Participant(name) => Some(topology.questions(name)),
        _ => None,
    }));
    let mut exchanges = topology.other_exchanges();
    for queue in &queues {
        exchanges.push(queue.exchange.clone());
    }
    let accounts: Vec<Value> = users.iter().map(account).collect::<Result<_, _>>()?;
    Ok(json!({
        "users": accounts,
        "vhosts": [{ "name": vhost }],
        "permissions": users.iter().map(|user| permissions(topology, vhost, user)).collect::<Vec<_>>(),
        "topic_permissions": users.iter().flat_map(|user| topics(topology, vhost, user)).collect::<Vec<_>>(),
        "exchanges": exchanges.iter().map(|one| exchange(vhost, one)).collect::<Vec<_>>(),
        "queues": queues.iter().map(|one| queue(vhost, one)).collect::<Vec<_>>(),
        "bindings": queues.iter().map(|one| binding(vhost, one)).collect::<Vec<_>>(),
    }))
}

fn account(user: &User) -> Result<Value, PasswordError> {
    Ok(json!({
        "name": user.name,
        "password_hash": hash(random_bytes()?, &user.password),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        // No access to the management console.
        "tags": [],
    }))
}

/// Returns the salt, then the SHA-256 of the salt and the password.
fn hash(salt: [u8; 4], password: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(password).finalize();
    STANDARD.encode([&salt[..], &digest[..]].concat())
}

fn permissions(topology: &Topology, vhost: &str, user: &User) -> Value {
    let access = topology.access(&user.who);
    json!({
        "user": user.name,
        "vhost": vhost,
        "configure": access.configure,
        "write": access.write,
        "read": access.read,
    })
}

fn topics(topology: &Topology, vhost: &str, user: &User) -> Vec<Value> {
    let one = |topic: crate::topology::TopicAccess| {
        json!({
            "user": user.name,
            "vhost": vhost,
            "exchange": topic.exchange,
            "write": topic.write,
            "read": topic.read,
        })
    };
    topology.access(&user.who).topics.into_iter().map(one).collect()
}

fn exchange(vhost: &str, exchange: &Exchange) -> Value {
    let kind = match exchange.kind {
        ExchangeKind::Direct => "direct",
        ExchangeKind::Topic => "topic",
        ExchangeKind::Fanout => "fanout",
    };
    json!({
        "name": exchange.name,
        "vhost": vhost,
        "type": kind,
        "durable": true,
        "auto_delete": false,
        "internal": false,
        "arguments": {},
    })
}

fn queue(vhost: &str, queue: &Queue) -> Value {
    let arguments: serde_json::Map<String, Value> = queue
        .arguments()
        .into_iter()
        .map(|(key, value)| {
            let value = match value {
                Argument::Text(text) => json!(text),
                Argument::Number(number) => json!(number),
                Argument::Flag(flag) => json!(flag),
            };
            (key.to_owned(), value)
        })
        .collect();
    json!({
        "name": queue.name,
        "vhost": vhost,
        "durable": true,
        "auto_delete": false,
        "arguments": arguments,
    })
}

fn binding(vhost: &str, queue: &Queue) -> Value {
    json!({
        "source": queue.exchange.name,
        "vhost": vhost,
        "destination": queue.name,
        "destination_type": "queue",
        "routing_key": queue.routing_key,
        "arguments": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RabbitMQ's guide on password hashes.
    #[test]
    fn passwords_are_hashed_as_rabbitmq_hashes_them() {
        let salt = [0x90, 0x8D, 0xC6, 0x0A];
        assert_eq!(hash(salt, "test12"), "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR");
    }
}
