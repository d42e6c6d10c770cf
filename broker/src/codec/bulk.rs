//! Codec for long lists of numbers: token ids and log-probs are most of the traffic.
//!
//! bincode encodes a list element by element, with a call and a bounds check for each. This codec
//! writes the same bytes (a `u64` count, then little-endian numbers) and keeps the same bounds, but
//! copies the numbers at once.

use bincode::de::Decoder;
use bincode::de::read::Reader;
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};
use zerocopy::{FromBytes, Immutable, IntoBytes};

// The numbers are copied from memory without conversion.
#[cfg(not(target_endian = "little"))]
compile_error!("the wire is little-endian, so the machine must be too");

/// Numbers without padding, for which every bit pattern is valid.
pub(crate) trait Number: Copy + Default + FromBytes + IntoBytes + Immutable {}
impl Number for u32 {}
impl Number for f32 {}

/// Writes the same bytes as `Vec<T>`.
pub(crate) fn encode<T: Number, E: Encoder>(numbers: &[T], encoder: &mut E) -> Result<(), EncodeError> {
    (numbers.len() as u64).encode(encoder)?;
    encoder.writer().write(numbers.as_bytes())
}

/// Reads the same bytes as `Vec<T>`, with the same bound on the claimed length.
pub(crate) fn decode<T: Number, D: Decoder>(decoder: &mut D) -> Result<Vec<T>, DecodeError> {
    let found = u64::decode(decoder)?;
    let length = usize::try_from(found).map_err(|_| DecodeError::OutsideUsizeRange(found))?;
    decoder.claim_container_read::<T>(length)?;
    let mut numbers = vec![T::default(); length];
    decoder.reader().read(numbers.as_mut_bytes())?;
    Ok(numbers)
}

/// Implements `Encode` and `Decode` as the derives do, with `bulk` fields copied at once. List all
/// fields in their order.
macro_rules! bulk_codec {
    ($name:ident { $($kind:ident $field:ident),+ $(,)? }) => {
        impl bincode::Encode for $name {
            fn encode<E: bincode::enc::Encoder>(&self, encoder: &mut E) -> Result<(), bincode::error::EncodeError> {
                $($crate::codec::bulk::bulk_codec!(@encode $kind, self.$field, encoder);)+
                Ok(())
            }
        }

        impl<Context> bincode::Decode<Context> for $name {
            fn decode<D: bincode::de::Decoder<Context = Context>>(
                decoder: &mut D,
            ) -> Result<Self, bincode::error::DecodeError> {
                Ok(Self { $($field: $crate::codec::bulk::bulk_codec!(@decode $kind, decoder),)+ })
            }
        }

        bincode::impl_borrow_decode!($name);
    };
    (@encode bulk, $value:expr, $encoder:ident) => { $crate::codec::bulk::encode(&$value, $encoder)? };
    (@encode plain, $value:expr, $encoder:ident) => { bincode::Encode::encode(&$value, $encoder)? };
    (@decode bulk, $decoder:ident) => { $crate::codec::bulk::decode($decoder)? };
    (@decode plain, $decoder:ident) => { bincode::Decode::decode($decoder)? };
}
pub(crate) use bulk_codec;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[derive(Debug, Clone, PartialEq, Encode, Decode)]
    struct Derived {
        ids: Vec<u32>,
        name: String,
        values: Vec<f32>,
    }

    #[derive(Debug, Clone, PartialEq)]
    struct Bulk {
        ids: Vec<u32>,
        name: String,
        values: Vec<f32>,
    }
    bulk_codec!(Bulk { bulk ids, plain name, bulk values });

    proptest::proptest! {
        #[test]
        fn the_bytes_are_those_of_the_derive(
            ids in proptest::collection::vec(proptest::num::u32::ANY, 0..300),
            name in ".{0,20}",
            values in proptest::collection::vec(-1e9f32..1e9, 0..300),
        ) {
            let derived = Derived { ids: ids.clone(), name: name.clone(), values: values.clone() };
            let bulk = Bulk { ids, name, values };
            let bytes = codec::encode(&bulk);
            proptest::prop_assert_eq!(&bytes, &codec::encode(&derived));
            proptest::prop_assert_eq!(&codec::decode::<Bulk>(&bytes).unwrap(), &bulk);
            for cut in [0, 2, 9, bytes.len() / 2, bytes.len() - 1] {
                let short = &bytes[..cut.min(bytes.len() - 1)];
                proptest::prop_assert_eq!(
                    codec::decode::<Bulk>(short).is_err(),
                    codec::decode::<Derived>(short).is_err()
                );
            }
        }
    }

    #[test]
    fn a_false_length_allocates_nothing() {
        for length in [1u64 << 20, 1 << 40, u64::MAX / 4, u64::MAX] {
            let mut bytes = codec::SCHEMA.to_le_bytes().to_vec();
            bytes.extend(length.to_le_bytes());
            bytes.extend([0; 64]);
            assert!(codec::decode::<Bulk>(&bytes).is_err(), "{length}");
        }
    }
}
