//! Output of the commands as text: tables, conversations, dead letters.

pub mod compare;
pub mod conversation;
pub mod dead_letters;
pub mod earned;
pub mod eval;
pub mod recipes;
pub mod sequential;
pub mod status;
pub mod table;
