//! Wire forms of integers, booleans, strings and buffers.

use bytes::Bytes;

use crate::{Decode, DecodeError, Encode, Reader, Writer};

macro_rules! int {
    ($($t:ty),+) => {$(
        impl Encode for $t {
            #[inline]
            fn encode(&self, w: &mut Writer) {
                w.fixed(self.to_le_bytes());
            }
        }
        impl Decode for $t {
            const MIN_SIZE: usize = size_of::<$t>();
            #[inline]
            fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
                r.array().map(<$t>::from_le_bytes)
            }
        }
    )+};
}
int!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        w.u8(u8::from(*self));
    }
}
impl Decode for bool {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(r.u8()? != 0)
    }
}

/// Doubles and floats travel as their IEEE bits. Source: src/include/encoding.h (WRITE_FLTTYPE_ENCODER).
impl Encode for f64 {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.to_bits());
    }
}
impl Decode for f64 {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u64().map(f64::from_bits)
    }
}
impl Encode for f32 {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.to_bits());
    }
}
impl Decode for f32 {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u32().map(f32::from_bits)
    }
}

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}
impl Encode for &str {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}
impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}
impl Decode for String {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.text(str::to_owned)
    }
}

impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}
impl Decode for Bytes {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.blob()
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, w: &mut Writer) {
        w.fixed(*self);
    }
}
impl<const N: usize> Decode for [u8; N] {
    const MIN_SIZE: usize = N;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.array()
    }
}
