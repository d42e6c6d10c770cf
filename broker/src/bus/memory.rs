//! The bus in memory.
