//! A file that is to be written: a text, or tensors in the safetensors format.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Kind;

use super::atomic_write::write_atomically;
use crate::model::error::Result;
use crate::model::param_source::ParamSource;
use crate::model::shape::ParamSpec;

/// A file of a folder. Its tensors are read one at a time while it is written.
pub(crate) struct NewFile<'a> {
    pub(crate) name: String,
    content: Content<'a>,
}

enum Content<'a> {
    Text(String),
    Tensors(Kind, Vec<Tensors<'a>>),
}

/// Parameters of a source. In the file their names begin with `prefix`.
pub(crate) struct Tensors<'a> {
    pub(crate) source: &'a dyn ParamSource,
    pub(crate) params: &'a [ParamSpec],
    pub(crate) prefix: &'static str,
}

impl<'a> Tensors<'a> {
    /// All parameters of `source`.
    pub(crate) fn all(source: &'a dyn ParamSource, prefix: &'static str) -> Self {
        Self {
            source,
            params: source.layout().params(),
            prefix,
        }
    }
}

impl<'a> NewFile<'a> {
    pub(crate) fn text(name: &str, text: String) -> Self {
        Self {
            name: name.to_owned(),
            content: Content::Text(text),
        }
    }

    /// A file of these tensors, in this order, as `kind`.
    pub(crate) fn tensors(name: &str, kind: Kind, tensors: Vec<Tensors<'a>>) -> Self {
        Self {
            name: name.to_owned(),
            content: Content::Tensors(kind, tensors),
        }
    }

    /// Writes the content to `out`.
    ///
    /// # Errors
    /// The errors of `out`, and those of the tensors' source.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.content {
            Content::Text(text) => out.write_all(text.as_bytes()),
            Content::Tensors(kind, tensors) => write_tensors(out, *kind, tensors),
        }
    }

    /// Writes the file into `folder`, so that a crash leaves the old or the new content.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Io`], and those of the tensors' source.
    pub(crate) fn put(&self, folder: &Path) -> Result<()> {
        write_atomically(&folder.join(&self.name), |file| self.write(file))
    }
}

/// Writes the length of the header, the header and the data.
fn write_tensors(out: &mut dyn Write, kind: Kind, tensors: &[Tensors<'_>]) -> io::Result<()> {
    let dtype = match kind {
        Kind::BFloat16 => "BF16",
        Kind::Half => "F16",
        _ => "F32",
    };
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for group in tensors {
        for spec in group.params {
            let start = end;
            end += spec.numel * kind.elt_size_in_bytes();
            header.insert(
                format!("{}{}", group.prefix, spec.name),
                json!({"dtype": dtype, "shape": spec.shape, "data_offsets": [start, end]}),
            );
        }
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for group in tensors {
        for spec in group.params {
            let bytes = group.source.bytes_as(spec, kind).map_err(io::Error::other)?;
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}
