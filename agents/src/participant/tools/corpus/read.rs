//! Reads a folder of documents: `.txt`, `.md` and `.jsonl`, in the order of their paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rollout::tasks::MARK;
use serde_json::Value;

/// The largest corpus, in bytes: it is held in memory, with its index.
const MOST: usize = 1 << 30;
/// The longest title, in characters.
const TITLE: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) text: String,
}

/// Reads every document below `folder`. An error names the file and the line.
pub(super) fn folder(folder: &Path) -> Result<Vec<Document>, String> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    files.sort();
    let (mut documents, mut ids, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        bytes += text.len();
        if bytes > MOST {
            return Err(format!(
                "{} has more than 1 GiB of documents: use your own server",
                folder.display()
            ));
        }
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let text = text.strip_prefix(MARK).map(str::to_owned).unwrap_or(text);
        for document in file(&name, text)? {
            if !ids.insert(document.id.clone()) {
                return Err(format!("{name} has a second document with the id {:?}", document.id));
            }
            documents.push(document);
        }
    }
    if documents.is_empty() {
        return Err(format!(
            "{} has no documents: .txt, .md or .jsonl files",
            folder.display()
        ));
    }
    Ok(documents)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let unread = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let (kind, path) = (entry.file_type().map_err(unread)?, entry.path());
        // Links are skipped: a link may lead anywhere, even back.
        if kind.is_dir() {
            list(&path, files)?;
        } else if kind.is_file() && matches!(ending(&path), "txt" | "md" | "jsonl") {
            files.push(path);
        }
    }
    Ok(())
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn file(name: &str, text: String) -> Result<Vec<Document>, String> {
    if ending(Path::new(name)) != "jsonl" {
        let title = first_line(&text);
        let id = name.to_owned();
        return Ok(vec![Document { id, title, text }]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let document = |(at, line): (usize, &str)| {
        let place = format!("{name}:{}", at + 1);
        of_line(&place, line).map_err(|why| format!("{place}: {why}"))
    };
    lines.map(document).collect()
}

/// Reads a line with `text` (or `contents`), and optional `id` and `title`.
fn of_line(place: &str, line: &str) -> Result<Document, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}"))?;
    let field = |name: &str| match value.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let text = field("text").or_else(|| field("contents"));
    let text = text.ok_or("has no text under \"text\"")?;
    Ok(Document {
        id: field("id").unwrap_or_else(|| place.to_owned()),
        title: field("title").unwrap_or_else(|| first_line(&text)),
        text,
    })
}

/// The first line with text, without a heading's signs.
fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(TITLE).collect()
}
