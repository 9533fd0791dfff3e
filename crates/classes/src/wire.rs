//! Wire forms that several classes have in common, and texts as C reads them.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A text up to where C sees its end.
pub(crate) fn c_text(text: &[u8]) -> &[u8] {
    text.split(|b| *b == 0).next().unwrap_or_default()
}

/// An envelope with nothing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyEnvelope;

impl Encode for EmptyEnvelope {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |_| {});
    }
}

impl Decode for EmptyEnvelope {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("empty", 1, |_, _| Ok(Self))
    }
}
