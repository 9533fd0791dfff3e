//! Little-endian wire encoding: a bounded reader that never panics, a writer, versioned envelopes.
//!
//! Source: doc/dev/encoding.rst, src/include/encoding.h, src/include/denc.h.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

mod collections;
mod crc;
mod envelope;
mod error;
mod reader;
mod scalar;
pub mod spare;
pub mod sums;
mod writer;

pub use crc::crc32c;
pub use envelope::Envelope;
pub use error::DecodeError;
pub use reader::Reader;
pub use writer::Writer;

/// A value with a wire form.
pub trait Encode {
    /// Appends the wire form to `w`.
    fn encode(&self, w: &mut Writer);

    /// The wire form as one buffer.
    fn to_bytes(&self) -> bytes::Bytes {
        Writer::collect(|w| self.encode(w))
    }
}

/// A value that can be read from untrusted bytes.
pub trait Decode: Sized {
    /// The fewest bytes any value of this type takes: bounds what a claimed element count may allocate.
    const MIN_SIZE: usize = 1;

    /// Reads one value, leaving the reader behind it.
    fn decode(r: &mut Reader) -> Result<Self, DecodeError>;

    /// Reads one value from the start of `bytes`; bytes behind it are ignored, as Ceph's decoders do.
    fn from_bytes(bytes: impl Into<bytes::Bytes>) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(bytes.into()))
    }
}

/// Implements `Encode` and `Decode` for a plain struct whose fields go over the wire in order, without an envelope.
#[macro_export]
macro_rules! wire_plain {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                $( self.$field.encode(w); )+
            }
        }
        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $( $field: $crate::Decode::decode(r)? ),+ })
            }
        }
    };
}

/// Implements `Encode` and `Decode` for a struct in an envelope `version, compat` whose fields go in order.
/// Those `since` a version are the default in what an earlier one wrote.
#[macro_export]
macro_rules! wire_struct {
    (
        $name:ident ($version:expr, $compat:expr) { $($field:ident),+ $(,)? }
        $(since $later:literal { $($new:ident),+ $(,)? })*
    ) => {
        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                w.envelope($version, $compat, |w| { $( self.$field.encode(w); )+ $($( self.$new.encode(w); )+)* });
            }
        }
        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                r.envelope(stringify!($name), $version, |r, _env| {
                    Ok(Self {
                        $( $field: $crate::Decode::decode(r)?, )+
                        $($( $new: if _env.version >= $later { $crate::Decode::decode(r)? } else { Default::default() }, )+)*
                    })
                })
            }
        }
    };
}
