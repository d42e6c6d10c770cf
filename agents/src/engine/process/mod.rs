//! An engine in a process of its own: its client, its server, and the shelf from which it fetches weights.

pub mod client;
pub mod link;
pub mod crash_loop;
pub mod model_match;
pub mod server;
pub mod weight_server;
