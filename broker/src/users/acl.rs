//! Redis users as an ACL file.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::User;
use crate::ids::RunId;

/// The commands that the store's scripts and its connection use. None of them lists keys, and only
/// `INFO` is a dangerous one: `dyad` reads from it whether the data is safe.
const COMMANDS: [&str; 17] = [
    "ping",
    "hello",
    "select",
    "info",
    "evalsha",
    "script|load",
    "exists",
    "del",
    "hget",
    "hgetall",
    "hmget",
    "hset",
    "hdel",
    "hincrby",
    "pttl",
    "pexpire",
    "persist",
];

/// Returns the ACL file of one run: the users that use Redis, each restricted to the run's keys.
/// The default user is off.
#[must_use]
pub fn acl(run: &RunId, users: &[User]) -> String {
    let mut text = String::from("user default off\n");
    let commands = COMMANDS.map(|command| format!("+{command}")).join(" ");
    for user in users.iter().filter(|user| user.who.uses_the_store()) {
        let hash: String = Sha256::digest(&user.password)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let keys = crate::store::keys_of(run);
        let _ = writeln!(
            text,
            "user {} on #{hash} ~{keys}* resetchannels -@all {commands}",
            user.name
        );
    }
    text
}
