//! Frames of msgr2.1 in crc and in secure mode: cutting them from a receive buffer, and laying them out for a
//! vectored write.
//!
//! Invariants:
//! 1. The preamble is checked (crc; in secure mode its tag first) and its lengths are held against caps
//!    before anything else of the frame is waited for.
//! 2. A frame comes out only after every checksum or tag over it has been verified.
//! 3. Segments come out as slices of the receive buffer. Going out, data segments in crc mode are not copied.
//! 4. Large data in crc mode is read through once: its checksums are kept for the store and for frames that
//!    carry it on.
//!
//! Source: doc/dev/msgr2.rst, src/msg/async/frames_v2.cc.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use codec::crc32c;
use codec::sums::{self, crc32c_known, summed};

use crate::secure::{Gcm, TAG_LEN};
use crate::{Error, Limits, Tag, control::MessageHeader};

pub(crate) const MAX_SEGMENTS: usize = 4;
pub(crate) const PREAMBLE_LEN: usize = 32;
const INLINE_LEN: usize = 48;
const BLOCK: usize = 16;
const CRC_LEN: usize = 4;
const EPILOGUE_CRC_LEN: usize = 1 + 3 * CRC_LEN;
const LATE_ABORTED: u8 = 0x1;
const LATE_COMPLETE: u8 = 0xe;
/// Segment crcs start from all ones, the preamble's from zero.
pub(crate) const SEED: u32 = !0;
/// Alignments we state: of data a page, of the rest a word.
const ALIGNS: [u16; MAX_SEGMENTS] = [8, 8, 8, 4096];
/// Fronts up to this many bytes are copied beside the header: cheaper than one more element of a vectored
/// write.
const COALESCE: usize = 2048;

/// Data of at least so many bytes has a receive buffer for itself, which is used again when the data is
/// dropped.
const OWN_BUFFER: usize = 1 << 20;

/// Heads and epilogues of many frames share one buffer of this size.
const SMALL_ROOM: usize = 4096;

fn padded(len: usize) -> usize {
    len.next_multiple_of(BLOCK)
}

/// The checked head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub tag: Tag,
    pub segments: u8,
    pub lens: [u32; MAX_SEGMENTS],
}

impl Preamble {
    fn encode(&self, aligns: &[u16; MAX_SEGMENTS]) -> [u8; PREAMBLE_LEN] {
        let mut raw = [0u8; PREAMBLE_LEN];
        let mut at = &mut raw[..];
        at.put_u8(self.tag as u8);
        at.put_u8(self.segments);
        for (i, (len, align)) in self.lens.iter().zip(aligns).enumerate() {
            at.put_u32_le(*len);
            at.put_u16_le(if i < usize::from(self.segments) { *align } else { 0 });
        }
        let (covered, crc) = raw.split_at_mut(PREAMBLE_LEN - CRC_LEN);
        crc.copy_from_slice(&crc32c(0, covered).to_le_bytes());
        raw
    }

    fn decode(raw: &[u8]) -> Result<Self, Error> {
        let (covered, crc) = raw.split_last_chunk::<CRC_LEN>().ok_or(Error::BadPreambleCrc)?;
        if crc32c(0, covered) != u32::from_le_bytes(*crc) {
            return Err(Error::BadPreambleCrc);
        }
        let mut at = covered;
        let (tag, segments) = (at.try_get_u8().unwrap_or_default(), at.try_get_u8().unwrap_or_default());
        let tag = Tag::from_u8(tag).ok_or(Error::UnknownTag(tag))?;
        if segments == 0 || usize::from(segments) > MAX_SEGMENTS {
            return Err(Error::BadSegmentCount(segments));
        }
        let mut lens = [0u32; MAX_SEGMENTS];
        for (i, len) in lens.iter_mut().enumerate() {
            *len = at.try_get_u32_le().unwrap_or_default();
            at.advance(at.len().min(2)); // the alignment that the sender would like
            if i >= usize::from(segments) && *len != 0 {
                return Err(Error::BadSegmentCount(segments));
            }
        }
        if segments > 1 && lens.get(usize::from(segments) - 1) == Some(&0) {
            return Err(Error::EmptyLastSegment);
        }
        Ok(Self { tag, segments, lens })
    }

    /// Holds the claimed lengths against what the tag may have.
    fn check(&self, limits: &Limits) -> Result<(), Error> {
        let caps = if self.tag == Tag::Message {
            let header = MessageHeader::LEN as u32;
            if self.lens.first() != Some(&header) {
                return Err(Error::BadFrameShape { tag: self.tag, segments: self.segments });
            }
            [header, limits.front_bytes, limits.front_bytes, limits.data_bytes]
        } else {
            if self.segments != 1 {
                return Err(Error::BadFrameShape { tag: self.tag, segments: self.segments });
            }
            [self.tag.control_cap(), 0, 0, 0]
        };
        for (segment, (len, cap)) in self.lens.iter().zip(caps).enumerate() {
            if *len > cap {
                let (claimed, bound) = (u64::from(*len), u64::from(cap));
                return Err(Error::FrameTooLarge { tag: self.tag, segment, claimed, bound });
            }
        }
        Ok(())
    }

    fn len(&self, i: usize) -> usize {
        self.lens.get(i).map_or(0, |l| *l as usize)
    }

    /// Bytes of the first segment that follow the preamble block, with their crc or tag.
    fn first_len(&self, secure: bool) -> usize {
        match (secure, self.len(0)) {
            (false, 0) => 0,
            (false, n) => n + CRC_LEN,
            (true, n) if padded(n) <= INLINE_LEN => 0,
            (true, n) => padded(n) - INLINE_LEN + TAG_LEN,
        }
    }

    /// Bytes of the later segments and the epilogue.
    fn rest_len(&self, secure: bool) -> usize {
        if self.segments == 1 {
            return 0;
        }
        let later = (1..MAX_SEGMENTS).map(|i| self.len(i));
        if secure {
            later.map(padded).sum::<usize>() + BLOCK + TAG_LEN
        } else {
            later.sum::<usize>() + EPILOGUE_CRC_LEN
        }
    }
}

/// A verified frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub tag: Tag,
    pub segments: [Bytes; MAX_SEGMENTS],
    /// The sender gave this frame up half way: its payload means nothing.
    pub aborted: bool,
}

/// Cuts frames from a receive buffer.
#[derive(Default)]
pub(crate) struct FrameReader {
    gcm: Option<Gcm>,
    /// The preamble of the frame whose body is waited for, and what of its first segment came along.
    current: Option<(Preamble, [u8; INLINE_LEN])>,
    /// Raw bytes of all frames so far, while the handshake is not signed yet.
    pub transcript: Option<Vec<u8>>,
}

impl FrameReader {
    /// In crc mode, with a transcript.
    pub fn recording() -> Self {
        Self { transcript: Some(Vec::new()), ..Self::default() }
    }

    /// Everything from the next frame on is sealed.
    pub fn secure(&mut self, gcm: Gcm) {
        self.gcm = Some(gcm);
    }

    /// Bytes that must be in the buffer before `next` can get further.
    pub fn needs(&self) -> usize {
        let secure = self.gcm.is_some();
        match &self.current {
            Some((p, _)) => p.first_len(secure) + p.rest_len(secure),
            None if secure => PREAMBLE_LEN + INLINE_LEN + TAG_LEN,
            None => PREAMBLE_LEN,
        }
    }

    /// Whether a frame's head has come and its body has not.
    pub fn is_waiting(&self) -> bool {
        self.current.is_some()
    }

    /// Where in the buffer the data segment of the awaited frame will begin. `None` when the frame has none,
    /// or in secure mode, where decrypting moves it.
    pub fn data_at(&self) -> Option<usize> {
        let (p, _) = self.current.as_ref().filter(|_| self.gcm.is_none())?;
        let data = p.len(MAX_SEGMENTS - 1);
        (data > 0).then(|| p.first_len(false) + p.rest_len(false) - EPILOGUE_CRC_LEN - data)
    }

    /// Takes `n` bytes off the buffer, or `None` when they are not there yet.
    fn take(&mut self, buf: &mut BytesMut, n: usize) -> Option<BytesMut> {
        if buf.len() < n {
            return None;
        }
        let taken = buf.split_to(n);
        if let Some(t) = &mut self.transcript {
            t.extend_from_slice(&taken);
        }
        Some(taken)
    }

    /// The next whole frame, or `None` when it is not there yet. `admit` says whether this tag may come now.
    pub fn next(
        &mut self,
        buf: &mut BytesMut,
        limits: &Limits,
        admit: impl FnOnce(Tag) -> Result<(), Error>,
    ) -> Result<Option<Frame>, Error> {
        if self.current.is_none() {
            let mut inline = [0u8; INLINE_LEN];
            let preamble = match (&mut self.gcm, &self.transcript, buf.first_chunk::<PREAMBLE_LEN>()) {
                (None, None, None) => return Ok(None),
                // The usual case looks at the buffer without taking a part of it out.
                (None, None, Some(raw)) => {
                    let preamble = Preamble::decode(raw)?;
                    buf.advance(PREAMBLE_LEN);
                    preamble
                }
                _ => {
                    let n = self.needs();
                    let Some(mut raw) = self.take(buf, n) else { return Ok(None) };
                    if let Some(gcm) = &mut self.gcm {
                        gcm.open(&mut raw)?;
                        if let Some(plain) = raw.get(PREAMBLE_LEN..PREAMBLE_LEN + INLINE_LEN) {
                            inline.copy_from_slice(plain);
                        }
                    }
                    Preamble::decode(raw.get(..PREAMBLE_LEN).unwrap_or_default())?
                }
            };
            admit(preamble.tag)?;
            preamble.check(limits)?;
            self.current = Some((preamble, inline));
        }
        let n = self.needs();
        let Some((preamble, inline)) = self.current else { return Ok(None) };
        let Some(body) = self.take(buf, n) else { return Ok(None) };
        self.current = None;
        match &mut self.gcm {
            Some(gcm) => open_body(gcm, &preamble, &inline, body),
            None => crc_body(&preamble, body.freeze()),
        }
        .map(Some)
    }
}

/// Cuts later segments out of the bytes behind the first; each takes `room(len)` bytes.
fn later_segments(
    p: &Preamble,
    first: Bytes,
    rest: &mut codec::Reader,
    room: fn(usize) -> usize,
) -> Result<[Bytes; MAX_SEGMENTS], Error> {
    let mut segments = [first, Bytes::new(), Bytes::new(), Bytes::new()];
    for (i, segment) in segments.iter_mut().enumerate().skip(1) {
        let mut raw = rest.raw(room(p.len(i)))?;
        raw.truncate(p.len(i));
        *segment = raw;
    }
    Ok(segments)
}

fn is_aborted(late: u8) -> Result<bool, Error> {
    match late & 0xf {
        LATE_COMPLETE => Ok(false),
        LATE_ABORTED => Ok(true),
        _ => Err(Error::BadLateStatus(late)),
    }
}

fn crc_body(p: &Preamble, body: Bytes) -> Result<Frame, Error> {
    let mut r = codec::Reader::new(body);
    let first = r.raw(p.len(0))?;
    if !first.is_empty() && r.u32()? != crc32c(SEED, &first) {
        return Err(Error::BadSegmentCrc(0));
    }
    if p.segments == 1 {
        return Ok(Frame {
            tag: p.tag,
            segments: [first, Bytes::new(), Bytes::new(), Bytes::new()],
            aborted: false,
        });
    }
    let mut segments = later_segments(p, first, &mut r, |n| n)?;
    let aborted = is_aborted(r.u8()?)?;
    if p.len(MAX_SEGMENTS - 1) >= OWN_BUFFER {
        // Small segments are copied: a name out of one that is kept would otherwise keep the whole buffer.
        for segment in segments.iter_mut().filter(|s| s.len() <= COALESCE) {
            *segment = Bytes::copy_from_slice(segment);
        }
    }
    for (i, segment) in segments.iter_mut().enumerate().skip(1) {
        let claimed = r.u32()?;
        // The fields of segments that the frame does not have are zero, and not looked at.
        if i < usize::from(p.segments) && !aborted && claimed != checked(segment) {
            return Err(Error::BadSegmentCrc(i));
        }
    }
    Ok(Frame { tag: p.tag, segments, aborted })
}

/// The segment's checksum, which is kept when the segment is large.
fn checked(segment: &mut Bytes) -> u32 {
    if segment.len() < sums::WORTHWHILE {
        return crc32c(SEED, segment);
    }
    let (crc, sums) = summed(SEED, segment);
    *segment = sums::keep_received(std::mem::take(segment), sums);
    crc
}

fn open_body(gcm: &mut Gcm, p: &Preamble, inline: &[u8], mut body: BytesMut) -> Result<Frame, Error> {
    let mut remainder = body.split_to(p.first_len(true).min(body.len()));
    let first = if remainder.is_empty() {
        Bytes::copy_from_slice(inline.get(..p.len(0)).unwrap_or_default())
    } else {
        gcm.open(&mut remainder)?;
        let mut whole = BytesMut::with_capacity(INLINE_LEN + remainder.len());
        whole.put_slice(inline);
        whole.put_slice(&remainder);
        whole.truncate(p.len(0));
        whole.freeze()
    };
    if p.segments == 1 {
        return Ok(Frame {
            tag: p.tag,
            segments: [first, Bytes::new(), Bytes::new(), Bytes::new()],
            aborted: false,
        });
    }
    gcm.open(&mut body)?;
    let mut r = codec::Reader::new(body.freeze());
    let segments = later_segments(p, first, &mut r, padded)?;
    let aborted = is_aborted(r.u8()?)?;
    Ok(Frame { tag: p.tag, segments, aborted })
}

/// A segment that is written: its bytes lie in one buffer or in several.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segment<'a> {
    first: Option<&'a Bytes>,
    more: &'a [Bytes],
}

impl<'a> From<&'a Bytes> for Segment<'a> {
    fn from(first: &'a Bytes) -> Self {
        Self { first: Some(first), more: &[] }
    }
}

impl<'a> Segment<'a> {
    pub fn of(first: &'a Bytes, more: &'a [Bytes]) -> Self {
        Self { first: Some(first), more }
    }

    fn parts(self) -> impl Iterator<Item = &'a Bytes> {
        self.first.into_iter().chain(self.more)
    }

    fn len(self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    fn checksum(self) -> u32 {
        self.parts().fold(SEED, |register, part| crc32c_known(register, part))
    }
}

/// Lays frames out for writing: small parts gathered in buffers of our own, large payloads by reference
/// between them.
#[derive(Default)]
pub(crate) struct FrameWriter {
    gcm: Option<Gcm>,
    small: BytesMut,
    out: Vec<Bytes>,
    bytes: usize,
    /// Raw bytes of everything so far, while the handshake is not signed yet.
    pub transcript: Option<Vec<u8>>,
}

impl FrameWriter {
    /// In crc mode, with a transcript.
    pub fn recording() -> Self {
        Self { transcript: Some(Vec::new()), ..Self::default() }
    }

    /// Everything from the next frame on is sealed.
    pub fn secure(&mut self, gcm: Gcm) {
        self.gcm = Some(gcm);
    }

    /// Bytes waiting to be taken.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Moves what waits to `out`, in order.
    pub fn take(&mut self, out: &mut Vec<Bytes>) {
        self.flush_small();
        out.append(&mut self.out);
        self.bytes = 0;
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        if let Some(t) = &mut self.transcript {
            t.extend_from_slice(bytes);
        }
        self.bytes += bytes.len();
        if self.small.capacity() - self.small.len() < bytes.len() {
            self.small.reserve(bytes.len().max(SMALL_ROOM));
        }
        self.small.put_slice(bytes);
    }

    fn shared(&mut self, bytes: &Bytes) {
        self.bytes += bytes.len();
        self.flush_small();
        self.out.push(bytes.clone());
    }

    fn flush_small(&mut self) {
        if !self.small.is_empty() {
            self.out.push(self.small.split().freeze());
        }
    }

    /// A frame of one segment.
    pub fn control(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Error> {
        self.frame(tag, payload, [Segment::default(); 3])
    }

    /// A frame of the given segments; trailing empty ones are left out.
    pub fn frame(&mut self, tag: Tag, first: &[u8], later: [Segment<'_>; 3]) -> Result<(), Error> {
        let mut lens = [first.len() as u32, 0, 0, 0];
        let mut segments = 1u8;
        for ((i, len), s) in (1u8..).zip(lens.iter_mut().skip(1)).zip(later) {
            *len = s.len() as u32;
            if *len != 0 {
                segments = i + 1;
            }
        }
        let preamble = Preamble { tag, segments, lens };
        match self.gcm.take() {
            None => self.crc_frame(&preamble, first, later),
            Some(mut gcm) => {
                let result = self.sealed_frame(&mut gcm, &preamble, first, later);
                self.gcm = Some(gcm);
                result?;
            }
        }
        Ok(())
    }

    fn crc_frame(&mut self, p: &Preamble, first: &[u8], later: [Segment<'_>; 3]) {
        self.raw(&p.encode(&ALIGNS));
        if !first.is_empty() {
            self.raw(first);
            self.raw(&crc32c(SEED, first).to_le_bytes());
        }
        if p.segments == 1 {
            return;
        }
        let mut epilogue = [0u8; EPILOGUE_CRC_LEN];
        let mut at = &mut epilogue[..];
        at.put_u8(LATE_COMPLETE);
        for (i, segment) in (1u8..).zip(later) {
            if i < p.segments {
                at.put_u32_le(segment.checksum());
            }
            for part in segment.parts() {
                if i < 3 && part.len() <= COALESCE {
                    self.raw(part);
                } else if !part.is_empty() {
                    self.shared(part);
                }
            }
        }
        self.raw(&epilogue);
    }

    fn sealed_frame(
        &mut self,
        gcm: &mut Gcm,
        p: &Preamble,
        first: &[u8],
        later: [Segment<'_>; 3],
    ) -> Result<(), Error> {
        let before = self.small.len();
        let (inline, remainder) = first.split_at(first.len().min(INLINE_LEN));
        self.sealed_block(gcm, PREAMBLE_LEN + INLINE_LEN, |block| {
            block.put_slice(&p.encode(&ALIGNS));
            block.put_slice(inline);
        })?;
        if !remainder.is_empty() {
            self.sealed_block(gcm, padded(remainder.len()), |block| block.put_slice(remainder))?;
        }
        if p.segments > 1 {
            let len = later.iter().map(|s| padded(s.len())).sum::<usize>() + BLOCK;
            self.sealed_block(gcm, len, |block| {
                for segment in later {
                    segment.parts().for_each(|part| block.put_slice(part));
                    block.put_bytes(0, padded(segment.len()) - segment.len());
                }
                block.put_u8(LATE_COMPLETE);
            })?;
        }
        self.bytes += self.small.len() - before;
        Ok(())
    }

    /// Appends `len` bytes, of which `fill` writes the front and the rest is zero, sealed, and their tag.
    fn sealed_block(
        &mut self,
        gcm: &mut Gcm,
        len: usize,
        fill: impl FnOnce(&mut BytesMut),
    ) -> Result<(), Error> {
        self.small.reserve(len + TAG_LEN);
        let start = self.small.len();
        fill(&mut self.small);
        self.small.resize(start + len, 0);
        let tag = gcm.seal(self.small.get_mut(start..).unwrap_or_default())?;
        self.small.put_slice(&tag);
        Ok(())
    }
}
