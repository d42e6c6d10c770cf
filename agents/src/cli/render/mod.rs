//! Text of the commands: tables, conversations, dead letters.

pub mod dead_letters;
pub mod earned;
pub mod sequential;
pub mod table;
