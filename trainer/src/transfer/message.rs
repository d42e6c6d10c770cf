//! Turns weights into messages, and messages into weights.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use super::footprint::SAVED;
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

/// Bytes on their way to a receiver. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A message, or the header of one.
    Coded(Arc<Vec<u8>>),
    /// The body of a message with a whole state, as it is.
    Plain(State),
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Coded(bytes) => bytes,
            Self::Plain(state) => state.bytes(),
        }
    }
}

/// The whole state as a message, in parts. With `pack` it is coded if that makes it shorter by a
/// tenth or more. Without, nothing is copied.
#[must_use]
pub fn full(state: &State, pack: bool) -> Vec<Part> {
    let (form, bytes) = (state.form(), state.bytes());
    let header = |packed| Header {
        base: None,
        version: state.version(),
        form: *form,
        changed: 0,
        packed,
        plain: bytes.len() as u64,
        body: bytes.len() as u64,
        seal: seal(None, state),
    };
    // If zstd saves less, it costs more time than it saves.
    let most = bytes.len() - bytes.len() / SAVED;
    let planes = |to: &mut Packer| body::write_planes(form, bytes, to);
    let packed = pack.then(|| packed(header(true), most, planes)).flatten();
    match packed {
        Some(message) => vec![Part::Coded(message.into())],
        None => vec![Part::Coded(header(false).bytes().into()), Part::Plain(state.clone())],
    }
}

/// The changes from one state to another as a message. Returns `None` if it would be too long to
/// save much, or if the forms differ.
#[must_use]
pub fn delta(base: &State, new: &State) -> Option<Vec<u8>> {
    if base.form() != new.form() {
        return None;
    }
    let changes = body::difference(new.form(), base.bytes(), new.bytes())?;
    let header = |packed| Header {
        base: Some(base.version()),
        version: new.version(),
        form: *new.form(),
        changed: changes.count,
        packed,
        plain: changes.len() as u64,
        body: changes.len() as u64,
        seal: seal(Some(base.version()), new),
    };
    let shorter = changes.len() - 1;
    packed(header(true), shorter, |to| changes.write(to)).or_else(|| {
        let mut message = header(false).bytes();
        changes.write(&mut message).ok()?;
        Some(message)
    })
}

/// Applies one or several messages in order to the held state and returns the result.
///
/// The bytes of `held` or of the message become those of the result, if nothing else holds them.
/// Other memory is at most the size of `form`, whatever the messages contain.
///
/// # Errors
/// [`TransferError`]: the held state is lost.
pub fn apply(form: &Form, mut held: Option<State>, messages: Vec<u8>) -> Result<State, TransferError> {
    let (header, body, rest) = Header::split(&messages)?;
    if header.base.is_none() && !header.packed && rest.is_empty() {
        let length = body.len();
        drop(held);
        return plain(form, &header, length, messages);
    }
    let mut rest = messages.as_slice();
    loop {
        let (header, body, more) = Header::split(rest)?;
        let state = one(form, held, &header, body)?;
        if more.is_empty() {
            return Ok(state);
        }
        (held, rest) = (Some(state), more);
    }
}

/// The whole state of a message that is not packed: its bytes without the header.
fn plain(form: &Form, header: &Header, length: usize, mut message: Vec<u8>) -> Result<State, TransferError> {
    of_form(form, header)?;
    is_whole(form, header, length).map_err(|what| damaged(header, what))?;
    message.drain(..LENGTH);
    sealed(form, header, message)
}

fn one(form: &Form, held: Option<State>, header: &Header, body: &[u8]) -> Result<State, TransferError> {
    of_form(form, header)?;
    let damaged = |what| damaged(header, what);
    let Some(base) = header.base else {
        drop(held);
        return sealed(form, header, whole(form, header, body).map_err(damaged)?);
    };
    let version = held.as_ref().map(State::version);
    let held = held.filter(|held| held.version() == base && held.form() == form);
    let held = held.ok_or(TransferError::Base {
        version: header.version,
        base,
        held: Held(version),
    })?;
    let plain = unpack(form, header, body).map_err(damaged)?;
    let mut bytes = held.into_bytes();
    body::add(form, header.changed, &plain, &mut bytes).map_err(damaged)?;
    sealed(form, header, bytes)
}

fn of_form(form: &Form, header: &Header) -> Result<(), TransferError> {
    let version = header.version;
    (header.form == *form)
        .then_some(())
        .ok_or(TransferError::Form { version })
}

fn damaged(header: &Header, what: &'static str) -> TransferError {
    let version = header.version;
    TransferError::Damaged { version, what }
}

fn sealed(form: &Form, header: &Header, bytes: Vec<u8>) -> Result<State, TransferError> {
    let version = header.version;
    let state = State::new(*form, version, bytes)?;
    if seal(header.base, &state) != header.seal {
        return Err(TransferError::Digest { version });
    }
    Ok(state)
}

/// Checks the claimed length of a message with a whole state.
fn is_whole(form: &Form, header: &Header, length: usize) -> Result<(), &'static str> {
    if header.plain != form.bytes() as u64 {
        return Err("it is not as long as the model");
    }
    let is_true = header.packed || length as u64 == header.plain;
    is_true.then_some(()).ok_or("its length differs from its header")
}

/// The bytes of a message with a whole state.
fn whole(form: &Form, header: &Header, body: &[u8]) -> Result<Vec<u8>, &'static str> {
    is_whole(form, header, body.len())?;
    if !header.packed {
        return Ok(body.to_vec());
    }
    let planes = zstd::stream::read::Decoder::with_buffer(body).map_err(|_| "its zstd frame cannot be read")?;
    body::read_planes(form, planes)
}

/// A zstd stream into a message.
type Packer = zstd::stream::write::Encoder<'static, Limited>;

/// A message that may not become longer than `most` bytes.
struct Limited {
    message: Vec<u8>,
    most: usize,
}

impl Write for Limited {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.message.len() + part.len() > self.most {
            return Err(io::Error::other("it saves too little"));
        }
        self.message.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message with a packed body of at most `most` bytes, or `None` if that is too few.
fn packed(mut header: Header, most: usize, body: impl FnOnce(&mut Packer) -> io::Result<()>) -> Option<Vec<u8>> {
    let limited = Limited {
        message: vec![0; LENGTH],
        most: LENGTH + most,
    };
    // Fails otherwise only for lack of memory; the data is then sent unpacked.
    let pack = || -> io::Result<Vec<u8>> {
        let mut packer = Packer::new(limited, LEVEL)?;
        packer.set_pledged_src_size(Some(header.plain))?;
        body(&mut packer)?;
        Ok(packer.finish()?.message)
    };
    let mut message = pack().ok()?;
    header.body = (message.len() - LENGTH) as u64;
    message[..LENGTH].copy_from_slice(&header.bytes());
    Some(message)
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
