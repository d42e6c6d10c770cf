//! The loss of one token as a plain function of log-probs, with its derivatives in closed form.
//!
//! Nothing here uses tensors except [`head`], which turns the derivatives into gradients of the
//! hidden states and of the output matrix.

mod configured;
pub mod head;
pub mod joint;
mod kl;
pub mod m2po;
mod policy;
mod ratio;
mod returns;
mod sequence;
mod surrogate;
#[cfg(test)]
mod tests;
mod token;
mod token_loss;

pub use configured::{configured, estimate};
pub use kl::{k3, kl_estimate};
pub use policy::{clipped_policy, policy_between, ratio};
pub use ratio::{cispo, decoupled_policy, dro, dual_clipped_policy, importance_sampling, truncated};
pub use returns::{kl_returns, normalise, reinforce_plus_plus};
pub use sequence::{SequenceTerm, gspo};
pub use token::{Term, Token};
pub use token_loss::{share, token_loss};
