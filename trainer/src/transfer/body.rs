//! Message bodies, before zstd.
//!
//! Delta: the length of the gaps (u64), the gaps, the differences. A gap is the number of unchanged
//! elements before a changed one. A difference is new bits minus old bits, wrapping, zigzag-coded
//! (0, -1, 1, -2, ...). Both are LEB128.
//!
//! Full: all first bytes of the elements, then all second bytes, and so on, so that signs and
//! exponents are neighbours.

use std::io::{self, Read, Write};

use super::Form;
use super::footprint::DELTA;

/// The number of elements compared at once while nothing has changed.
const BLOCK: usize = 32;

/// The number of a plane's bytes that are moved at once.
const PLANE: usize = 1 << 16;

/// The changes from one state to another: the body of a delta.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of changed elements.
    pub(super) count: u64,
    gaps: Vec<u8>,
    values: Vec<u8>,
}

impl Changes {
    pub(super) fn len(&self) -> usize {
        8 + self.gaps.len() + self.values.len()
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&(self.gaps.len() as u64).to_le_bytes())?;
        to.write_all(&self.gaps)?;
        to.write_all(&self.values)
    }
}

/// The bits of one element.
fn bits(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte))
}

/// Returns the changes from `old` to `new`, or `None` once they are longer than a part of the
/// model.
pub(super) fn difference(form: &Form, old: &[u8], new: &[u8]) -> Option<Changes> {
    let (width, most) = (form.width(), form.bytes() / DELTA);
    let mut changes = Changes::default();
    let mut next = 0;
    let blocks = old.chunks(BLOCK * width).zip(new.chunks(BLOCK * width));
    for (block, (before, after)) in blocks.enumerate().filter(|(_, (before, after))| before != after) {
        let elements = before.chunks_exact(width).zip(after.chunks_exact(width));
        for (place, (from, to)) in elements.enumerate().filter(|(_, (from, to))| from != to) {
            let index = block * BLOCK + place;
            put(&mut changes.gaps, (index - next) as u64);
            let difference = zigzag(form, bits(to).wrapping_sub(bits(from)));
            put(&mut changes.values, difference.into());
            next = index + 1;
            changes.count += 1;
        }
        if changes.len() > most {
            return None;
        }
    }
    (changes.len() <= most).then_some(changes)
}

/// Adds `changed` differences to `bytes`. If this fails, the caller must discard `bytes`.
pub(super) fn add(form: &Form, changed: u64, body: &[u8], bytes: &mut [u8]) -> Result<(), &'static str> {
    let (length, rest) = body.split_first_chunk::<8>().ok_or("its index has no length")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| "its index is too long")?;
    let (mut gaps, mut values) = rest.split_at_checked(length).ok_or("its index is cut off")?;
    let width = form.width();
    let mut next = 0usize;
    for _ in 0..changed {
        let gap =
            usize::try_from(get(&mut gaps).ok_or("its index is cut off")?).map_err(|_| "an index is too large")?;
        let index = next.checked_add(gap).filter(|index| *index < form.elements);
        let index = index.ok_or("it names an element that does not exist")?;
        let value = get(&mut values).ok_or("its values are cut off")?;
        let value = u32::try_from(value).map_err(|_| "a value is too large")?;
        let element = &mut bytes[index * width..(index + 1) * width];
        let new = bits(element).wrapping_add(unzigzag(value));
        element.copy_from_slice(&new.to_le_bytes()[..width]);
        next = index + 1;
    }
    if gaps.is_empty() && values.is_empty() {
        Ok(())
    } else {
        Err("bytes are left over")
    }
}

/// Writes the bytes of all elements, first bytes first.
pub(super) fn write_planes(form: &Form, bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
    let width = form.width();
    let mut plane = Vec::with_capacity(PLANE);
    for place in 0..width {
        for elements in bytes.chunks(PLANE * width) {
            plane.clear();
            plane.extend(elements.iter().skip(place).step_by(width));
            to.write_all(&plane)?;
        }
    }
    Ok(())
}

/// Reads the result of [`write_planes`] into the bytes of elements.
pub(super) fn read_planes(form: &Form, mut from: impl Read) -> Result<Vec<u8>, &'static str> {
    let (width, mut bytes) = (form.width(), vec![0; form.bytes()]);
    let mut room = vec![0; PLANE];
    for place in 0..width {
        for elements in bytes.chunks_mut(PLANE * width) {
            let plane = &mut room[..elements.len() / width];
            from.read_exact(plane)
                .map_err(|_| "its zstd frame cannot be read, or is too short")?;
            for (element, byte) in elements.chunks_exact_mut(width).zip(plane) {
                element[place] = *byte;
            }
        }
    }
    match from.read(&mut room[..1]) {
        Ok(0) => Ok(bytes),
        _ => Err("bytes are left over"),
    }
}

/// Maps small differences of either sign to small numbers, in the width of an element.
fn zigzag(form: &Form, difference: u32) -> u32 {
    let signed = match form.width() {
        2 => i32::from(difference as u16 as i16),
        _ => difference as i32,
    };
    (signed << 1 ^ signed >> 31) as u32
}

fn unzigzag(value: u32) -> u32 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

fn put(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

fn get(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
