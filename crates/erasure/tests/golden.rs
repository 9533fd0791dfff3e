//! Chunks equal to those of Ceph 16.2.15, and any loss made good from them.

use std::collections::BTreeMap;

use erasure::{ChunkSet, Codec, MAX_CHUNKS, Profile, Simd};
use sha2::{Digest, Sha256};
use testkit::Rng;

/// Lines `profile stripe_unit length sum...`, one sum for each chunk: the first six bytes of the SHA-256 of
/// what `ceph-erasure-code-tool encode profile stripe_unit 0,1,... file` of Ceph 16.2.15 (Debian) wrote for
/// that chunk. The file held `length` bytes of `Rng::new(26)`. And lines `size profile length chunk`: what
/// its `calc-chunk-size` said.
const GOLDEN: &str = include_str!("golden.txt");

fn profile(words: &str) -> Profile {
    let pairs = words.split(',').filter_map(|word| word.split_once('='));
    let values: BTreeMap<String, String> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    Profile::checked(&values, true).unwrap_or_else(|e| panic!("{words}: {e}"))
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).map(|b| format!("{b:02x}")).collect()
}

/// The chunks of some whole stripes, the stripes of each one after another.
fn encode(codec: &Codec, unit: usize, data: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = vec![Vec::new(); codec.chunk_count()];
    for stripe in data.chunks(unit * codec.data_chunk_count()) {
        let parts: Vec<&[u8]> = stripe.chunks(unit).collect();
        let mut coding = vec![vec![0x5a; unit]; codec.coding_chunks().len()];
        let mut outputs: Vec<&mut [u8]> = coding.iter_mut().map(Vec::as_mut_slice).collect();
        codec.encode(&parts, &mut outputs).expect("a stripe");
        codec.data_chunks().iter().zip(parts).for_each(|(at, part)| chunks[*at].extend_from_slice(part));
        codec.coding_chunks().iter().zip(&coding).for_each(|(at, part)| chunks[at].extend_from_slice(part));
    }
    chunks
}

fn check_line(words: &str, unit: usize, len: usize, sums: &[&str], simd: Simd) {
    let profile = profile(words);
    let codec = Codec::new(&profile, simd);
    let width = unit * profile.data_chunks();
    assert_eq!(profile.chunk_size(width as u32), unit as u64, "{words}");
    let mut data = Rng::new(26).bytes(len.next_multiple_of(8));
    data.truncate(len);
    data.resize(len.next_multiple_of(width), 0);
    let chunks = encode(&codec, unit, &data);
    assert_eq!(chunks.iter().map(|c| sum(c)).collect::<Vec<_>>(), sums, "{words} in units of {unit}");
    // Every single loss, and as many chunks as the code has to spare with the seed of the line.
    let mut rng = Rng::new(len as u64);
    let all = ChunkSet::first(codec.chunk_count());
    let single = (0..codec.chunk_count()).map(|lost| [lost].into_iter().collect::<ChunkSet>());
    let several = (0..3).filter(|_| !words.contains("plugin=lrc")).map(|_| {
        let mut lost = ChunkSet::EMPTY;
        while lost.len() < codec.coding_chunks().len() {
            lost.insert(rng.below(codec.chunk_count() as u64) as usize);
        }
        lost
    });
    for lost in single.chain(several.collect::<Vec<_>>()) {
        let plan = codec.rebuild(lost, all - lost).unwrap_or_else(|e| panic!("{words} without {lost}: {e}"));
        let given: Vec<Option<&[u8]>> =
            chunks.iter().enumerate().map(|(i, c)| (!lost.contains(i)).then_some(c.as_slice())).collect();
        let mut made = vec![vec![0xa5; chunks[0].len()]; lost.len()];
        plan.execute(&given, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())
            .expect("all is there");
        for (at, chunk) in lost.iter().zip(&made) {
            assert!(chunk == &chunks[at], "{words} without {lost}: chunk {at}");
        }
    }
}

/// How many lines there were of at most so many chunks.
fn check_all(simd: Simd, most: usize) -> usize {
    let mut lines = 0;
    for line in GOLDEN.lines().filter(|l| l.starts_with("plugin=")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().expect("a number");
        if words.len() - 3 <= most {
            check_line(words[0], number(1), number(2), &words[3..], simd);
            lines += 1;
        }
    }
    lines
}

#[test]
fn chunks_are_those_of_ceph() {
    assert_eq!(check_all(Simd::Detected, MAX_CHUNKS), 87);
}

/// What is quick enough on an emulated processor.
#[test]
fn a_few_chunks_are_those_of_ceph() {
    assert_eq!(check_all(Simd::Detected, 5), 18);
}

/// The gate masks features and says which path must be left: a mask without effect would test one path often.
#[test]
fn the_processors_instructions_are_used() {
    let path = |words: &str, simd| Codec::new(&profile(words), simd).path();
    let bytes = path("plugin=isa,k=4,m=2", Simd::Detected);
    if let Ok(named) = std::env::var("LOLIGO_EXPECT_GALOIS_PATH") {
        assert_eq!(bytes, named, "the processor's features are not masked as meant");
    }
    #[cfg(target_arch = "x86_64")]
    {
        let has_gfni = is_x86_feature_detected!("gfni");
        let expected = match (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("ssse3")) {
            (true, _) if has_gfni => "x86_64/avx2_gfni",
            (true, _) => "x86_64/avx2",
            (false, true) => "x86_64/ssse3",
            (false, false) => "scalar",
        };
        assert_eq!(bytes, expected);
    }
    let packets = "plugin=jerasure,technique=cauchy_good,k=4,m=2";
    assert_eq!([path(packets, Simd::Off), path("plugin=isa,k=4,m=2", Simd::Off)], ["scalar"; 2]);
    #[cfg(target_arch = "x86_64")]
    {
        // What AVX2 has come with so far.
        let has_v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        assert_eq!(path(packets, Simd::Detected) != "scalar", has_v3);
    }
}

#[test]
fn chunks_are_the_same_without_vectors() {
    assert_eq!(check_all(Simd::Off, MAX_CHUNKS), 87);
}

#[test]
fn chunk_sizes_are_those_of_ceph() {
    let mut lines = 0;
    for line in GOLDEN.lines().filter_map(|l| l.strip_prefix("size ")) {
        let [words, len, chunk] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let bytes = len.parse().expect("a number");
        assert_eq!(profile(words).chunk_size(bytes).to_string(), chunk, "{line}");
        lines += 1;
    }
    assert!(lines >= 80, "{lines} lines");
}
