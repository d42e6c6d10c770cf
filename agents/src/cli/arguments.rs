//! Reads the command line. An unreadable number is explained in plain words, in place of those of
//! Rust's parsers.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::Parser;
use clap::error::{ContextKind, ErrorKind};

/// Returns the parsed command line, or ends the process with its error or help.
pub(super) fn parse<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| explained(error).exit())
}

/// Replaces the reason that Rust's parser gives for an unreadable number.
fn explained(error: clap::Error) -> clap::Error {
    let found = |kind| Some(error.get(kind)?.to_string());
    let (Some(value), Some(argument)) = (found(ContextKind::InvalidValue), found(ContextKind::InvalidArg)) else {
        return error;
    };
    match error.source().and_then(reason) {
        Some(reason) => clap::Error::raw(
            ErrorKind::ValueValidation,
            format!("invalid value '{value}' for '{argument}': {reason}\n"),
        ),
        None => error,
    }
}

/// Returns the advice for an unreadable number; `None` for other errors.
fn reason(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if error.is::<ParseFloatError>() {
        return Some("write a number, such as 0.5");
    }
    match error.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::Zero => Some("write a whole number, 1 or more"),
        IntErrorKind::PosOverflow => Some("the number is too large"),
        _ => Some("write a whole number without a sign, such as 10"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[derive(Debug, Parser)]
    struct Numbers {
        #[arg(long)]
        last: Option<NonZeroUsize>,
        #[arg(long, value_parser = clap::value_parser!(u64).range(..=9))]
        steps: Option<u64>,
        #[arg(long)]
        rate: Option<f64>,
        #[arg(long, value_parser = |_: &str| Err::<u8, _>("write sync or async"))]
        mode: Option<u8>,
    }

    #[test]
    fn numbers_that_cannot_be_read_are_explained() {
        for (option, value, says) in [
            ("last", "0", "'0' for '--last <LAST>': write a whole number, 1 or more"),
            ("last", "", "write a whole number"),
            ("steps", "x", "'x' for '--steps <STEPS>': write a whole number"),
            ("steps", "1.5", "write a whole number without a sign, such as 10"),
            ("steps", "-5", "write a whole number without a sign"),
            ("steps", "99999999999999999999", "the number is too large"),
            ("steps", "10", "10 is not in 0..=9"),
            ("rate", "much", "write a number, such as 0.5"),
            ("mode", "x", "write sync or async"),
        ] {
            let error = explained(Numbers::try_parse_from(["n", &format!("--{option}={value}")]).unwrap_err());
            assert!(error.to_string().contains(says), "{option} {value}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        let absent = explained(Numbers::try_parse_from(["n", "--none"]).unwrap_err());
        assert!(absent.to_string().contains("--none"), "{absent}");
    }
}
