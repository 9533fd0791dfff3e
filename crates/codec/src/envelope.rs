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

    /// Reads an envelope whose forms before version `oldest` are not known here: they are refused, for they
    /// may have had no envelope at all. `body` is given the writer's version.
    pub fn envelope_since<T>(
        &mut self,
        what: &'static str,
        ours: u8,
        oldest: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let version = self.peek_u8()?;
        if version < oldest {
            return Err(DecodeError::Invalid { what, value: version.into() });
        }
        self.envelope(what, ours, |r, env| body(r, env.version))
    }

    /// Reads an envelope of a structure that had none in its first versions: then a version alone stands in
    /// front of the fields. `body` is given the writer's version.
    ///
    /// `since` is the first version with an envelope. Source: DECODE_START_LEGACY_COMPAT_LEN in
    /// src/include/encoding.h, with the same version for compat and length.
    pub fn legacy_envelope<T>(
        &mut self,
        what: &'static str,
        ours: u8,
        since: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.peek_u8()? >= since {
            return self.envelope(what, ours, |r, env| body(r, env.version));
        }
        let version = self.u8()?;
        body(self, version)
    }

    /// The same where the version alone took 32 bits. Source: DECODE_START_LEGACY_COMPAT_LEN_32.
    pub fn legacy_envelope_32<T>(
        &mut self,
        what: &'static str,
        ours: u8,
        since: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        self.legacy_envelope(what, ours, since, |r, version| {
            if version < since {
                r.skip(3)?;
            }
            body(r, version)
        })
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
    fn forms_that_are_too_old_are_refused() {
        let read = |oldest| {
            Reader::new(sample().into_bytes()).envelope_since("t", 3, oldest, |r, v| Ok((v, r.u32()?)))
        };
        assert_eq!(read(3), Ok((3, 7)));
        assert_eq!(read(4), Err(DecodeError::Invalid { what: "t", value: 3 }));
    }

    #[test]
    fn the_body_cannot_read_past_its_envelope() {
        let mut r = Reader::new(sample().into_bytes());
        assert!(r.envelope("t", 3, |r, _| r.raw(13)).is_err());
    }

    #[test]
    fn structures_of_old_have_a_version_alone() {
        let read = |bytes: &'static [u8], wide| {
            let mut r = Reader::new(bytes.into());
            let body = |r: &mut Reader, version| Ok((version, r.u8()?));
            if wide { r.legacy_envelope_32("t", 4, 3, body) } else { r.legacy_envelope("t", 4, 3, body) }.ok()
        };
        assert_eq!(read(&[2, 7], false), Some((2, 7)));
        assert_eq!(read(&[2, 0, 0, 0, 7], true), Some((2, 7)));
        assert_eq!(read(&[2, 0, 0], true), None);
        for wide in [false, true] {
            assert_eq!(read(&[3, 3, 1, 0, 0, 0, 7], wide), Some((3, 7)));
            assert_eq!(read(&[9, 5, 1, 0, 0, 0, 7], wide), None, "for newer readers");
            assert_eq!(read(&[], wide), None);
        }
    }
}
