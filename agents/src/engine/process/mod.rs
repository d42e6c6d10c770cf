//! An engine in a separate process: its client, its server, and the server of its weights.

pub mod client;
pub mod crash_loop;
pub mod link;
pub mod model_match;
pub mod server;
pub mod weight_server;
