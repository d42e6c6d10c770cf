//! A trained token and its loss.

/// A trained token's log-probs and advantage. Log-probs are natural logarithms under the token's
/// own temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// The log-prob under the trained weights.
    pub logprob: f64,
    /// The log-prob under the weights at the start of the batch.
    pub old: f64,
    /// The log-prob under the weights that sampled the token.
    pub behaviour: f64,
    /// The log-prob under the reference policy; unused without a KL term.
    pub reference: f64,
    pub advantage: f64,
    /// The entropy in nats of the distribution the token was drawn from, under the trained weights.
    pub entropy: f64,
}

/// The loss of one token before its weight, and its derivatives.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    pub value: f64,
    /// d value / d logprob, with constant entropy.
    pub d_logprob: f64,
    /// d value / d entropy, with constant logprob.
    pub d_entropy: f64,
    /// True if the ratio was clipped. The gradient is then 0, except under CISPO.
    pub clipped: bool,
    /// The estimate of the KL to the reference, before its coefficient.
    pub reference_kl: f64,
}
