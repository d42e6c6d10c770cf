//! Reads a folder's `tokenizer.json` as transformers does. The library alone reads it differently
//! in some places.

use std::path::Path;

use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use super::TextError;
use super::bytes::Alphabet;
use super::folder::Folder;

/// Returns the tokenizer of a folder's `tokenizer.json`, and the alphabet of its pieces.
pub(super) fn tokenizer(folder: &Path) -> Result<(Tokenizer, Alphabet), TextError> {
    let path = folder.join("tokenizer.json");
    let bytes = std::fs::read(&path).map_err(|source| TextError::Read {
        path: path.clone(),
        source,
    })?;
    let unreadable = |message: String| TextError::Format {
        path: path.clone(),
        message,
    };
    // The library panics on some files that are not JSON, so this is checked first.
    let json = serde_json::from_slice::<Value>(&bytes).map_err(|e| unreadable(e.to_string()))?;
    let alphabet = Alphabet::of(&json);
    drop(json);
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|e| unreadable(e.to_string()))?;
    // The file keeps the padding and truncation of the last script that used it. transformers
    // requests both with each text.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| unreadable(e.to_string()))?;
    Ok((tokenizer, alphabet))
}

/// Adds and changes the tokens of `tokenizer_config.json`.
pub(super) fn complete(tokenizer: &mut Tokenizer, folder: &Path, files: &Folder) -> Result<(), TextError> {
    let tokens = changed(tokenizer, files);
    let named: Vec<String> = tokens.iter().map(|token| token.content.clone()).collect();
    let added = tokenizer.add_tokens(tokens);
    added.map_err(|e| TextError::Encode { message: e.to_string() })?;
    // The library numbers new tokens by their order and ignores the ids of the folder.
    let other = files.added.iter().find_map(|(id, token)| {
        let own = tokenizer.token_to_id(&token.content)?;
        (named.contains(&token.content) && own != *id).then_some((id, token, own))
    });
    other.map_or(Ok(()), |(id, token, own)| {
        Err(TextError::Format {
            path: folder.join("tokenizer_config.json"),
            message: format!(
                "added_tokens_decoder gives {:?} the id {id}, and after tokenizer.json it gets {own}: add the tokens to tokenizer.json \
                 (transformers writes them there when it saves a fast tokenizer)",
                token.content
            ),
        })
    })
}

/// Returns the tokens of `added_tokens_decoder` and the named special tokens. A named token is
/// special whatever a list of tokens says.
fn changed(tokenizer: &Tokenizer, files: &Folder) -> Vec<AddedToken> {
    let vocabulary = tokenizer.get_vocab(true);
    let mut free = vocabulary.values().max().map_or(0, |id| id + 1);
    let mut tokens: Vec<AddedToken> = Vec::new();
    for (id, token) in &files.added {
        // The model would not know a token under another id, so it is left out.
        match vocabulary.get(&token.content) {
            Some(own) if own == id => {}
            None if *id == free => free += 1,
            _ => {
                tracing::warn!(token = %token.content, id, "the token is left out: added_tokens_decoder of tokenizer_config.json has an id for it that tokenizer.json does not have");
                continue;
            }
        }
        tokens.push(token.clone());
    }
    let own = tokenizer.get_added_tokens_decoder();
    for text in &files.special {
        // The order numbers new tokens, so the token stays in its place.
        if let Some(known) = tokens.iter_mut().find(|token| token.content == *text) {
            known.special = true;
            continue;
        }
        // A text outside the vocabulary is not a token.
        let Some(id) = vocabulary.get(text) else { continue };
        let mut token = own.get(id).cloned().unwrap_or_else(|| AddedToken::from(text, true));
        token.special = true;
        tokens.push(token);
    }
    // A special token stays special: texts hide it either way.
    for token in &mut tokens {
        let id = vocabulary.get(&token.content);
        token.special |= id.and_then(|id| own.get(id)).is_some_and(|own| own.special);
    }
    tokens
}
