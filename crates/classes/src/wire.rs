//! Wire forms that several classes have in common, and texts as C reads them.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::Utime;

/// A text up to where C sees its end.
pub(crate) fn c_text(text: &[u8]) -> &[u8] {
    text.split(|b| *b == 0).next().unwrap_or_default()
}

/// Nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;

/// A time that counts nanoseconds: a surplus of them goes over into the seconds. Source: real_time in
/// src/common/ceph_time.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RealTime(pub Utime);

impl Encode for RealTime {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for RealTime {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (sec, nsec) = (r.u32()?, r.u32()?);
        Ok(Self(Utime::new(sec.wrapping_add(nsec / NANOS), nsec % NANOS)))
    }
}

/// An envelope of a structure that had none in its first versions: then a version alone stands in front of
/// the fields.
///
/// `ours` is the newest version that this reader knows, `since` the first one with an envelope. Source:
/// DECODE_START_LEGACY_COMPAT_LEN in src/include/encoding.h, with the same version for compat and length.
pub(crate) fn legacy_envelope<T>(
    r: &mut Reader,
    what: &'static str,
    ours: u8,
    since: u8,
    body: impl FnOnce(&mut Reader, u8) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    if r.peek_u8()? >= since {
        return r.envelope(what, ours, |r, env| body(r, env.version));
    }
    let version = r.u8()?;
    body(r, version)
}

/// An envelope with nothing in it.
pub(crate) struct EmptyEnvelope;

impl Decode for EmptyEnvelope {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("empty", 1, |_, _| Ok(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_nanoseconds_become_seconds() {
        let raw = [3u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert_eq!(RealTime::from_bytes(raw), Ok(RealTime(Utime::new(7, 294_967_295))));
    }

    #[test]
    fn structures_of_old_have_a_version_alone() {
        let read = |bytes: &'static [u8]| {
            let mut r = Reader::new(bytes.into());
            legacy_envelope(&mut r, "t", 4, 3, |r, version| Ok((version, r.u8()?))).ok()
        };
        assert_eq!(read(&[2, 7]), Some((2, 7)));
        assert_eq!(read(&[3, 3, 1, 0, 0, 0, 7]), Some((3, 7)));
        assert_eq!(read(&[9, 5, 1, 0, 0, 0, 7]), None, "for newer readers");
        assert_eq!(read(&[]), None);
    }
}
