//! Programs of the user's own that take part in conversations: graders and workflows in any language.
//!
//! A program is asked one line of JSON on its standard input and answers one on its standard output, with the `id` of the
//! question. One that runs elsewhere gets the same over RabbitMQ ([`Line`]). [`Host`] keeps the programs of a run going: one that dies, hangs, floods or babbles is ended and started again,
//! with a pause that doubles. What could not be answered is a failure of the machinery: it is asked again, and when the tries
//! are spent the conversation has no reward. It never becomes a 0.

mod answer;
mod host;
mod judge;
mod remote;
mod tools;
mod worker;

#[cfg(test)]
pub(crate) use answer::with_id;
pub use host::{Host, PROGRAM, Reply, TOOL};
pub use judge::check_judges;
pub use remote::{Line, unreachable};
pub use tools::{ToolAnswer, check_corpora, check_servers};

#[cfg(test)]
mod tests;
