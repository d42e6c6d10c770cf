//! A folder's `tokenizer.json` as transformers uses it, which is not quite as the library reads it.

use std::path::Path;

use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use super::TextError;
use super::bytes::Alphabet;
use super::folder::Folder;

/// The tokenizer of a folder's `tokenizer.json`, and how its pieces spell bytes.
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
    // What is no JSON at all, the library answers with a panic in places.
    let json = serde_json::from_slice::<Value>(&bytes).map_err(|e| unreadable(e.to_string()))?;
    let alphabet = Alphabet::of(&json);
    drop(json);
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|e| unreadable(e.to_string()))?;
    // The file keeps what a script cut and filled its last texts to; transformers asks for both anew with each text.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| unreadable(e.to_string()))?;
    Ok((tokenizer, alphabet))
}

/// Adds and changes the tokens that `tokenizer_config.json` has otherwise.
pub(super) fn complete(tokenizer: &mut Tokenizer, folder: &Path, files: &Folder) -> Result<(), TextError> {
    let tokens = changed(tokenizer, files);
    let named: Vec<String> = tokens.iter().map(|token| token.content.clone()).collect();
    let added = tokenizer.add_tokens(tokens);
    added.map_err(|e| TextError::Encode { message: e.to_string() })?;
    // The library numbers new tokens by their order, and not by the folder's word.
    let other = files.added.iter().find_map(|(id, token)| {
        let own = tokenizer.token_to_id(&token.content)?;
        (named.contains(&token.content) && own != *id).then_some((id, token, own))
    });
    other.map_or(Ok(()), |(id, token, own)| {
        Err(TextError::Format {
            path: folder.join("tokenizer_config.json"),
            message: format!(
                "added_tokens_decoder gives {:?} the id {id}, and behind tokenizer.json it has {own}: add the tokens to tokenizer.json \
                 (transformers writes them there when it saves a fast tokenizer)",
                token.content
            ),
        })
    })
}

/// Those of `added_tokens_decoder`, and what is named as special, which is so whatever a list of tokens
/// says.
fn changed(tokenizer: &Tokenizer, files: &Folder) -> Vec<AddedToken> {
    let vocabulary = tokenizer.get_vocab(true);
    let mut free = vocabulary.values().max().map_or(0, |id| id + 1);
    let mut tokens: Vec<AddedToken> = Vec::new();
    for (id, token) in &files.added {
        // One that has another id here would be one that the model does not know by it.
        match vocabulary.get(&token.content) {
            Some(own) if own == id => {}
            None if *id == free => free += 1,
            _ => {
                tracing::warn!(token = %token.content, id, "added_tokens_decoder of tokenizer_config.json has it, and tokenizer.json has no such id");
                continue;
            }
        }
        tokens.push(token.clone());
    }
    let own = tokenizer.get_added_tokens_decoder();
    for text in &files.special {
        // In its place, which new tokens are numbered by.
        if let Some(known) = tokens.iter_mut().find(|token| token.content == *text) {
            known.special = true;
            continue;
        }
        // One that is not the tokenizer's is nobody's.
        let Some(id) = vocabulary.get(text) else { continue };
        let mut token = own.get(id).cloned().unwrap_or_else(|| AddedToken::from(text, true));
        token.special = true;
        tokens.push(token);
    }
    // What was special stays so: it is kept from texts either way.
    for token in &mut tokens {
        let id = vocabulary.get(&token.content);
        token.special |= id.and_then(|id| own.get(id)).is_some_and(|own| own.special);
    }
    tokens
}
