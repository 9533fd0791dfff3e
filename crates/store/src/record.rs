//! The form of a log record: a head, then the transactions of one commit, padded to whole blocks.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::alloc::Run;
use crate::checksum::{BLOCK, Crc32c, crc32c_pieces};
use crate::stage::{Placement, SmallBlock};
use crate::superblock::LogPosition;
use crate::txn::Txn;
use crate::txn_wire::decode_head;

const MAGIC: [u8; 4] = *b"LOGr";
/// Length of a record's head, in bytes.
pub(crate) const RECORD_HEAD: usize = 64;
/// What a transaction costs in a record beside its head and payload.
pub(crate) const TXN_OVERHEAD: usize = 8;

/// What a record says about itself. Its checksum covers this and the body, but not the padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) position: LogPosition,
    /// Highest record known durable when this one was written.
    pub(crate) durable_record: u64,
    /// The superblock's generation then.
    pub(crate) generation: u64,
    pub(crate) first_txn: u64,
    pub(crate) txns: u32,
    pub(crate) body_len: u32,
    /// Of the formatting; a record of an earlier one does not count.
    pub(crate) salt: u32,
}

impl RecordHead {
    /// Length in the log, padding included.
    pub(crate) fn padded_len(&self) -> u64 {
        padded(self.body_len as usize) as u64
    }

    /// The head's bytes, with the checksum over it and the body's pieces.
    pub(crate) fn seal<'a>(&self, body: impl Iterator<Item = &'a [u8]>) -> [u8; RECORD_HEAD] {
        let raw = self.encode_with_crc(0);
        let mut crc = Crc32c::new();
        crc.update(&raw);
        body.for_each(|piece| crc.update(piece));
        self.encode_with_crc(crc.value())
    }

    fn encode_with_crc(&self, crc: u32) -> [u8; RECORD_HEAD] {
        let mut w = Writer::with_capacity(RECORD_HEAD);
        w.raw(&MAGIC);
        w.u32(crc);
        self.position.encode(&mut w);
        w.u64(self.durable_record);
        w.u64(self.generation);
        w.u64(self.first_txn);
        w.u32(self.txns);
        w.u32(self.body_len);
        w.u32(self.salt);
        w.zeros(RECORD_HEAD - w.len());
        w.as_slice().first_chunk().copied().unwrap_or([0; RECORD_HEAD])
    }

    /// The head and its checksum; `None` when this is no record.
    pub(crate) fn parse(raw: &[u8]) -> Option<(Self, u32)> {
        let raw = raw.get(..RECORD_HEAD)?;
        let mut r = Reader::new(Bytes::copy_from_slice(raw));
        if r.array::<4>().ok()? != MAGIC {
            return None;
        }
        Self::decode(&mut r).ok().filter(|(head, crc)| head.encode_with_crc(*crc) == raw)
    }

    fn decode(r: &mut Reader) -> Result<(Self, u32), DecodeError> {
        let crc = r.u32()?;
        let head = Self {
            position: LogPosition::decode(r)?,
            durable_record: r.u64()?,
            generation: r.u64()?,
            first_txn: r.u64()?,
            txns: r.u32()?,
            body_len: r.u32()?,
            salt: r.u32()?,
        };
        Ok((head, crc))
    }

    /// Whether the checksum fits head and body.
    pub(crate) fn verifies(&self, crc: u32, body: &[u8]) -> bool {
        let raw = self.encode_with_crc(0);
        crc32c_pieces([raw.as_slice(), body]) == crc
    }
}

/// Length of a record with a body of so many bytes.
pub(crate) fn padded(body_len: usize) -> usize {
    (RECORD_HEAD + body_len).next_multiple_of(BLOCK)
}

/// A transaction's part of a record before it is known where its small writes go.
#[derive(Debug, Clone)]
pub(crate) struct LoggedTxn {
    /// The change list.
    head: Bytes,
    placements: Vec<Placement>,
    payloads: Payloads,
    len: usize,
}

/// What its writes write; most transactions have one, which needs no list.
#[derive(Debug, Clone, Default)]
struct Payloads {
    first: Option<Payload>,
    more: Vec<Payload>,
}

impl Payloads {
    fn push(&mut self, payload: Payload) {
        match self.first {
            None => self.first = Some(payload),
            Some(_) => self.more.push(payload),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Payload> {
        self.first.iter().chain(&self.more)
    }
}

/// What a write writes, when it is not placed already.
#[derive(Debug, Clone)]
struct Payload {
    data: Bytes,
    /// The commit decides whether it is placed.
    small: bool,
}

impl LoggedTxn {
    /// `txn` with the payloads of the placed writes left out; `small` are blocks of writes that the commit may place.
    pub(crate) fn new(txn: &Txn, placements: Vec<Placement>, small: &[SmallBlock]) -> Self {
        let mut payloads = Payloads::default();
        let (mut placed, mut undecided) = (placements.iter().peekable(), small);
        for (at, data) in txn.writes() {
            if placed.next_if(|p| p.op as usize == at).is_some() {
                continue;
            }
            let mine = undecided.iter().take_while(|b| b.op as usize == at).count();
            undecided = undecided.get(mine..).unwrap_or_default();
            payloads.push(Payload { data: data.clone(), small: mine > 0 });
        }
        let head = txn.head();
        let placements_len =
            placements.iter().map(|p| 12 + 8 * p.runs.len() + 4 * p.crcs.len()).sum::<usize>();
        let payload_len = payloads.iter().map(|p| p.data.len()).sum::<usize>();
        let len = TXN_OVERHEAD + head.len() + 4 + placements_len + payload_len;
        Self { head, placements, payloads, len }
    }

    /// Bytes in the record's body, at most: a placement is shorter than what it places.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A record's body in the making.
#[derive(Default)]
pub(crate) struct RecordBody {
    frames: Writer,
    /// Payloads, each with where in `frames` it belongs.
    payloads: Vec<(usize, Bytes)>,
    payload_len: usize,
}

impl RecordBody {
    /// Adds a transaction; with `placed`, the blocks of its small writes, their payloads stay out.
    pub(crate) fn push(&mut self, txn: LoggedTxn, placed: Option<&[SmallBlock]>) {
        let stays = |p: &Payload| placed.is_none() || !p.small;
        let payload_len: usize = txn.payloads.iter().filter(|p| stays(p)).map(|p| p.data.len()).sum();
        let small = placed.unwrap_or_default().chunk_by(|a, b| a.op == b.op);
        let w = &mut self.frames;
        let start = w.len();
        w.u32(0);
        w.u32(payload_len as u32);
        w.raw(&txn.head);
        w.count(txn.placements.len() + small.clone().count());
        txn.placements.iter().for_each(|p| p.encode(w));
        small.for_each(|blocks| encode_placed(blocks, w));
        w.patch_u32(start, (w.len() - start - TXN_OVERHEAD) as u32);
        let at = w.len();
        self.payload_len += payload_len;
        let Payloads { first, more } = txn.payloads;
        self.payloads.extend(first.into_iter().chain(more).filter(stays).map(|p| (at, p.data)));
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len() + self.payload_len
    }

    /// The body in pieces.
    pub(crate) fn into_pieces(self) -> Vec<Bytes> {
        let mut frames = self.frames.into_bytes();
        let mut pieces = Vec::with_capacity(2 * self.payloads.len() + 1);
        let mut done = 0;
        for (at, payload) in self.payloads {
            if at > done {
                pieces.push(frames.split_to(at - done));
                done = at;
            }
            pieces.push(payload);
        }
        if !frames.is_empty() {
            pieces.push(frames);
        }
        pieces
    }
}

/// The blocks of one write as a `Placement`.
fn encode_placed(blocks: &[SmallBlock], w: &mut Writer) {
    let runs = blocks.chunk_by(|a, b| a.place + 1 == b.place);
    w.u32(blocks.first().map_or(0, |b| b.op));
    w.count(runs.clone().count());
    for run in runs {
        Run::new(run.first().map_or(0, |b| b.place), run.len() as u32).encode(w);
    }
    w.count(blocks.len());
    blocks.iter().for_each(|b| w.u32(b.crc));
}

/// Reads the next transaction of a record's body, with the placements of the writes that have no payload there.
pub(crate) fn read_logged(r: &mut Reader) -> Result<(Txn, Vec<Placement>), DecodeError> {
    let (head_len, payload_len) = (r.u32()? as usize, r.u32()? as usize);
    let (head, mut placements) =
        r.bounded(head_len, |r| Ok((decode_head(r)?, Vec::<Placement>::decode(r)?)))?;
    let mut payload = Reader::new(r.raw(payload_len)?);
    let txn = head.with_payloads(|at, len| match placements.iter_mut().find(|p| p.op as usize == at) {
        Some(p) => {
            p.len = len as u64;
            Ok(Bytes::new())
        }
        None => payload.raw(len),
    })?;
    Ok((txn, placements))
}

#[cfg(test)]
mod tests {
    use types::{HObject, PoolId};

    use super::*;
    use crate::ObjectKey;

    fn head() -> RecordHead {
        RecordHead {
            position: LogPosition { offset: 8192, record: 5 },
            durable_record: 4,
            generation: 2,
            first_txn: 9,
            txns: 2,
            body_len: 10,
            salt: 7,
        }
    }

    #[test]
    fn every_flipped_bit_of_head_and_body_is_noticed() {
        let body = b"0123456789";
        let raw: Vec<u8> =
            head().seal([&body[..4], &body[4..]].into_iter()).iter().chain(body).copied().collect();
        for at in 0..raw.len() {
            for bit in 0..8 {
                let mut bad = raw.clone();
                bad[at] ^= 1 << bit;
                let good =
                    RecordHead::parse(&bad).is_some_and(|(h, crc)| h.verifies(crc, &bad[RECORD_HEAD..]));
                assert!(!good, "byte {at}");
            }
        }
        let (parsed, crc) = RecordHead::parse(&raw).expect("own head");
        assert!(parsed == head() && parsed.verifies(crc, body));
    }

    fn body(txn: LoggedTxn, placed: Option<&[SmallBlock]>) -> Vec<u8> {
        let bound = txn.len();
        let mut body = RecordBody::default();
        body.push(txn, placed);
        let len = body.len();
        let raw = body.into_pieces().concat();
        assert!(raw.len() == len && len <= bound);
        raw
    }

    #[test]
    fn small_writes_are_placed_or_stay_as_the_commit_decides() {
        let key = ObjectKey::replicated(HObject { name: "o".into(), pool: PoolId(1), ..HObject::min() });
        let mut t = Txn::new();
        t.write(&key, 0, vec![1; 8192]).write(&key, 100, vec![2; 10]).write(&key, 8192, vec![3; 4096]);
        let block = |op, place, crc, v| SmallBlock { op, place, crc, content: vec![v; 4096].into() };
        let small = [block(0, 9, 3, 1), block(0, 11, 4, 1), block(2, 12, 5, 3)];
        let logged = LoggedTxn::new(&t, Vec::new(), &small);
        let read = |raw: Vec<u8>| {
            let (txn, placements) = read_logged(&mut Reader::new(raw.into())).expect("own form");
            (txn.payloads().map(Bytes::len).collect::<Vec<_>>(), placements)
        };
        assert_eq!(read(body(logged.clone(), None)), (vec![8192, 10, 4096], Vec::new()));
        let first =
            Placement { op: 0, runs: vec![Run::new(9, 1), Run::new(11, 1)], crcs: vec![3, 4], len: 8192 };
        let last = Placement { op: 2, runs: vec![Run::new(12, 1)], crcs: vec![5], len: 4096 };
        assert_eq!(read(body(logged, Some(&small))), (vec![0, 10, 0], vec![first, last]));
    }

    #[test]
    fn a_placed_payload_stays_out_of_the_record() {
        let key = ObjectKey::replicated(HObject { name: "o".into(), pool: PoolId(1), ..HObject::min() });
        let mut t = Txn::new();
        t.write(&key, 0, vec![1; 8192]).write(&key, 8192, vec![2; 10]);
        let p = Placement { op: 0, runs: vec![Run::new(9, 2)], crcs: vec![3, 4], len: 8192 };
        let logged = LoggedTxn::new(&t, vec![p.clone()], &[]);
        assert!(logged.len() < 300);
        let raw = body(logged, None);
        let (back, placements) = read_logged(&mut Reader::new(raw.clone().into())).expect("own form");
        assert_eq!(placements, vec![p]);
        assert_eq!(back.payloads().map(Bytes::len).collect::<Vec<_>>(), vec![0, 10]);
        assert_eq!(back.payloads().nth(1).map(|b| b.as_ref()), Some(&[2u8; 10][..]));
        for n in 0..raw.len() {
            assert!(read_logged(&mut Reader::new(raw[..n].to_vec().into())).is_err());
        }
    }
}
