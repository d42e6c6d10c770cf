//! The mark with which some programs begin a file.

/// UTF-8's byte-order mark, with which some programs begin a file. It does not belong to the file's
/// first line.
pub const MARK: &str = "\u{feff}";
