//! Readers of answers that several graders share.

pub(super) mod boxed;
pub(super) mod minus;
pub(super) mod wide;
