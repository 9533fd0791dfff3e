//! Sums of shards against the shards: they agree where parity holds, however the bytes came, and name a shard
//! that is wrong.

use std::collections::BTreeMap;

use erasure::{Codec, Parity, Profile, Simd, Sketch};
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
            ("packetsize", "2048"),
        ]),
        codec(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")]),
    ]
}

/// Shards of random data, by position.
fn shards(codec: &Codec, len: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut random = || (0..len).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
    let data: Vec<Vec<u8>> = codec.data_chunks().iter().map(|_| random()).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut coding = vec![vec![0; len]; codec.coding_chunks().len()];
    codec
        .encode(&inputs, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())
        .expect("encoded");
    let mut all = vec![Vec::new(); codec.chunk_count()];
    codec.data_chunks().iter().zip(data).for_each(|(at, chunk)| all[*at] = chunk);
    codec.coding_chunks().iter().zip(coding).for_each(|(at, chunk)| all[at] = chunk);
    all
}

/// The sum of a shard that comes in pieces of any length.
fn sum(codec: &Codec, seed: u64, shard: &[u8], rng: &mut Rng) -> Vec<u8> {
    let (mut at, mut folds) = (0, Sketch::new(codec, seed).into_folds());
    while at < shard.len() {
        let until = shard.len().min(at + 1 + rng.below(10_000) as usize);
        let mut sketch = Sketch::resume(codec, seed, at as u64, folds).expect("of that kind");
        sketch.add(&shard[at..until]);
        (at, folds) = (until, sketch.into_folds());
    }
    folds
}

fn parity(codec: &Codec, seed: u64, shards: &[Option<Vec<u8>>], rng: &mut Rng) -> Parity {
    let sums: Vec<Option<Vec<u8>>> =
        shards.iter().map(|shard| shard.as_ref().map(|shard| sum(codec, seed, shard, rng))).collect();
    codec.parity(&sums.iter().map(Option::as_deref).collect::<Vec<_>>()).expect("of one kind")
}

#[test]
fn sums_are_coded_as_shards_are() {
    for (nth, codec) in codecs().iter().enumerate() {
        let mut rng = Rng::new(nth as u64);
        let len = 3 * codec.grain().max(20_000).next_multiple_of(codec.grain());
        for seed in 0..8 {
            let good: Vec<Option<Vec<u8>>> = shards(codec, len, &mut rng).into_iter().map(Some).collect();
            assert_eq!(parity(codec, seed, &good, &mut rng), Parity::Holds);
            let m = codec.coding_chunks().len();
            for wrong in 0..good.len() {
                let mut some = good.clone();
                // A byte, a run of bytes, or all behind some place as it was before.
                let (from, run) = (rng.below(len as u64) as usize, [1, 4096, len][seed as usize % 3]);
                let shard = some[wrong].as_mut().expect("all are there");
                shard[from..len.min(from + run)]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 1 + rng.below(255) as u8);
                let found = parity(codec, seed, &some, &mut rng);
                let want = if m == 1 { Parity::Broken } else { Parity::Wrong(wrong) };
                assert_eq!(found, want, "code {nth}, seed {seed}, shard {wrong}");
                // Without it, the others hold as far as that can be told.
                some[wrong] = None;
                let found = parity(codec, seed, &some, &mut rng);
                assert_eq!(found, if m == 1 { Parity::Unknown } else { Parity::Holds }, "shard {wrong}");
            }
        }
    }
}

/// The same change again and again, as a pattern has it that was written over another, is seen with most
/// seeds.
#[test]
fn errors_that_are_alike_do_not_hide_each_other() {
    let codec = codec(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")]);
    let mut rng = Rng::new(1);
    let mut shards: Vec<Option<Vec<u8>>> = shards(&codec, 1 << 16, &mut rng).into_iter().map(Some).collect();
    let wrong = shards[1].as_mut().expect("all are there");
    wrong[4096..3 * 4096].iter_mut().for_each(|byte| *byte ^= 0xff);
    let seen = (0..256).filter(|seed| parity(&codec, *seed, &shards, &mut rng) == Parity::Wrong(1)).count();
    assert!(seen > 240, "{seen}");
}

#[test]
fn a_sum_of_another_kind_is_not_gone_on_with() {
    let codecs = codecs();
    let folds = Sketch::new(&codecs[0], 1).into_folds();
    assert_eq!(Sketch::resume(&codecs[3], 1, 0, folds.clone()), None);
    assert_eq!(Sketch::resume(&codecs[0], 1, 0, folds[1..].to_vec()), None);
}
