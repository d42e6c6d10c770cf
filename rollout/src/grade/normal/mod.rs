//! The normal form of mathematics that all kinds share: signs of Unicode, separators of digits,
//! money, units, words of scale and typesetting.
//!
//! [`signs`] spells characters in LaTeX, [`lexer`] makes tokens, [`unit`] drops what is not
//! compared.

mod chinese_numbers;
mod commands;
mod currency;
pub(super) mod greek;
pub(super) mod lexer;
pub(super) mod minus;
pub(super) mod names;
pub(super) mod number_words;
pub(super) mod numeral;
pub(super) mod option;
mod raised;
pub(super) mod scale;
pub(super) mod setting;
mod signs;
pub(super) mod stops;
pub(super) mod token;
pub(super) mod unit;
pub(super) mod unit_names;
pub(super) mod vulgar;
pub(super) mod wide;
pub(super) mod words;
