//! Limits a turn to its context (`sampling.max_context`).
//!
//! The engine enforces the model's own context. A cap below it is applied here, before any engine
//! receives the prompt, so that it holds for every kind of engine that takes tokens.

use std::sync::Arc;

use broker::protocol::failure::Failure;
use broker::protocol::turn::Sampling;

/// Returns the sampling for an answer to a prompt of `prompt` tokens. `max_new_tokens` is lowered
/// to the room the prompt leaves; an answer that reaches it finishes by `length`.
///
/// # Errors
/// A failure with the code [`Context`](broker::protocol::failure::FailureCode::Context) if the
/// prompt leaves no room for one token.
pub(crate) fn within(prompt: usize, sampling: &Sampling) -> Result<Arc<Sampling>, Failure> {
    let mut sampling = sampling.clone();
    if let Some(cap) = sampling.max_context {
        let left = cap.saturating_sub(u32::try_from(prompt).unwrap_or(u32::MAX));
        if left == 0 {
            return Err(Failure::context(format_args!(
                "the prompt has {prompt} tokens and sampling.max_context is {cap}, which must hold one new token too: raise it, \
                 or shorten the prompt, its answers or the conversation"
            )));
        }
        sampling.max_new_tokens = sampling.max_new_tokens.min(left);
    }
    Ok(Arc::new(sampling))
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::FailureCode;

    use super::*;

    fn sampling(max_context: Option<u32>) -> Sampling {
        Sampling {
            max_context,
            ..crate::testing::sampling(8)
        }
    }

    #[test]
    fn an_answer_has_the_room_its_prompt_leaves() {
        let new = |prompt, cap| within(prompt, &sampling(cap)).map(|sampling| sampling.max_new_tokens);
        assert_eq!(new(1 << 40, None), Ok(8));
        for (prompt, left) in [(0, 8), (12, 8), (13, 7), (19, 1)] {
            assert_eq!(new(prompt, Some(20)), Ok(left), "{prompt}");
        }
        for prompt in [20, 21, usize::MAX] {
            let failure = new(prompt, Some(20)).unwrap_err();
            assert_eq!(failure.code, FailureCode::Context, "{failure}");
        }
    }
}
