//! Message bodies, before zstd.
//!
//! Delta: the length of the gaps (u64), the gaps, the differences. A gap is the number of unchanged
//! elements before a changed one. A difference is new bits minus old bits, wrapping, zigzag-coded
//! (0, -1, 1, -2, ...). Both are LEB128.
//!
//! Full: all first bytes of the elements, then all second bytes, and so on, so that signs and
//! exponents are neighbours.

use super::Form;

/// The number of elements compared at once while nothing has changed.
const BLOCK: usize = 32;

/// The bits of one element.
fn bits(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte))
}

/// Returns the number of changed elements from `old` to `new`, and the delta body. Returns `None`
/// once the body is longer than the model itself.
pub(super) fn difference(form: &Form, old: &[u8], new: &[u8]) -> Option<(u64, Vec<u8>)> {
    let width = form.width();
    let (mut gaps, mut values) = (Vec::new(), Vec::new());
    let (mut changed, mut next) = (0u64, 0);
    let blocks = old.chunks(BLOCK * width).zip(new.chunks(BLOCK * width));
    for (block, (before, after)) in blocks.enumerate().filter(|(_, (before, after))| before != after) {
        let elements = before.chunks_exact(width).zip(after.chunks_exact(width));
        for (place, (from, to)) in elements.enumerate().filter(|(_, (from, to))| from != to) {
            let index = block * BLOCK + place;
            put(&mut gaps, (index - next) as u64);
            put(&mut values, zigzag(form, bits(to).wrapping_sub(bits(from))).into());
            next = index + 1;
            changed += 1;
        }
        if gaps.len() + values.len() + 8 > form.bytes() {
            return None;
        }
    }
    let mut body = (gaps.len() as u64).to_le_bytes().to_vec();
    body.append(&mut gaps);
    body.append(&mut values);
    (body.len() <= form.bytes()).then_some((changed, body))
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

/// The bytes of all elements, first bytes first.
pub(super) fn planes(form: &Form, bytes: &[u8]) -> Vec<u8> {
    let width = form.width();
    let mut planes = Vec::with_capacity(bytes.len());
    for place in 0..width {
        planes.extend(bytes.iter().skip(place).step_by(width));
    }
    planes
}

/// The inverse of [`planes`].
pub(super) fn elements(form: &Form, planes: &[u8]) -> Vec<u8> {
    let (width, mut bytes) = (form.width(), vec![0; planes.len()]);
    for (place, plane) in planes.chunks_exact(form.elements.max(1)).enumerate() {
        for (element, byte) in bytes.chunks_exact_mut(width).zip(plane) {
            element[place] = *byte;
        }
    }
    bytes
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
