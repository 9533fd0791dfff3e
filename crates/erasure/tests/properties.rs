//! What holds of every code: any loss that it allows is made good, and changes of parity are those of the
//! data.

use std::collections::BTreeMap;

use erasure::{ChunkSet, Codec, CodecError, Profile, Simd};
use testkit::Rng;

fn profile(words: &[(&str, &str)]) -> Profile {
    let values: BTreeMap<String, String> =
        words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Profile::new(&values).unwrap_or_else(|e| panic!("{words:?}: {e}"))
}

const TECHNIQUES: [(&str, &str); 6] = [
    ("jerasure", "reed_sol_van"),
    ("jerasure", "reed_sol_r6_op"),
    ("jerasure", "cauchy_orig"),
    ("jerasure", "cauchy_good"),
    ("isa", "reed_sol_van"),
    ("isa", "cauchy"),
];

fn plain(technique: (&str, &str), k: usize, m: usize) -> Option<Profile> {
    let refused = match technique {
        ("jerasure", "reed_sol_r6_op") => m != 2,
        ("isa", "reed_sol_van") => m > 4 || (m == 4 && k > 21),
        _ => false,
    };
    let (k, m) = (k.to_string(), m.to_string());
    let words =
        [("plugin", technique.0), ("technique", technique.1), ("k", &k), ("m", &m), ("packetsize", "2")];
    (!refused).then(|| profile(&words))
}

/// The chunks of one stripe of random data, by position.
fn stripe(codec: &Codec, len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let data: Vec<Vec<u8>> = (0..codec.data_chunk_count()).map(|_| rng.bytes(len)).collect();
    encode(codec, &data)
}

fn encode(codec: &Codec, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut coding = vec![rng_filled(data[0].len()); codec.coding_chunks().len()];
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    codec.encode(&inputs, &mut slices(&mut coding)).expect("a stripe");
    let mut chunks = vec![Vec::new(); codec.chunk_count()];
    codec.data_chunks().iter().zip(data).for_each(|(at, c)| chunks[*at].clone_from(c));
    codec.coding_chunks().iter().zip(coding).for_each(|(at, c)| chunks[at] = c);
    chunks
}

/// What is in a buffer before must not matter.
fn rng_filled(len: usize) -> Vec<u8> {
    Rng::new(len as u64).bytes(len)
}

fn slices(buffers: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Makes `lost` from the others, reading only what the plan and the minimum say.
fn check_loss(codec: &Codec, chunks: &[Vec<u8>], lost: ChunkSet) -> Result<(), CodecError> {
    let available = ChunkSet::first(codec.chunk_count()) - lost;
    let minimum = codec.minimum_to_decode(lost, available)?;
    assert!(available.includes(minimum) && minimum.len() >= lost.len().min(1), "{lost} from {minimum}");
    for readable in [available, minimum] {
        let plan = codec.rebuild(lost, readable)?;
        assert!(readable.includes(plan.sources()) && plan.targets() == lost);
        let given: Vec<Option<&[u8]>> =
            (0..chunks.len()).map(|i| plan.sources().contains(i).then_some(chunks[i].as_slice())).collect();
        let mut made = vec![rng_filled(chunks[0].len()); lost.len()];
        plan.execute(&given, &mut slices(&mut made))?;
        for (at, chunk) in lost.iter().zip(&made) {
            assert!(chunk == &chunks[at], "{lost} from {readable}: chunk {at}");
        }
    }
    Ok(())
}

/// All sets of at most `most` of `n`.
fn subsets(n: usize, most: usize) -> impl Iterator<Item = ChunkSet> {
    let set = move |bits: u32| (0..n).filter(|i| bits >> i & 1 == 1).collect::<ChunkSet>();
    (1..1u32 << n).map(set).filter(move |set| set.len() <= most)
}

#[test]
fn every_loss_up_to_m_is_made_good() {
    for technique in TECHNIQUES {
        for (k, m) in [(2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (5, 3), (6, 4)] {
            let Some(profile) = plain(technique, k, m) else { continue };
            let codec = Codec::new(&profile, Simd::Detected);
            let chunks = stripe(&codec, 64, &mut Rng::new(k as u64));
            for lost in subsets(k + m, m) {
                check_loss(&codec, &chunks, lost).unwrap_or_else(|e| panic!("{technique:?} {k}+{m}: {e}"));
            }
            let too_many = ChunkSet::first(m + 1);
            let error = check_loss(&codec, &chunks, too_many).expect_err("too many are lost");
            assert_eq!(error.errno(), types::Errno::EIO);
        }
    }
}

#[test]
fn random_losses_of_wide_codes_are_made_good() {
    let mut rng = Rng::new(7);
    for technique in TECHNIQUES {
        for (k, m) in [(10, 4), (16, 6), (28, 4), (21, 4), (29, 3), (30, 2), (16, 16)] {
            let Some(profile) = plain(technique, k, m) else { continue };
            let codec = Codec::new(&profile, Simd::Detected);
            let chunks = stripe(&codec, 96, &mut rng);
            for _ in 0..20 {
                let mut lost = ChunkSet::EMPTY;
                while lost.len() < m {
                    lost.insert(rng.below((k + m) as u64) as usize);
                }
                check_loss(&codec, &chunks, lost).unwrap_or_else(|e| panic!("{technique:?} {k}+{m}: {e}"));
            }
        }
    }
}

const LAYERS: &str = r#"[ [ "_cDD_cDD", "plugin=isa technique=cauchy" ], [ "cDDD____", "" ], [ "____cDDD", {"plugin":"isa"} ], ]"#;

fn layered() -> Vec<Profile> {
    let packets = r#"[ [ "DDcDDc__", "technique=cauchy_good packetsize=2" ], [ "DDD___c_", "" ],
        [ "___DDD_c", "technique=cauchy_orig packetsize=4" ] ]"#;
    let mut list = vec![
        profile(&[("plugin", "lrc"), ("mapping", "__DD__DD"), ("layers", LAYERS)]),
        profile(&[("plugin", "lrc"), ("mapping", "DD_DD___"), ("layers", packets)]),
    ];
    for (k, m, l) in [("4", "2", "3"), ("8", "4", "3"), ("6", "2", "4")] {
        list.push(profile(&[("plugin", "lrc"), ("k", k), ("m", m), ("l", l)]));
    }
    list
}

#[test]
fn layers_make_good_what_they_can() {
    for profile in layered() {
        let codec = Codec::new(&profile, Simd::Detected);
        let chunks = stripe(&codec, 192, &mut Rng::new(3));
        // One is always made good by its group alone, which is smaller than the data.
        for lost in subsets(codec.chunk_count(), 1) {
            check_loss(&codec, &chunks, lost).expect("one chunk");
        }
        let (mut good, mut bad) = (0, 0);
        // Of sixteen chunks not every set, for there are too many.
        let most = codec.coding_chunks().len().min(if codec.chunk_count() > 9 { 3 } else { 5 });
        for lost in subsets(codec.chunk_count(), most) {
            match check_loss(&codec, &chunks, lost) {
                Ok(()) => good += 1,
                Err(CodecError::NotEnough { .. }) => bad += 1,
                Err(e) => panic!("{lost}: {e}"),
            }
        }
        assert!(good > bad / 2 && (bad > 0 || most == 3), "{good} and {bad} of {profile:?}");
    }
}

/// The groups of `mapping=DD__DD__`, k=4 m=2 l=3: 0 to 3 and 4 to 7, the last of each its local parity.
#[test]
fn a_lost_chunk_is_read_from_its_group() {
    let codec =
        Codec::new(&profile(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")]), Simd::Detected);
    let check = |lost: &[usize], want: &[usize], minimum: &[usize]| {
        let set = |list: &[usize]| list.iter().copied().collect::<ChunkSet>();
        let available = ChunkSet::first(8) - set(lost);
        assert_eq!(
            codec.minimum_to_decode(set(want), available),
            Ok(set(minimum)),
            "{want:?} without {lost:?}"
        );
    };
    check(&[0], &[0], &[1, 2, 3]);
    check(&[0], &[1], &[1]);
    check(&[6], &[6], &[4, 5, 7]);
    check(&[0], &[0, 4], &[1, 2, 3, 4]);
    // Two of a group: by way of the layer over everything.
    check(&[0, 1], &[0], &[2, 4, 5, 6]);
    // And a third chunk elsewhere is one too many for that layer alone, but its own group helps.
    check(&[0, 1, 4], &[0], &[2, 3, 5, 6, 7]);
    assert_eq!(codec.data_chunks(), [0, 1, 4, 5]);
    assert_eq!(codec.affected_by(0), [2, 3, 6, 7].into_iter().collect());
}

fn check_delta(profile: &Profile, rng: &mut Rng) {
    let codec = Codec::new(profile, Simd::Detected);
    let len = 8 * codec.grain().max(24);
    let old: Vec<Vec<u8>> = (0..codec.data_chunk_count()).map(|_| rng.bytes(len)).collect();
    for _ in 0..8 {
        let changed = rng.below(old.len() as u64) as usize;
        let start = rng.below(len as u64) as usize;
        let size = 1 + rng.below((len - start) as u64) as usize;
        let change = rng.bytes(size);
        let mut new = old.clone();
        new[changed][start..].iter_mut().zip(&change).for_each(|(a, b)| *a ^= b);
        let (before, want) = (encode(&codec, &old), encode(&codec, &new));
        let range = codec.parity_range(start as u64..(start + change.len()) as u64);
        let range = range.start as usize..range.end as usize;
        let position = codec.data_chunks()[changed];
        // Onto zeros it is the change, onto the old content the new content.
        let mut changes = vec![vec![0; range.len()]; codec.coding_chunks().len()];
        codec.delta(position, start as u64, &change, &mut slices(&mut changes)).expect("a change");
        let mut content: Vec<Vec<u8>> =
            codec.coding_chunks().iter().map(|at| before[at][range.clone()].to_vec()).collect();
        codec.delta(position, start as u64, &change, &mut slices(&mut content)).expect("a change");
        for (i, at) in codec.coding_chunks().iter().enumerate() {
            assert_eq!(content[i], want[at][range.clone()], "chunk {at} of {profile:?}");
            let xor: Vec<u8> =
                before[at][range.clone()].iter().zip(&changes[i]).map(|(a, b)| a ^ b).collect();
            assert_eq!(xor, content[i]);
            let outside = |c: &[u8]| [&c[..range.start], &c[range.end..]].concat();
            assert_eq!(outside(&before[at]), outside(&want[at]), "outside of what was said to change");
            assert!(codec.affected_by(position).contains(at) || before[at] == want[at]);
        }
    }
}

#[test]
fn a_change_of_data_changes_parity_by_its_delta() {
    let mut rng = Rng::new(11);
    for technique in TECHNIQUES {
        for (k, m) in [(2, 1), (4, 2), (6, 3), (16, 6), (20, 2)] {
            plain(technique, k, m).iter().for_each(|profile| check_delta(profile, &mut rng));
        }
    }
    layered().iter().for_each(|profile| check_delta(profile, &mut rng));
}

#[test]
fn long_chunks_are_done_in_slices() {
    for (technique, len) in [(TECHNIQUES[0], 50_001), (TECHNIQUES[5], 40_000), (TECHNIQUES[3], 48_000)] {
        let profile = plain(technique, 4, 2).expect("a profile");
        let codec = Codec::new(&profile, Simd::Detected);
        let chunks = stripe(&codec, len, &mut Rng::new(9));
        check_loss(&codec, &chunks, [0, 5].into_iter().collect()).expect("two chunks");
        let scalar = Codec::new(&profile, Simd::Off);
        let data: Vec<Vec<u8>> = chunks[..4].to_vec();
        assert!(encode(&scalar, &data) == chunks, "{technique:?}");
    }
}

#[test]
fn wrong_buffers_are_refused() {
    let codec = Codec::new(&plain(TECHNIQUES[3], 2, 1).expect("a profile"), Simd::Detected);
    let (a, b) = ([1u8; 32], [2u8; 48]);
    let encode = |data: &[&[u8]], lens: &[usize]| {
        let mut coding: Vec<Vec<u8>> = lens.iter().map(|len| vec![7; *len]).collect();
        let result = codec.encode(data, &mut slices(&mut coding));
        assert!(coding.concat().iter().all(|b| *b == 7), "nothing is written");
        result.expect_err("refused")
    };
    assert_eq!(encode(&[&a], &[32]), CodecError::Count { what: "data chunks", expected: 2, got: 1 });
    assert_eq!(encode(&[&a, &a], &[]), CodecError::Count { what: "coding chunks", expected: 1, got: 0 });
    assert_eq!(encode(&[&a, &b], &[32]), CodecError::Length { expected: 32, got: 48 });
    assert_eq!(encode(&[&a, &a], &[48]), CodecError::Length { expected: 32, got: 48 });
    assert_eq!(encode(&[&a[..20], &a[..20]], &[20]), CodecError::Grain { len: 20, grain: 16 });
    let plan = codec.rebuild([0].into_iter().collect(), [1, 2].into_iter().collect()).expect("a plan");
    let run = |chunks: &[Option<&[u8]>], len: usize| plan.execute(chunks, &mut [&mut vec![0; len]]);
    assert_eq!(run(&[None, Some(&a)], 32), Err(CodecError::Missing(2)));
    assert_eq!(run(&[None, Some(&a), Some(&b)], 32), Err(CodecError::Length { expected: 32, got: 48 }));
    assert_eq!(run(&[None, Some(&a), Some(&a)], 40), Err(CodecError::Grain { len: 40, grain: 16 }));
    assert_eq!(plan.execute(&[], &mut []), Err(CodecError::Count { what: "buffers", expected: 1, got: 0 }));
    assert_eq!(codec.delta(2, 0, &a, &mut [&mut [0; 32]]), Err(CodecError::NoSuchChunk(2)));
    assert_eq!(codec.delta(0, u64::MAX, &a, &mut [&mut [0; 32]]), Err(CodecError::OutOfRange));
    assert_eq!(
        codec.delta(0, 5, &a, &mut [&mut [0; 32]]),
        Err(CodecError::Length { expected: 48, got: 32 }),
        "the range is as wide as what belongs together"
    );
    let want = [3].into_iter().collect();
    assert!(
        codec.rebuild(want, ChunkSet::first(3)).is_err()
            && codec.minimum_to_decode(want, ChunkSet::first(3)).is_err()
    );
    let nothing = codec.rebuild([1].into_iter().collect(), ChunkSet::first(3)).expect("nothing is lost");
    assert_eq!((nothing.targets(), nothing.execute(&[], &mut [])), (ChunkSet::EMPTY, Ok(())));
}

/// Each layer is the plain code of its own profile over its positions.
#[test]
fn layers_are_plain_codes_over_their_positions() {
    let codec = Codec::new(&layered()[0], Simd::Detected);
    let chunks = stripe(&codec, 64, &mut Rng::new(4));
    let check = |plugin: &str, technique: &str, data: &[usize], coding: &[usize]| {
        let (k, m) = (data.len(), coding.len());
        let plain = Codec::new(&plain((plugin, technique), k, m).expect("a profile"), Simd::Detected);
        let inputs: Vec<Vec<u8>> = data.iter().map(|at| chunks[*at].clone()).collect();
        let made = encode(&plain, &inputs);
        for (at, chunk) in coding.iter().zip(&made[k..]) {
            assert!(chunk == &chunks[*at], "chunk {at}");
        }
    };
    check("isa", "cauchy", &[2, 3, 6, 7], &[1, 5]);
    check("jerasure", "reed_sol_van", &[1, 2, 3], &[0]);
    check("isa", "reed_sol_van", &[5, 6, 7], &[4]);
    // What k, m and l stand for, written out.
    let kml = Codec::new(&profile(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")]), Simd::Detected);
    let layers = r#"[["DDc_DDc_"],["DDDc____"],["____DDDc"]]"#;
    let written = profile(&[("plugin", "lrc"), ("mapping", "DD__DD__"), ("layers", layers)]);
    let written = Codec::new(&written, Simd::Detected);
    assert!(stripe(&kml, 64, &mut Rng::new(5)) == stripe(&written, 64, &mut Rng::new(5)));
}
