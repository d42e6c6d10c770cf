//! A folder of documents, searched in memory.
//!
//! Documents are ranked by BM25 over words, and a word in a title counts twice. Equal scores keep
//! the order of the documents, which is that of their paths. The index is one segment written by
//! one thread: the same folder gives the same answers everywhere.

mod read;

use std::path::Path;

use rollout::workflow::tools::corpus::{Search, Visit};
use serde_json::Value;
use tantivy::collector::TopDocs;
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, Schema, TEXT};
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{Index, IndexReader, ReloadPolicy, TantivyDocument, TantivyError, Term};

use read::Document;

/// The number of query words that are searched for.
const WORDS: usize = 64;
/// The weight of a word in a title.
const TITLE: f32 = 2.0;
/// The number of words that a search shows of a document, and the bytes in which it looks for them.
const SHOWN: usize = 40;
const LOOKED_AT: usize = 256 << 10;
/// The largest page, in bytes.
const PAGE: usize = 4 << 10;
/// The largest number of documents in a search result.
const MOST: usize = 20;
/// Bytes that are reserved for a page's heading.
const HEADING: usize = 300;
/// The writer's memory while the index is built, in bytes.
const WRITER: usize = 64 << 20;

pub(super) struct Corpus {
    documents: Vec<Document>,
    reader: IndexReader,
    analyzer: TextAnalyzer,
    title: Field,
    text: Field,
}

impl Corpus {
    /// Reads the folder and builds its index. The error describes what is wrong with the folder.
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let documents = read::folder(folder)?;
        let wrong = |error: TantivyError| format!("the index of {} cannot be made: {error}", folder.display());
        Self::index(documents).map_err(wrong)
    }

    fn index(documents: Vec<Document>) -> Result<Self, TantivyError> {
        let mut schema = Schema::builder();
        let (title, text) = (
            schema.add_text_field("title", TEXT),
            schema.add_text_field("text", TEXT),
        );
        let builder = Index::builder().schema(schema.build());
        let mut writer = builder.single_segment_index_writer(RamDirectory::create(), WRITER)?;
        for document in &documents {
            let mut entry = TantivyDocument::default();
            entry.add_text(title, &document.title);
            entry.add_text(text, &document.text);
            writer.add_document(entry)?;
        }
        let index = writer.finalize()?;
        Ok(Self {
            documents,
            analyzer: index.tokenizer_for_field(text)?,
            // The index never changes.
            reader: index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?,
            title,
            text,
        })
    }

    /// Answers a call of `search` or `visit`. An error is for the agent to read.
    pub(super) fn answer(&self, tool: &str, arguments: &Value, longest: usize) -> Result<String, String> {
        let unread = |error: serde_json::Error| format!("the arguments cannot be read: {error}");
        match tool {
            "search" => self.search(&serde_json::from_value(arguments.clone()).map_err(unread)?),
            "visit" => self.visit(&serde_json::from_value(arguments.clone()).map_err(unread)?, longest),
            other => Err(format!("a corpus has no {other}")),
        }
    }

    fn search(&self, asked: &Search) -> Result<String, String> {
        let words = self.words(&asked.query);
        let found = self.ranked(&words, asked.top.clamp(1, MOST));
        let found = found.map_err(|error| format!("the search failed: {error}"))?;
        if found.is_empty() {
            return Ok("nothing was found".into());
        }
        let shown = found.iter().enumerate().map(|(at, document)| {
            let Document { id, title, text } = document;
            format!("{}. [{id}] {title}\n{}", at + 1, self.passage(text, &words))
        });
        Ok(shown.collect::<Vec<_>>().join("\n"))
    }

    fn ranked(&self, words: &[String], top: usize) -> Result<Vec<&Document>, TantivyError> {
        let clause = |field: Field, word: &String, weight: f32| -> (Occur, Box<dyn Query>) {
            let term = Term::from_field_text(field, word);
            let query = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
            (Occur::Should, Box::new(BoostQuery::new(query, weight)))
        };
        let clauses = words
            .iter()
            .flat_map(|word| [clause(self.title, word, TITLE), clause(self.text, word, 1.0)]);
        let query = BooleanQuery::new(clauses.collect());
        let mut found = self
            .reader
            .searcher()
            .search(&query, &TopDocs::with_limit(top).order_by_score())?;
        found.sort_by(|(a, at), (b, other)| b.total_cmp(a).then(at.doc_id.cmp(&other.doc_id)));
        // There is one segment, written in order: a document number is an index here.
        let document = |(_, at): (f32, tantivy::DocAddress)| self.documents.get(at.doc_id as usize);
        Ok(found.into_iter().filter_map(document).collect())
    }

    /// The words of a query in the index's form, each once.
    fn words(&self, query: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut analyzer = self.analyzer.clone();
        let mut stream = analyzer.token_stream(query);
        while words.len() < WORDS && stream.advance() {
            let word = &stream.token().text;
            if !words.contains(word) {
                words.push(word.clone());
            }
        }
        words
    }

    /// The part of a text with the most of the words; the first of equal ones.
    fn passage(&self, text: &str, words: &[String]) -> String {
        let looked_at = &text[..floor(text, LOOKED_AT)];
        let mut tokens: Vec<(usize, usize, bool)> = Vec::new();
        let mut analyzer = self.analyzer.clone();
        analyzer.token_stream(looked_at).process(&mut |token| {
            tokens.push((token.offset_from, token.offset_to, words.contains(&token.text)));
        });
        let Some(last) = tokens.len().checked_sub(1) else {
            return String::new();
        };
        let hits = |from: usize| tokens[from..].iter().take(SHOWN).filter(|(_, _, hit)| *hit).count();
        // A passage begins at the start of the text, or a little before a hit.
        let before = |at: usize| at.saturating_sub(SHOWN / 4);
        let starts = tokens
            .iter()
            .enumerate()
            .filter(|(_, (_, _, hit))| *hit)
            .map(|(at, _)| before(at));
        let start = starts.fold((0, hits(0)), |best, from| match hits(from) {
            more if more > best.1 => (from, more),
            _ => best,
        });
        let end = last.min(start.0 + SHOWN - 1);
        let passage = &text[tokens[start.0].0..tokens[end].1];
        passage.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn visit(&self, asked: &Visit, longest: usize) -> Result<String, String> {
        let named = |document: &&Document| document.id == asked.id.trim();
        let Some(Document { title, text, .. }) = self.documents.iter().find(named) else {
            let id: String = asked.id.chars().take(100).collect();
            return Err(format!("there is no document {id:?}; search names them"));
        };
        let pages = pages(text, PAGE.min(longest.saturating_sub(HEADING).max(64)));
        let Some(page) = asked.page.checked_sub(1).and_then(|at| pages.get(at)) else {
            return Err(format!(
                "{} has {} pages; there is no page {}",
                asked.id,
                pages.len(),
                asked.page
            ));
        };
        let title: String = title.chars().take(60).collect();
        Ok(if pages.len() == 1 {
            format!("{title}\n{page}")
        } else {
            format!("{title} (page {} of {})\n{page}", asked.page, pages.len())
        })
    }
}

/// Splits a text into pieces of at most `most` bytes, at white space where possible.
fn pages(text: &str, most: usize) -> Vec<&str> {
    let (mut pages, mut rest) = (Vec::new(), text.trim());
    while rest.len() > most {
        let room = floor(rest, most).max(rest.chars().next().map_or(0, char::len_utf8));
        let end = rest[..room]
            .rfind(char::is_whitespace)
            .filter(|at| *at > most / 2)
            .unwrap_or(room);
        pages.push(rest[..end].trim_end());
        rest = rest[end..].trim_start();
    }
    pages.push(rest);
    pages
}

/// The last character boundary at or before `most`.
fn floor(text: &str, most: usize) -> usize {
    let mut at = text.len().min(most);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests;
