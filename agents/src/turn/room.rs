//! What a prompt leaves of a turn's context (`sampling.max_context`).
//!
//! The model's own context is its engine's business; a cap below it is kept here, before any engine sees the prompt, so that
//! it holds for engines of every kind that is given tokens.

use std::sync::Arc;

use broker::protocol::failure::Failure;
use broker::protocol::turn::Sampling;

/// The sampling of an answer to a prompt of so many tokens, its `max_new_tokens` lowered to what the prompt leaves: an answer
/// that reaches it has finished by `length`.
///
/// # Errors
/// A failure of the code [`Context`](broker::protocol::failure::FailureCode::Context) if there is no room for one token.
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
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: 8,
            max_context,
            stop: Vec::new(),
        }
    }

    #[test]
    fn an_answer_has_what_its_prompt_leaves() {
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
