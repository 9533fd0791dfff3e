//! Crashes of the media at every point, a naive model beside the log, and files that are not this image's.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use writeback::{
    AREA_START, Batch, BatchWork, Log, MIN_FILE_LEN, Media, MediaWrite, Op, OpenError, Segment, Source,
};

const IMAGE: usize = 64 << 10;
const NAME: &str = "image-a";

/// A file whose unflushed sectors may be lost one by one.
#[derive(Clone)]
struct Disk {
    durable: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

impl Disk {
    fn new() -> Self {
        let mut disk = Self { durable: vec![0; MIN_FILE_LEN as usize], pending: vec![] };
        for write in Log::format(NAME, MIN_FILE_LEN, *b"0123456789abcdef") {
            disk.write(&write);
        }
        disk.flush();
        disk
    }

    fn write(&mut self, write: &MediaWrite) {
        let bytes = write.data.concat();
        for (i, sector) in bytes.chunks(512).enumerate() {
            self.pending.push((write.pos + i as u64 * 512, sector.to_vec()));
        }
    }

    fn flush(&mut self) {
        for (pos, bytes) in std::mem::take(&mut self.pending) {
            self.durable[pos as usize..pos as usize + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// What is left when of the pending sectors only those that `survives` picks were written.
    fn crashed(&self, mut survives: impl FnMut(usize) -> bool) -> Self {
        let mut disk = self.clone();
        let mut n = 0;
        disk.pending.retain(|_| {
            n += 1;
            survives(n - 1)
        });
        disk.flush();
        disk
    }

    fn open(&mut self) -> Result<Log, OpenError> {
        self.flush();
        let (mut log, first) = Log::open(&Flat(&self.durable), NAME)?;
        self.write(&first);
        self.flush();
        log.superblock_durable();
        log.assert_invariants();
        if !log.is_claimed() {
            let claim = log.claim(7);
            self.write_superblock(&mut log, &claim);
        }
        Ok(log)
    }

    fn write_superblock(&mut self, log: &mut Log, write: &MediaWrite) {
        self.write(write);
        self.flush();
        log.superblock_durable();
        log.assert_invariants();
    }

    /// The file as programs see it, unflushed writes included.
    fn seen(&self) -> Vec<u8> {
        self.crashed(|_| true).durable
    }
}

struct Flat<'a>(&'a [u8]);

impl Media for Flat<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, pos: u64, len: usize) -> Result<Bytes, String> {
        let range = pos as usize..pos as usize + len;
        self.0.get(range).map(Bytes::copy_from_slice).ok_or("behind the end".into())
    }
}

fn apply(image: &mut [u8], op: &Op) {
    let (start, end) = op.range();
    let range = &mut image[start as usize..end as usize];
    match op {
        Op::Write { data, .. } => range.copy_from_slice(data),
        Op::Zero { .. } => range.fill(0),
    }
}

fn load(file: &[u8], source: Source, len: u64) -> Vec<u8> {
    match source {
        Source::Zero { .. } => vec![0; len as usize],
        Source::Record { record, skip } => {
            let bytes = Flat(file).read(record.pos, record.len).expect("in the file");
            let data = record.data(&bytes).expect("the record is there");
            data[skip as usize..(skip + len) as usize].to_vec()
        }
    }
}

/// The image as a client sees it through the cache.
fn merged(log: &Log, file: &[u8], image: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in log.read(0, image.len() as u64) {
        match segment {
            Segment::Clean { offset, len } => {
                out.extend_from_slice(&image[offset as usize..(offset + len) as usize]);
            }
            Segment::Dirty { source, len, .. } => out.extend(load(file, source, len)),
        }
    }
    out
}

fn write_back(batch: &Batch, file: &[u8], image: &mut [u8]) {
    for piece in &batch.pieces {
        let target = &mut image[piece.offset as usize..(piece.offset + piece.len) as usize];
        match &piece.work {
            BatchWork::Zero { .. } => target.fill(0),
            BatchWork::Write(parts) => {
                let data: Vec<u8> = parts.iter().flat_map(|(s, len)| load(file, *s, *len)).collect();
                target.copy_from_slice(&data);
            }
        }
    }
}

fn write_op(offset: u64, len: usize, fill: u8) -> Op {
    Op::Write { offset, data: Bytes::from(vec![fill; len]) }
}

fn some_op(rng: &mut impl FnMut(u64) -> u64) -> Op {
    let len = 1 + rng(9000);
    let offset = rng(IMAGE as u64 - len);
    match rng(5) {
        0 => Op::Zero { offset, len, punch: rng(2) == 0 },
        _ => write_op(offset, len as usize, 1 + rng(255) as u8),
    }
}

/// splitmix64: enough for choosing cases.
fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

#[test]
fn a_log_cut_at_every_byte_replays_a_prefix_of_its_records() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let mut rng = random(1);
    let mut states = vec![vec![0; IMAGE]];
    let mut ends = vec![AREA_START];
    for i in 0..6 {
        let op = write_op(rng(9000), 1 + rng(700) as usize, 1 + i);
        let appended = log.append(&op).expect("fits");
        let write = appended.writes.last().expect("writes");
        ends.push(write.pos + write.data.iter().map(Bytes::len).sum::<usize>() as u64);
        disk.write(write);
        let mut image = states.last().expect("one").clone();
        apply(&mut image, &op);
        states.push(image);
    }
    let file = disk.seen();
    let (base, end) = (disk.durable.clone(), *ends.last().expect("ends"));
    for cut in AREA_START..=end {
        let mut torn = base.clone();
        torn[AREA_START as usize..cut as usize].copy_from_slice(&file[AREA_START as usize..cut as usize]);
        let (opened, _) = Log::open(&Flat(&torn), NAME).expect("a torn tail is no error");
        let whole = ends.iter().filter(|e| **e <= cut).count() - 1;
        let merged = merged(&opened, &torn, &vec![0; IMAGE]);
        // Only padding may be missing of one record more.
        assert!(merged == states[whole] || states.get(whole + 1) == Some(&merged), "cut at {cut}");
    }
}

/// Runs a session with crashes: after each, what was acknowledged is there, and what is there is a prefix.
fn crashes(seed: u64) {
    let mut rng = random(seed);
    let mut disk = Disk::new();
    let mut image = vec![0u8; IMAGE];
    let mut expected = image.clone();
    for _ in 0..8 {
        let mut log = disk.open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(merged(&log, &disk.durable, &image) == expected, "seed {seed}: lost or invented a write");
        let mut in_flight = vec![];
        for _ in 0..rng(60) {
            step(&mut log, &mut disk, &mut image, &mut expected, &mut in_flight, &mut rng);
        }
        let lost = rng(3);
        disk = disk.crashed(|_| lost == 0 || (lost == 1 && rng(2) == 0));
        // Of the unacknowledged operations some prefix may have survived: find which one.
        let opened = disk.clone().open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let found = merged(&opened, &disk.durable, &image);
        let mut candidate = expected.clone();
        let mut fits = candidate == found;
        for (_, op) in &in_flight {
            if fits {
                break;
            }
            apply(&mut candidate, op);
            fits = candidate == found;
        }
        assert!(fits, "seed {seed}: neither the acknowledged state nor one on the way from it");
        expected = found;
    }
}

fn step(
    log: &mut Log,
    disk: &mut Disk,
    image: &mut [u8],
    expected: &mut [u8],
    in_flight: &mut Vec<(u64, Op)>,
    rng: &mut impl FnMut(u64) -> u64,
) {
    match rng(8) {
        0..=3 => {
            let op = some_op(rng);
            if let Ok(appended) = log.append(&op) {
                appended.writes.iter().for_each(|w| disk.write(w));
                in_flight.push((appended.seq, op));
            }
        }
        4 => {
            disk.flush();
            if let Some((seq, _)) = in_flight.last() {
                log.committed(*seq);
            }
            in_flight.drain(..).for_each(|(_, op)| apply(expected, &op));
        }
        5 => log.barrier(),
        6 => {
            if let Some(batch) = log.next_batch(1 + rng(30_000)) {
                write_back(&batch, &disk.seen(), image);
                // Sometimes the crash comes between the image's flush and the word of it.
                if rng(4) > 0 {
                    log.retire(&batch);
                }
            }
        }
        _ => {
            if log.has_space_to_free() {
                let write = log.superblock_write();
                disk.write(&write);
                // The flush covers records too, but they are acknowledged only when the shell says so.
                disk.flush();
                log.superblock_durable();
            }
        }
    }
    log.assert_invariants();
    if rng(4) == 0 {
        assert!(merged(log, &disk.seen(), image) == *expected);
    }
}

#[test]
fn crashes_lose_nothing_acknowledged() {
    for seed in 0..100 {
        crashes(seed);
    }
}

#[test]
fn the_log_wraps_many_times_and_fills_up() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let (mut image, mut expected) = (vec![0u8; IMAGE], vec![0u8; IMAGE]);
    let mut rng = random(7);
    let mut full = 0;
    for _ in 0..3000 {
        let op = some_op(&mut rng);
        match log.append(&op) {
            Ok(appended) => {
                appended.writes.iter().for_each(|w| disk.write(w));
                disk.flush();
                log.committed(appended.seq);
                apply(&mut expected, &op);
            }
            Err(_) => {
                full += 1;
                while let Some(batch) = log.next_batch(100_000) {
                    write_back(&batch, &disk.durable, &mut image);
                    log.retire(&batch);
                }
                assert_eq!(image, expected);
                let write = log.superblock_write();
                disk.write(&write);
                disk.flush();
                log.superblock_durable();
            }
        }
        log.assert_invariants();
    }
    assert!(full > 5, "the log was filled {full} times");
    let reopened = disk.open().expect("opens");
    assert_eq!(merged(&reopened, &disk.durable, &image), expected);
}

#[test]
fn groups_keep_flushes_apart_and_batches_take_the_newest() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let mut put = |log: &mut Log, op: Op| {
        let appended = log.append(&op).expect("fits");
        appended.writes.iter().for_each(|w| disk.write(w));
        log.committed(appended.seq);
    };
    put(&mut log, write_op(0, 100, 1));
    put(&mut log, write_op(100, 100, 2));
    put(&mut log, write_op(50, 100, 3));
    log.barrier();
    log.barrier();
    put(&mut log, write_op(0, 10, 4));
    let batch = log.next_batch(u64::MAX).expect("dirty");
    let shape: Vec<_> = batch.pieces.iter().map(|p| (p.offset, p.len)).collect();
    assert_eq!(shape, [(0, 200)], "neighbours are joined, overwritten bytes are left out");
    log.retire(&batch);
    let next = log.next_batch(u64::MAX).expect("the second group");
    assert_eq!(next.bytes(), 10);
    log.retire(&next);
    assert!(log.is_clean() && log.next_batch(u64::MAX).is_none());
}

#[test]
fn other_files_are_refused() {
    let disk = Disk::new();
    let open = |file: &[u8], name: &str| Log::open(&Flat(file), name).map(|_| ());
    let other = OpenError::OtherImage { found: NAME.into(), wanted: "image-b".into() };
    assert_eq!(open(&disk.durable, "image-b"), Err(other));
    assert_eq!(open(&[], NAME), Err(OpenError::NotACache));
    assert_eq!(open(&[0; 9000], NAME), Err(OpenError::NotACache));
    let short = &disk.durable[..20_000];
    assert!(matches!(open(short, NAME), Err(OpenError::Truncated { .. })));
}

#[test]
fn a_damaged_acknowledged_record_is_noticed() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let mut positions = vec![];
    for i in 0..4 {
        let appended = log.append(&write_op(i * 1000, 1000, 9)).expect("fits");
        positions.push(appended.writes[0].pos);
        appended.writes.iter().for_each(|w| disk.write(w));
        disk.flush();
        log.committed(appended.seq);
    }
    for (i, pos) in positions.iter().enumerate() {
        let mut rotten = disk.clone();
        rotten.durable[*pos as usize + 100] ^= 1;
        let found = Log::open(&Flat(&rotten.durable), NAME).map(|_| ());
        // Nothing behind the last record tells that it was acknowledged.
        let expected = if i < 3 { Err(OpenError::Damaged { seq: 1 + i as u64 }) } else { Ok(()) };
        assert_eq!(found, expected, "record {i}");
    }
}

/// A record that was never acknowledged may lie intact just where a later session's log ends.
#[test]
fn an_older_sessions_record_at_the_tail_is_not_replayed() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let sectors = |log: &mut Log, disk: &mut Disk, op: &Op| {
        let before = disk.pending.len();
        let appended = log.append(op).expect("fits");
        appended.writes.iter().for_each(|w| disk.write(w));
        (appended.seq, disk.pending.len() - before)
    };
    let (first, len) = sectors(&mut log, &mut disk, &write_op(0, 1000, 1));
    let (unacknowledged, _) = sectors(&mut log, &mut disk, &write_op(4000, 1000, 2));
    disk = disk.crashed(|n| n >= len);

    let mut log = disk.open().expect("a torn tail is no error");
    let (again, _) = sectors(&mut log, &mut disk, &write_op(8000, 1000, 3));
    assert_eq!((again, again + 1), (first, unacknowledged), "the new record ends where the old one starts");
    disk.flush();
    log.committed(again);
    let mut image = vec![0; IMAGE];
    let batch = log.next_batch(u64::MAX).expect("dirty");
    write_back(&batch, &disk.durable, &mut image);
    log.retire(&batch);
    let write = log.superblock_write();
    disk.write(&write);

    let reopened = disk.open().expect("opens");
    assert_eq!(reopened.stats().dirty_records, 0);
    assert!(merged(&reopened, &disk.durable, &image) == image, "replayed what nobody was told of");
}

#[test]
fn one_torn_superblock_leaves_the_other() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let appended = log.append(&write_op(0, 1000, 9)).expect("fits");
    appended.writes.iter().for_each(|w| disk.write(w));
    disk.flush();
    log.committed(appended.seq);
    let batch = log.next_batch(u64::MAX).expect("dirty");
    log.retire(&batch);
    let write = log.superblock_write();
    for keep in 0..8 {
        let mut torn = disk.clone();
        torn.write(&write);
        let mut torn = torn.crashed(|n| n != keep);
        torn.open().expect("the older superblock is there");
    }
}

/// What a file says when it is opened after a crash: its token, whether it is claimed, and how many records are dirty.
fn said(disk: &Disk) -> (String, bool, u64) {
    let (log, _) = Log::open(&Flat(&disk.durable), NAME).expect("opens");
    (log.token(), log.is_claimed(), log.stats().dirty_records)
}

#[test]
fn claims_at_every_point_of_a_crash() {
    let mut disk = Disk::new();
    let (unclaimed, is_claimed, _) = said(&disk);
    assert!(!is_claimed);
    let mut log = disk.open().expect("opens");
    let token = log.token();
    assert_ne!(token, unclaimed, "each claim has a token of its own");
    assert_eq!(said(&disk), (token.clone(), true, 0));
    let appended = log.append(&write_op(0, 1000, 9)).expect("fits");
    appended.writes.iter().for_each(|w| disk.write(w));
    disk.flush();
    log.committed(appended.seq);
    assert_eq!(said(&disk), (token.clone(), true, 1));
    let dirty = disk.clone();

    let batch = log.next_batch(u64::MAX).expect("dirty");
    log.retire(&batch);
    assert_eq!(said(&disk), (token.clone(), true, 1), "the file does not know yet that the image has it");
    let settled = log.settle();
    disk.write(&settled);
    assert_eq!(said(&disk.crashed(|_| false)), (token.clone(), true, 1));
    // Without its first sector it is none, and the older one counts.
    assert_eq!(said(&disk.crashed(|n| n > 0)), (token.clone(), true, 1));
    assert_eq!(said(&disk.crashed(|_| true)), (token.clone(), false, 0));
    disk.flush();
    log.superblock_durable();
    let claim = log.claim(8);
    disk.write_superblock(&mut log, &claim);
    assert_ne!(log.token(), token);

    // A copy of the clean file that is claimed too has another token.
    let mut copy = disk.clone();
    let mut twin = copy.open().expect("opens");
    let settled = twin.settle();
    copy.write_superblock(&mut twin, &settled);
    let claims = [1, u64::MAX].map(|random| {
        let (mut disk, mut log) = (copy.clone(), twin.clone());
        let claim = log.claim(random);
        disk.write_superblock(&mut log, &claim);
        said(&disk).0
    });
    assert_ne!(claims[0], claims[1]);

    // Records given up are not replayed, whatever lies behind the tail.
    let mut disk = dirty;
    let mut log = disk.open().expect("opens");
    assert_eq!(log.stats().dirty_records, 1);
    let discard = log.discard();
    disk.write_superblock(&mut log, &discard);
    assert_eq!(log.read(0, 1000), [Segment::Clean { offset: 0, len: 1000 }]);
    assert_eq!(said(&disk), (token, false, 0));
}

/// The slot that was written last is lost to the media: what is dirty has a token that proves nothing.
#[test]
fn dirty_records_without_their_claim_have_an_older_token() {
    let mut disk = Disk::new();
    let unclaimed = said(&disk).0;
    let (mut log, first) = Log::open(&Flat(&disk.durable), NAME).expect("opens");
    disk.write_superblock(&mut log, &first);
    let claim = log.claim(9);
    disk.write_superblock(&mut log, &claim);
    let appended = log.append(&write_op(0, 1000, 9)).expect("fits");
    appended.writes.iter().for_each(|w| disk.write(w));
    disk.flush();
    disk.durable[claim.pos as usize + 20] ^= 1;
    assert_eq!(said(&disk), (unclaimed, true, 1));
}

#[test]
#[should_panic(expected = "only while the file is claimed")]
fn nothing_is_appended_to_a_file_that_is_not_claimed() {
    let mut disk = Disk::new();
    let mut log = disk.open().expect("opens");
    let settled = log.settle();
    disk.write_superblock(&mut log, &settled);
    let _ = log.append(&write_op(0, 1, 1));
}

proptest! {
    #[test]
    fn any_bytes_of_a_file_are_survived(flips in prop::collection::vec((0usize..20_000, any::<u8>()), 0..40)) {
        let mut disk = Disk::new();
        let mut log = disk.open().expect("opens");
        for i in 0..6 {
            let appended = log.append(&write_op(i * 700, 900, 9)).expect("fits");
            appended.writes.iter().for_each(|w| disk.write(w));
        }
        disk.flush();
        for (at, value) in flips {
            disk.durable[at] = value;
        }
        if let Ok((log, _)) = Log::open(&Flat(&disk.durable), NAME) {
            log.assert_invariants();
        }
    }

    #[test]
    fn the_index_agrees_with_a_byte_map(ops in prop::collection::vec((0u64..300, 1u64..60), 1..40)) {
        let mut disk = Disk::new();
        let mut log = disk.open().expect("opens");
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for (offset, len) in ops {
            let appended = log.append(&Op::Zero { offset, len, punch: true }).expect("fits");
            log.committed(appended.seq);
            (offset..offset + len).for_each(|b| { model.insert(b, appended.seq); });
        }
        let mut dirty = vec![];
        for segment in log.read(0, 400) {
            if let Segment::Dirty { offset, len, .. } = segment {
                dirty.extend(offset..offset + len);
            }
        }
        prop_assert_eq!(dirty, model.keys().copied().collect::<Vec<_>>());
    }
}
