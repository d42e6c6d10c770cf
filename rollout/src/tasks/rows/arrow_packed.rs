//! Checks whether the packed buffers of an Arrow file can be as long as they claim. The library
//! allocates the claimed length before it unpacks a buffer. In a damaged file that can exceed the
//! memory of the machine, which would end the process.
//!
//! Messages that cannot be read are skipped here; the reader of the messages reports them.

use std::io::{self, Read, Seek, SeekFrom};

use arrow_ipc::{MessageHeader, RecordBatch, root_as_footer, root_as_message};

/// The first bytes of a message; files from before Arrow 0.15 begin with the length.
const BEGINS: u32 = u32::MAX;
/// The last bytes of a file with a footer: the footer's length, and a mark.
const TRAILER: i64 = 4 + 6;
/// The most bytes that one byte of zstd can stand for: a block is 128 KiB, and at least 4 bytes
/// long with its header.
const MOST: u64 = 128 * 1024 / 4;

/// A message, and the place of its body.
struct Message {
    bytes: Vec<u8>,
    body: u64,
}

/// Returns the first buffer that cannot be as long as it claims.
///
/// # Errors
/// The file cannot be read.
pub(super) fn fault(file: &mut (impl Read + Seek), footed: bool) -> io::Result<Option<String>> {
    if footed {
        for (at, body) in blocks(file)? {
            if let Some(message) = message(file, at)?.map(|message| Message { body, ..message })
                && let Some(fault) = of_message(file, &message)?
            {
                return Ok(Some(fault));
            }
        }
        return Ok(None);
    }
    let mut at = 0;
    while let Some(message) = message(file, at)? {
        if let Some(fault) = of_message(file, &message)? {
            return Ok(Some(fault));
        }
        let Ok(header) = root_as_message(&message.bytes) else {
            break;
        };
        // An offset that no file has ends the walk where its end is read.
        at = message.body.saturating_add(header.bodyLength().max(0) as u64);
    }
    Ok(None)
}

/// Returns the places of messages and their bodies, from the footer.
fn blocks(file: &mut (impl Read + Seek)) -> io::Result<Vec<(u64, u64)>> {
    let length = file.seek(SeekFrom::End(0))? as i64;
    let Some(word) = bytes(file, length - TRAILER, 4)? else {
        return Ok(Vec::new());
    };
    let footer = i64::from(number(&word) as i32);
    let Some(footer) = bytes(file, length - TRAILER - footer, footer)? else {
        return Ok(Vec::new());
    };
    let Ok(footer) = root_as_footer(&footer) else {
        return Ok(Vec::new());
    };
    let all = [footer.dictionaries(), footer.recordBatches()];
    let blocks = all.into_iter().flatten().flat_map(|blocks| blocks.iter());
    let places = blocks.filter_map(|block| {
        let at = u64::try_from(block.offset()).ok()?;
        Some((at, at.checked_add(u64::try_from(block.metaDataLength()).ok()?)?))
    });
    Ok(places.collect())
}

/// Returns the message that begins at this place; `None` at the end, and where there is no message.
fn message(file: &mut (impl Read + Seek), at: u64) -> io::Result<Option<Message>> {
    let mut at = i64::try_from(at).unwrap_or(i64::MAX);
    for _ in 0..2 {
        let Some(word) = bytes(file, at, 4)? else {
            return Ok(None);
        };
        at += 4;
        let length = number(&word);
        if length == BEGINS {
            continue;
        }
        let length = i64::from(length as i32);
        let found = if length > 0 { bytes(file, at, length)? } else { None };
        return Ok(found.map(|bytes| Message {
            bytes,
            body: (at + length) as u64,
        }));
    }
    Ok(None)
}

fn of_message(file: &mut (impl Read + Seek), message: &Message) -> io::Result<Option<String>> {
    let Ok(header) = root_as_message(&message.bytes) else {
        return Ok(None);
    };
    let batch = match header.header_type() {
        MessageHeader::RecordBatch => header.header_as_record_batch(),
        MessageHeader::DictionaryBatch => header.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    batch.map_or(Ok(None), |batch| of_batch(file, message.body, batch))
}

/// Checks the length that begins each packed buffer: its unpacked length, in 8 bytes; -1 means that
/// it is not packed.
fn of_batch(file: &mut (impl Read + Seek), body: u64, batch: RecordBatch<'_>) -> io::Result<Option<String>> {
    let Some(buffers) = batch.compression().and(batch.buffers()) else {
        return Ok(None);
    };
    for buffer in buffers {
        let at = i64::try_from(body).unwrap_or(i64::MAX).saturating_add(buffer.offset());
        let Some(word) = bytes(file, at, 8)? else { continue };
        let says = i64::from_le_bytes(word.try_into().unwrap_or_default());
        let Ok(packed) = u64::try_from(buffer.length().saturating_sub(8)) else {
            continue; // An empty one.
        };
        if says > 0 && says as u64 > packed.saturating_mul(MOST) {
            return Ok(Some(format!(
                "cannot be read as Arrow: {packed} packed bytes say that they are {says} unpacked, which cannot be, so it is damaged: copy or \
                 write it again"
            )));
        }
    }
    Ok(None)
}

/// Returns a number of bytes from a place; `None` where the file has none.
fn bytes(file: &mut (impl Read + Seek), at: i64, length: i64) -> io::Result<Option<Vec<u8>>> {
    let (Ok(at), Ok(length)) = (u64::try_from(at), u64::try_from(length)) else {
        return Ok(None);
    };
    match file.seek(SeekFrom::Start(at)) {
        // Beyond the length of any file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        sought => sought?,
    };
    let mut found = Vec::new();
    file.take(length).read_to_end(&mut found)?;
    Ok(Some(found).filter(|found| found.len() as u64 == length))
}

fn number(word: &[u8]) -> u32 {
    u32::from_le_bytes(word.try_into().unwrap_or_default())
}
