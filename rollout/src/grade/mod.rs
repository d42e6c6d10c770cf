//! Graders: how an answer is compared with its label. Pure functions of text and label.
//!
//! Each kind has a file of its name (`match` is [`matching`]). [`Grader`] picks the kind,
//! [`answer`] reads answers out of texts, and [`label`] reads labels.

mod answer;
mod choice;
mod exact;
mod f1;
mod format;
mod grader;
mod gsm8k;
mod integer;
mod label;
mod matching;
mod math;
mod normal;
mod own;
#[cfg(test)]
mod tests;

pub use grader::{Grader, KINDS};
pub use own::{Own, OwnGrader};

pub(crate) use own::install;
