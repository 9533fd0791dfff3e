//! The `version, compat, length` envelope around structures that grow over releases.

use crate::{DecodeError, Reader};

/// The head of an envelope: what the writer was, and what a reader must at least be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub version: u8,
    pub compat: u8,
}

impl Reader {
    /// Reads an envelope; `body` sees only its bytes, and what it leaves unread (fields of newer writers) is skipped.
    ///
    /// `ours` is the newest version this reader knows; a writer whose `compat` is above it is refused.
    pub fn envelope<T>(
        &mut self,
        what: &'static str,
        ours: u8,
        body: impl FnOnce(&mut Self, Envelope) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let version = self.u8()?;
        let compat = self.u8()?;
        if compat > ours {
            return Err(DecodeError::Incompatible { what, compat, ours });
        }
        let len = self.u32()? as usize;
        self.bounded(len, |r| body(r, Envelope { version, compat }))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DecodeError, Reader, Writer};

    fn sample() -> Writer {
        let mut w = Writer::new();
        w.envelope(3, 1, |w| {
            w.u32(7);
            w.u64(9);
        });
        w.u8(0xee);
        w
    }

    #[test]
    fn an_older_reader_skips_the_fields_it_does_not_know() {
        let mut r = Reader::new(sample().into_bytes());
        let got = r.envelope("t", 2, |r, env| Ok((env.version, r.u32()?)));
        assert_eq!(got, Ok((3, 7)));
        assert_eq!(r.u8(), Ok(0xee));
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let whole = sample().into_bytes();
        for n in 0..whole.len() - 1 {
            let mut r = Reader::new(whole.slice(..n));
            assert!(r.envelope("t", 3, |r, _| Ok((r.u32()?, r.u64()?))).is_err(), "{n}");
        }
    }

    #[test]
    fn a_newer_compat_is_refused() {
        let mut w = Writer::new();
        w.envelope(9, 8, |w| w.u8(1));
        let got = Reader::new(w.into_bytes()).envelope("t", 7, |r, _| r.u8());
        assert_eq!(got, Err(DecodeError::Incompatible { what: "t", compat: 8, ours: 7 }));
    }

    #[test]
    fn the_body_cannot_read_past_its_envelope() {
        let mut r = Reader::new(sample().into_bytes());
        assert!(r.envelope("t", 3, |r, _| r.raw(13)).is_err());
    }
}
