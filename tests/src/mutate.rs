//! Damages bytes from a seed. Every decoder must take them without a panic, with little memory and
//! in little time.

use crate::chaos::Dice;

/// The longest input in bytes.
const LONGEST: usize = 64 << 10;
/// Pieces that break parsers: nests, signs, extreme numbers, broken encodings, and the delimiters
/// of every format we read.
const WORDS: [&[u8]; 30] = [
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"((((((((((((((((",
    b"{{{{{{{{",
    b"\\frac{\\frac{\\frac{",
    b"\\sqrt[\\sqrt[",
    b"-",
    b"1e999",
    b"-0",
    b"NaN",
    b"18446744073709551616",
    b"9223372036854775807",
    b"-1",
    b"0.1e-400",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\0",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x80\xae",
    b"\x1b[2J",
    b"\\ud800",
    b"null",
    b"true",
    b"\"\"",
    b"\n",
    b"{%",
    b"%}",
    b"{{ ",
    b"}}",
    b"<|end|>",
];

/// Returns one of `seeds`, damaged up to five times; one in fifty is noise.
#[must_use]
pub fn damaged(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = pick(seeds, dice).clone();
    if dice.below(50) == 0 {
        bytes = (0..dice.below(200)).map(|_| dice.below(256) as u8).collect();
    }
    for _ in 0..=dice.below(4) {
        damage(&mut bytes, seeds, dice);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn pick<'a, T>(from: &'a [T], dice: &mut Dice) -> &'a T {
    &from[dice.below(from.len() as u64) as usize]
}

fn damage(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(bytes.len() as u64 + 1) as usize;
    let end = at + dice.below((bytes.len() - at) as u64 + 1).min(64) as usize;
    match dice.below(10) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        2 if at < bytes.len() => bytes[at] = *pick(&[0, 1, 0x7f, 0x80, 0xfb, 0xfc, 0xfd, 0xff], dice),
        3 => drop(bytes.drain(at..end)),
        4 => drop(bytes.splice(at..at, pick(&WORDS, dice).iter().copied())),
        5 => drop(bytes.splice(at..end, pick(&WORDS, dice).iter().copied())),
        // Deep or long: one piece repeated up to 1024 times.
        6 => drop(bytes.splice(at..at, pick(&WORDS, dice).repeat(1 << dice.below(11)))),
        7 => {
            let piece = bytes[at..end].repeat(1 + dice.below(4) as usize);
            drop(bytes.splice(at..at, piece));
        }
        8 => {
            let other = pick(seeds, dice);
            let from = dice.below(other.len() as u64 + 1) as usize;
            let to = from + dice.below((other.len() - from) as u64 + 1).min(256) as usize;
            drop(bytes.splice(at..end, other[from..to].iter().copied()));
        }
        _ => number(bytes, at, dice),
    }
}

/// Replaces the next digits with another number.
fn number(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) else {
        return;
    };
    let digits = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = match dice.below(3) {
        0 => dice.below(300),
        1 => 1 << dice.below(64),
        _ => u64::MAX - dice.below(3),
    };
    drop(bytes.splice(from..from + digits, value.to_string().bytes()));
}
