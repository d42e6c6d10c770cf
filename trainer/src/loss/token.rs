//! A trained token and its loss.

/// What is known of one trained token. Log-probs are natural logarithms under the token's own temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Under the weights that are trained.
    pub logprob: f64,
    /// Under the weights at the start of the batch.
    pub old: f64,
    /// Under the weights that sampled it.
    pub behaviour: f64,
    /// Under the reference policy; unused where no KL term is asked for.
    pub reference: f64,
    pub advantage: f64,
    /// Of the distribution the token was drawn from, under the weights that are trained; nats.
    pub entropy: f64,
}

/// The loss of one token, before its weight, and what it moves with.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    pub value: f64,
    /// d value / d logprob, entropy held.
    pub d_logprob: f64,
    /// d value / d entropy, logprob held.
    pub d_entropy: f64,
    /// Whether the ratio was clipped: but under CISPO, the gradient is gone then.
    pub clipped: bool,
    /// The estimate of the KL to the reference, before its coefficient.
    pub reference_kl: f64,
}
