//! Failures of turns that an agent cannot be asked.

use std::fmt::Display;

use broker::protocol::failure::Failure;

/// The failure of a turn with a prompt that cannot be shown to the agent.
pub fn prompt(agent: &str, role: &str, why: impl Display) -> Failure {
    Failure::request(format_args!("agent {agent} as {role}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_cannot_be_shown_is_a_bad_request() {
        let failure = prompt("a", "reader", "it has an image");
        assert_eq!(failure, Failure::request("agent a as reader: it has an image"));
        assert_eq!(failure.to_string(), "request: agent a as reader: it has an image");
    }
}
