//! The exponential moving average of the trained weights: `e <- d e + (1 - d) w` after each
//! optimizer step (Polyak and Juditsky, 1992; the update of PyTorch's
//! `torch.optim.swa_utils.get_ema_multi_avg_fn`).
//!
//! It begins as version 0. A skipped step leaves it unchanged. For an adapter, A and B are averaged
//! separately. [`super::owned`] holds it.

/// Options of the average that is kept with the trained weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmaOptions {
    /// The decay d, from 0 (the weights themselves) to below 1.
    pub decay: f64,
    /// If true, the KL term uses the average as its reference instead of version 0.
    pub is_reference: bool,
}
