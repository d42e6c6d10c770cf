//! The readers behind the JSON API, one for each kind of answer.

pub(super) mod compare;
pub(super) mod conversations;
pub(super) mod custody;
pub(super) mod evaluations;
pub(super) mod facts;
pub(super) mod letters;
pub(super) mod logs;
pub(super) mod runs;
pub(super) mod series;
pub(super) mod tasks;
