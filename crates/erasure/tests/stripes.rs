//! Reads and writes of ranges of objects against a naive object: its bytes, padded with zeros and encoded as
//! a whole.

use std::collections::BTreeMap;

use erasure::{Change, ChunkSet, Codec, CodecError, Profile, Simd, Stripes};
use testkit::Rng;

fn codec(words: &[(&str, &str)]) -> Codec {
    let values: BTreeMap<String, String> =
        words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Codec::new(&Profile::new(&values).unwrap_or_else(|e| panic!("{words:?}: {e}")), Simd::Detected)
}

fn codecs() -> Vec<Codec> {
    vec![
        codec(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "2"), ("m", "1")]),
        codec(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "6"), ("m", "2")]),
        codec(&[("plugin", "isa"), ("technique", "cauchy"), ("k", "4"), ("m", "3")]),
        codec(&[
            ("plugin", "jerasure"),
            ("technique", "cauchy_good"),
            ("k", "3"),
            ("m", "2"),
            ("packetsize", "2"),
        ]),
        codec(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")]),
    ]
}

/// An object on its shards, and the bytes that it should have.
struct Object<'a> {
    codec: &'a Codec,
    stripes: Stripes,
    bytes: Vec<u8>,
    shards: Vec<Vec<u8>>,
}

impl<'a> Object<'a> {
    fn new(codec: &'a Codec, chunk: usize) -> Self {
        let stripes = Stripes::new(codec, chunk as u64).expect("a geometry");
        Self { codec, stripes, bytes: Vec::new(), shards: vec![Vec::new(); codec.chunk_count()] }
    }

    /// The shards of the bytes, by the definition.
    fn encoded(&self) -> Vec<Vec<u8>> {
        let (k, chunk) = (self.codec.data_chunk_count(), self.stripes.chunk_size() as usize);
        let mut shards = vec![Vec::new(); self.codec.chunk_count()];
        for stripe in self.bytes.chunks(k * chunk) {
            let mut padded = stripe.to_vec();
            padded.resize(k * chunk, 0);
            let data: Vec<&[u8]> = padded.chunks(chunk).collect();
            let mut coding = vec![vec![0; chunk]; self.codec.coding_chunks().len()];
            let mut out: Vec<&mut [u8]> = coding.iter_mut().map(Vec::as_mut_slice).collect();
            self.codec.encode(&data, &mut out).expect("encoded");
            self.codec.data_chunks().iter().zip(&data).for_each(|(s, c)| shards[*s].extend_from_slice(c));
            self.codec.coding_chunks().iter().zip(&coding).for_each(|(s, c)| shards[s].extend_from_slice(c));
        }
        shards
    }

    /// What a plan's read gives when these shards are there.
    fn read(&self, range: std::ops::Range<u64>, available: ChunkSet) -> Result<Vec<u8>, CodecError> {
        let plan = self.stripes.read(self.codec, range, available)?;
        let mut read = Vec::new();
        for r in plan.ranges() {
            assert!(available.contains(r.shard), "shard {} is not there", r.shard);
            let shard = &self.shards[r.shard];
            let from = shard.len().min(r.offset as usize);
            read.push(&shard[from..shard.len().min((r.offset + r.len) as usize)]);
        }
        plan.assemble(&read)
    }

    /// Writes by a plan; bytes read of the object, number of shards that change.
    fn write(&mut self, at: usize, data: &[u8], available: ChunkSet) -> (u64, usize) {
        let range = at as u64..(at + data.len()) as u64;
        let plan = self.stripes.write(self.codec, self.bytes.len() as u64, range).expect("a plan");
        let old: Vec<Vec<u8>> =
            plan.reads().iter().map(|r| self.read(r.clone(), available).expect("enough is there")).collect();
        let old_len = self.bytes.len() as u64;
        assert!(plan.reads().iter().all(|r| r.start < r.end && r.end <= old_len), "{:?}", plan.reads());
        let old: Vec<&[u8]> = old.iter().map(Vec::as_slice).collect();
        let updates = plan.updates(self.codec, &old, data).expect("updates");
        self.bytes.resize(self.bytes.len().max(at + data.len()), 0);
        self.bytes[at..at + data.len()].copy_from_slice(data);
        let len = self.stripes.shard_len(self.bytes.len() as u64) as usize;
        self.shards.iter_mut().for_each(|s| s.resize(len, 0));
        for u in &updates {
            let (Change::Write(bytes) | Change::Add(bytes)) = &u.change;
            let to = &mut self.shards[u.shard][u.offset as usize..u.offset as usize + bytes.len()];
            match &u.change {
                Change::Write(_) => to.copy_from_slice(bytes),
                Change::Add(_) => to.iter_mut().zip(bytes).for_each(|(a, b)| *a ^= b),
            }
        }
        let read: u64 = plan.reads().iter().map(|r| r.end - r.start).sum();
        (read, updates.iter().map(|u| u.shard).collect::<ChunkSet>().len())
    }
}

fn all(codec: &Codec) -> ChunkSet {
    ChunkSet::first(codec.chunk_count())
}

/// Without one shard at random, or with all.
fn without_one(codec: &Codec, rng: &mut Rng) -> ChunkSet {
    let lost = rng.below(codec.chunk_count() as u64 + 1) as usize;
    all(codec) - [lost].into_iter().collect()
}

#[test]
fn random_writes_leave_what_encoding_gives_and_reads_find_it() {
    let mut rng = Rng::new(7);
    for codec in &codecs() {
        for chunk in [1, 3].map(|n| n * codec.grain().max(8)) {
            let mut o = Object::new(codec, chunk);
            for _ in 0..150 {
                let most = 4 * o.stripes.stripe_width();
                let at = rng.below(o.bytes.len() as u64 + chunk as u64) as usize;
                let len = match rng.below(3) {
                    0 => 1 + rng.below(chunk as u64),
                    1 => o.stripes.stripe_width(),
                    _ => rng.below(most),
                };
                let data = rng.bytes(len as usize);
                let available = without_one(codec, &mut rng);
                o.write(at.min(20_000), &data, available);
                assert_eq!(o.shards, o.encoded(), "{len} at {at}");
                let from = rng.below(o.bytes.len() as u64 + 1);
                let until = from + rng.below(o.bytes.len() as u64 - from + 1);
                let read = o.read(from..until, without_one(codec, &mut rng)).expect("read");
                assert_eq!(read, &o.bytes[from as usize..until as usize], "{from}..{until}");
            }
        }
    }
}

#[test]
fn a_small_overwrite_reads_and_changes_no_more_than_it_must() {
    let codec = codec(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "6"), ("m", "2")]);
    let mut o = Object::new(&codec, 4096);
    o.write(0, &Rng::new(1).bytes(100_000), all(&codec));
    // What is overwritten; the coding shards read their own.
    assert_eq!(o.write(8192, &[7; 4096], all(&codec)), (4096, 3));
    assert_eq!(o.write(9000, &[8; 100], all(&codec)), (100, 3));
    // Across a border of two chunks.
    assert_eq!(o.write(8000, &[9; 400], all(&codec)), (400, 4));
    // Most of a stripe: the rest of it is less.
    assert_eq!(o.write(4096, &[9; 5 * 4096], all(&codec)), (4096, 7));
    // A whole stripe, and behind the end: nothing.
    assert_eq!(o.write(24_576, &[1; 24_576], all(&codec)), (0, 8));
    assert_eq!(o.write(10 * 24_576, &[1; 24_576], all(&codec)), (0, 8));
    assert_eq!(o.shards, o.encoded());
    let pair = codecs().remove(0);
    let mut o = Object::new(&pair, 4096);
    o.write(0, &Rng::new(1).bytes(100_000), all(&pair));
    // The other half of the stripe, and no difference to add.
    assert_eq!(o.write(8192, &[7; 4096], all(&pair)), (4096, 2));
}

#[test]
fn a_read_takes_the_chunks_that_it_needs() {
    let codec = codec(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")]);
    let mut o = Object::new(&codec, 4096);
    o.write(0, &Rng::new(1).bytes(200_000), all(&codec));
    let ranges = |range, available| {
        let plan = o.stripes.read(&codec, range, available).expect("a plan");
        plan.ranges().iter().map(|r| (r.shard, r.offset, r.len)).collect::<Vec<_>>()
    };
    assert_eq!(ranges(5000..5100, all(&codec)), [(1, 904, 100)]);
    assert_eq!(ranges(16_384..32_768, all(&codec)), [0, 1, 2, 3].map(|s| (s, 4096, 4096)));
    let lost: ChunkSet = [1].into_iter().collect();
    assert_eq!(ranges(5000..5100, all(&codec) - lost), [0, 2, 3, 4].map(|s| (s, 904, 100)));
    assert_eq!(ranges(0..100, all(&codec) - lost), [(0, 0, 100)], "it needs no lost one");
    assert_eq!(ranges(7..7, ChunkSet::EMPTY), []);
    // A group is enough for a layered code.
    let layered = codecs().remove(4);
    let stripes = Stripes::new(&layered, 4096).expect("a geometry");
    let first = layered.data_chunks()[0];
    let plan = stripes.read(&layered, 0..100, all(&layered) - [first].into_iter().collect());
    assert_eq!(plan.expect("a plan").ranges().len(), 3);
}

#[test]
fn what_cannot_be_is_refused() {
    let codec = codec(&[("plugin", "jerasure"), ("technique", "cauchy_good"), ("k", "2"), ("m", "1")]);
    assert!(matches!(Stripes::new(&codec, 0), Err(CodecError::Grain { .. })));
    assert!(matches!(Stripes::new(&codec, codec.grain() as u64 + 1), Err(CodecError::Grain { .. })));
    assert!(matches!(Stripes::new(&codec, u64::MAX), Err(CodecError::Grain { .. })));
    let stripes = Stripes::new(&codec, codec.grain() as u64).expect("a geometry");
    let two: ChunkSet = [2].into_iter().collect();
    assert!(matches!(stripes.read(&codec, 0..1, two), Err(CodecError::NotEnough { .. })));
    let plan = stripes.read(&codec, 0..10, all(&codec)).expect("a plan");
    assert!(matches!(plan.assemble(&[]), Err(CodecError::Count { .. })));
    assert!(matches!(plan.assemble(&[&[0; 11]]), Err(CodecError::Length { .. })));
    assert_eq!(plan.assemble(&[&[1; 4]]), Ok([[1; 4].as_slice(), &[0; 6]].concat()));
    #[allow(clippy::reversed_empty_ranges)] // it is what is refused
    for bad in [u64::MAX - 1..u64::MAX, 20..10] {
        assert!(matches!(stripes.read(&codec, bad.clone(), all(&codec)), Err(CodecError::OutOfRange)));
        assert!(matches!(stripes.write(&codec, 1000, bad), Err(CodecError::OutOfRange)));
    }
    let plan = stripes.write(&codec, 1000, 10..20).expect("a plan");
    let enough: Vec<&[u8]> = plan.reads().iter().map(|_| &[][..]).collect();
    assert!(matches!(plan.updates(&codec, &enough, &[0; 9]), Err(CodecError::Length { .. })));
    let more = [enough.clone(), vec![&[][..]]].concat();
    assert!(matches!(plan.updates(&codec, &more, &[0; 10]), Err(CodecError::Count { .. })));
}
