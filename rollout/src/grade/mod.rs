//! Graders: how an answer is compared with its label. Pure functions of text and label.
//!
//! Each kind has a file of its name (`match` is [`matching`]). [`Grader`] picks the kind.
//! [`answer`] finds candidates in texts, [`normal`] gives them one form, [`label`] reads labels.
//! [`doubt`] refuses labels that no answer can earn.

mod answer;
mod choice;
mod doubt;
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
mod verdict;

pub use doubt::Doubt;
pub(crate) use grader::OTHER;
pub use grader::{Grader, KINDS};
pub use own::{Own, OwnGrader};
pub use verdict::Verdict;

pub(crate) use own::install;
