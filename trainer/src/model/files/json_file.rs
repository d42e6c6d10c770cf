//! JSON files of a model's folder. An error names the field, the line and the column.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::atomic_write::io;
use super::regular_file::{POINTER, pointer, require};
use crate::model::error::{ModelError, Result};

/// Reads a whole file.
///
/// # Errors
/// [`ModelError::Io`]; [`ModelError::Format`] when it is no file, or a pointer of Git LFS.
pub(super) fn read_text(path: &Path) -> Result<String> {
    require(path)?;
    let text = fs::read_to_string(path).map_err(io("reading", path))?;
    if text.starts_with(POINTER) {
        return Err(pointer(path));
    }
    Ok(text)
}

/// Reads and parses a file.
///
/// # Errors
/// [`ModelError::Io`]; [`ModelError::Format`] with the fault and its place.
pub(in crate::model) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    parse(&read_text(path)?).map_err(|reason| ModelError::Format {
        path: path.to_owned(),
        reason,
    })
}

/// Parses a text, or returns the fault and its place.
pub(in crate::model) fn parse<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let why = error.into_inner();
        let fix = if why.is_eof() {
            "; the file is cut off: fetch it again"
        } else {
            ""
        };
        // The root has no name, and a key that ends too early is an unknown one. The fault there is
        // the text as a whole, for example a truncated one.
        match field.trim_end_matches(['.', '?']) {
            "" => format!("{why}{fix}"),
            field => format!("{field}: {why}{fix}"),
        }
    })?;
    json.end().map_err(|error| error.to_string())?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let read = parse::<BTreeMap<String, Vec<u32>>>;
        assert_eq!(read(r#"{"a": [1]}"#).unwrap()["a"], [1]);
        for (text, says) in [
            (r#"{"a": [1, "x"]}"#, "a[1]: invalid type: string \"x\""),
            (r#"{"a": 1.5}"#, "a: invalid type"),
            (r#"{"a": [1]"#, "EOF while parsing"),
            (r#"{"a": [1]} b"#, "trailing characters"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
    }
}
