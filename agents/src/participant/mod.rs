//! The user's own programs in conversations: graders and workflows in any language.
//!
//! A program reads a question as one line of JSON on its standard input. It writes one line on its
//! standard output, with the `id` of the question. A remote program gets the same over RabbitMQ
//! ([`RemoteConnection`]). [`Host`] keeps the programs of a run alive. A program that dies, hangs,
//! or writes too much or no JSON is ended and started again, with a pause that doubles. A question
//! without an answer is a failure of the machinery: it is asked again, and when the tries are used
//! up the conversation has no reward. It never becomes a 0. A program that fails and never
//! answers stops the run ([`Host::take_broken`]).

mod answer;
mod health;
mod host;
mod judge;
mod programs;
mod remote;
mod tools;
mod worker;

#[cfg(test)]
pub(crate) use answer::with_id;
pub use host::{Host, PROGRAM, ProgramReply, TOOL};
pub use judge::check_judges;
pub use programs::{check_programs, programs};
pub use remote::{RemoteConnection, unreachable};
pub use tools::{ToolAnswer, check_corpora, check_servers};

#[cfg(test)]
mod tests;
