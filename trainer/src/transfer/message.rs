//! Weights as messages, and messages as weights.

use std::borrow::Cow;

use super::header::{Header, LENGTH};
use super::{Form, Held, State, TransferError, body};

/// zstd's fastest: what is left to gain is in the coding before it.
const LEVEL: i32 = 1;

/// Messages that are sent together at most.
pub(super) const MESSAGES: usize = 8;

/// Bytes that messages to weights of this form have together at most: a receiver reads no more.
#[must_use]
pub fn largest(form: &Form) -> usize {
    (MESSAGES * LENGTH).saturating_add(form.bytes())
}

/// The whole state as a message.
#[must_use]
pub fn full(state: &State) -> Vec<u8> {
    let planes = body::planes(state.form(), state.bytes());
    // Where zstd saves less than a tenth it costs more time than it saves.
    let packed = pack(&planes).filter(|packed| packed.len() <= planes.len() - planes.len() / 10);
    let header = Header {
        base: None,
        version: state.version(),
        form: *state.form(),
        changed: 0,
        packed: packed.is_some(),
        plain: state.bytes().len() as u64,
        body: 0,
        digest: *state.digest().as_bytes(),
    };
    message(header, packed.as_deref().unwrap_or(state.bytes()))
}

/// What has changed from one state to another as a message; `None` where the whole is no longer than that, or they are of different
/// forms.
#[must_use]
pub fn delta(base: &State, new: &State) -> Option<Vec<u8>> {
    if base.form() != new.form() {
        return None;
    }
    let (changed, plain) = body::difference(new.form(), base.bytes(), new.bytes())?;
    let packed = pack(&plain).filter(|packed| packed.len() < plain.len());
    let header = Header {
        base: Some(base.version()),
        version: new.version(),
        form: *new.form(),
        changed,
        packed: packed.is_some(),
        plain: plain.len() as u64,
        body: 0,
        digest: *new.digest().as_bytes(),
    };
    Some(message(header, packed.as_deref().unwrap_or(&plain)))
}

/// The state that one or several messages lead to, one after the other, from what is held. `held` itself is not changed.
///
/// Allocates what `form` takes, whatever the messages say.
///
/// # Errors
/// [`TransferError`]: nothing of it is to be used.
pub fn apply(form: &Form, held: Option<&State>, mut messages: &[u8]) -> Result<State, TransferError> {
    let mut reached = None;
    while reached.is_none() || !messages.is_empty() {
        let (header, body, rest) = Header::split(messages)?;
        reached = Some(one(form, reached.as_ref().or(held), &header, body)?);
        messages = rest;
    }
    reached.ok_or(TransferError::Short { found: 0 })
}

fn one(form: &Form, held: Option<&State>, header: &Header, body: &[u8]) -> Result<State, TransferError> {
    let version = header.version;
    if header.form != *form {
        return Err(TransferError::Form { version });
    }
    let damaged = |what| TransferError::Damaged { version, what };
    let plain = unpack(form, header, body).map_err(damaged)?;
    let bytes = match header.base {
        None if plain.len() != form.bytes() => return Err(damaged("it is not as long as the model")),
        None if header.packed => body::elements(form, &plain),
        None => plain.into_owned(),
        Some(base) => {
            let held = held.filter(|held| held.version() == base && held.form() == form);
            let held = held.ok_or(TransferError::Base {
                version,
                base,
                held: Held(held.map(State::version)),
            })?;
            let mut bytes = held.bytes().to_vec();
            body::add(form, header.changed, &plain, &mut bytes).map_err(damaged)?;
            bytes
        }
    };
    let state = State::new(*form, version, bytes)?;
    if state.digest().as_bytes() != &header.digest {
        return Err(TransferError::Digest { version });
    }
    Ok(state)
}

fn message(mut header: Header, body: &[u8]) -> Vec<u8> {
    header.body = body.len() as u64;
    let mut message = Vec::with_capacity(LENGTH + body.len());
    header.write(&mut message);
    message.extend_from_slice(body);
    message
}

fn pack(plain: &[u8]) -> Option<Vec<u8>> {
    // It fails for want of memory alone: then what was to be packed goes as it is.
    zstd::bulk::compress(plain, LEVEL).ok()
}

/// The body as it was before zstd: never longer than the model.
fn unpack<'a>(form: &Form, header: &Header, body: &'a [u8]) -> Result<Cow<'a, [u8]>, &'static str> {
    let plain = usize::try_from(header.plain).ok();
    let plain = plain
        .filter(|plain| *plain <= form.bytes())
        .ok_or("it claims to be longer than the model")?;
    let unpacked = if header.packed {
        Cow::Owned(zstd::bulk::decompress(body, plain).map_err(|_| "its zstd frame cannot be read")?)
    } else {
        Cow::Borrowed(body)
    };
    if unpacked.len() == plain {
        Ok(unpacked)
    } else {
        Err("it has another length than it says")
    }
}
