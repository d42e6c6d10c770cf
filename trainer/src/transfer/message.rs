//! Turns weights into messages, and messages into weights.

use std::borrow::Cow;

use super::header::{Header, LENGTH, seal};
use super::{Form, Held, State, TransferError, body};

/// zstd's fastest level: the coding before it already saves most.
const LEVEL: i32 = 1;

/// The largest number of messages that are sent together.
pub(super) const MESSAGES: usize = 8;

/// The largest total size of the messages to weights of this form, in bytes. A receiver reads no
/// more.
#[must_use]
pub fn largest(form: &Form) -> usize {
    (MESSAGES * LENGTH).saturating_add(form.bytes())
}

/// The whole state as a message.
#[must_use]
pub fn full(state: &State) -> Vec<u8> {
    let planes = body::planes(state.form(), state.bytes());
    // If zstd saves less than a tenth, it costs more time than it saves.
    let packed = pack(&planes).filter(|packed| packed.len() <= planes.len() - planes.len() / 10);
    let header = Header {
        base: None,
        version: state.version(),
        form: *state.form(),
        changed: 0,
        packed: packed.is_some(),
        plain: state.bytes().len() as u64,
        body: 0,
        seal: seal(None, state),
    };
    message(header, packed.as_deref().unwrap_or(state.bytes()))
}

/// The changes from one state to another as a message. Returns `None` if the whole state is not
/// longer, or if the forms differ.
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
        seal: seal(Some(base.version()), new),
    };
    Some(message(header, packed.as_deref().unwrap_or(&plain)))
}

/// Applies one or several messages in order to the held state and returns the result. `held` itself
/// is not changed.
///
/// Allocates the size of `form`, whatever the messages contain.
///
/// # Errors
/// [`TransferError`]: discard the result.
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
    if seal(header.base, &state) != header.seal {
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
    // Fails only for lack of memory; the data is then sent unpacked.
    zstd::bulk::compress(plain, LEVEL).ok()
}

/// The body before zstd, never longer than the model.
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
        Err("its length differs from its header")
    }
}
