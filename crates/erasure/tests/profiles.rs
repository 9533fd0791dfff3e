//! Profiles as the monitor of Ceph 16.2.15 takes or refuses them.

use std::collections::BTreeMap;

use erasure::{Codec, Placement, Profile, ProfileError, Simd};
use types::Errno;

/// What a cluster of Ceph 16.2.15 (Debian) said, one profile a line, fields by tabs: the words of `osd
/// erasure-code-profile set` (`+` stands for a space within one), the errno, and of what was taken the
/// profile as `erasure-code-profile get` shows it, and of a pool made from it the stripe_width, size and
/// min_size in `osd dump`.
const CAPTURED: &str = include_str!("profiles.txt");

/// What Ceph takes and this crate refuses, each for its reason.
const REFUSED_HERE: &[(&str, Errno)] = &[
    // Not built.
    ("w=16", Errno::EOPNOTSUPP),
    ("w=32", Errno::EOPNOTSUPP),
    ("technique=cauchy_good w=4", Errno::EOPNOTSUPP),
    ("technique=liberation k=2 m=2", Errno::EOPNOTSUPP),
    ("technique=blaum_roth k=2 m=2", Errno::EOPNOTSUPP),
    ("technique=liber8tion k=2 m=2", Errno::EOPNOTSUPP),
    ("plugin=clay k=4 m=2", Errno::EOPNOTSUPP),
    ("plugin=shec k=4 m=3 c=2", Errno::EOPNOTSUPP),
    ("plugin=jerasure_generic technique=reed_sol_van k=2 m=1", Errno::EOPNOTSUPP),
    // Bounds of our own.
    ("k=30 m=3", Errno::EINVAL),
    ("k=2 m=1 stripe_unit=32M", Errno::EINVAL),
    ("k=2 m=1 colour=blue", Errno::EINVAL),
    // A stripe without bytes, packets without bytes: Ceph divides by them when a pool is made.
    ("k=2 m=1 stripe_unit=0", Errno::EINVAL),
    ("technique=cauchy_good packetsize=0", Errno::EINVAL),
    ("technique=cauchy_good packetsize=-4", Errno::EINVAL),
    // Parity over data, a chunk without content. With one group Ceph leaves the parity over everything out:
    // its tool writes zeros for the chunks 4 to 6.
    ("plugin=lrc k=4 m=3 l=7", Errno::EINVAL),
    ("plugin=isa k=2 m=1 mapping=DDDD", Errno::EINVAL),
    ("plugin=lrc mapping=DDD_ layers=[[\"DD_c\",\"\"]]", Errno::EINVAL),
    ("plugin=lrc mapping=DD__ layers=[[\"DDc_\",\"\"]]", Errno::EINVAL),
];

/// What the monitor checks before a plug-in sees the profile.
const NOT_OF_PLUGINS: &[&str] = &["k=2 m=1 crush-failure-domain=moon", "k=2 m=1 ruleset-root=x"];

/// The words on top of the default profile, when they name no other plug-in.
/// Source: OSDMonitor::parse_erasure_code_profile.
fn values(words: &str) -> (BTreeMap<String, String>, bool) {
    let words: Vec<String> = words.split(' ').map(|w| w.replace('+', " ")).collect();
    let force = words.iter().any(|w| w == "--force");
    let own: BTreeMap<String, String> = words
        .iter()
        .filter(|w| *w != "--force")
        .map(|w| w.split_once('=').unwrap_or((w, "")))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    if own.get("plugin").is_some_and(|p| p != "jerasure") {
        return (own, force);
    }
    let default = [("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "2"), ("m", "2")];
    let mut all: BTreeMap<String, String> = default.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    all.extend(own);
    (all, force)
}

fn read(words: &str) -> Result<Profile, ProfileError> {
    let (values, force) = values(words);
    Profile::checked(&values, force)
}

#[test]
fn profiles_are_taken_and_refused_as_by_ceph() {
    let mut refused_here = 0;
    for line in CAPTURED.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (words, errno) = (fields[0], Errno(fields[1].parse().expect("an errno")));
        if NOT_OF_PLUGINS.contains(&words) {
            continue;
        }
        let got = read(words);
        if let Some((_, own)) = REFUSED_HERE.iter().find(|(w, _)| *w == words) {
            assert_eq!((errno, got.map_err(|e| e.errno())), (Errno(0), Err(*own)), "{words}");
            refused_here += 1;
            continue;
        }
        if errno != Errno(0) {
            assert_eq!(got.map_err(|e| e.errno()), Err(errno), "{words}");
            continue;
        }
        let profile = got.unwrap_or_else(|e| panic!("{words}: {e}"));
        let want: BTreeMap<String, String> = serde_json::from_str(fields[2]).expect("a profile");
        assert_eq!(profile.values(), &want, "{words}");
        // Reading what was stored changes nothing.
        assert_eq!(Profile::new(&want).as_ref(), Ok(&profile), "{words}");
        if let Some(shape) = fields.get(3) {
            let codec = Codec::new(&profile, Simd::Detected);
            let (k, n) = (codec.data_chunk_count(), codec.chunk_count());
            let width = profile.stripe_width(4096).expect("a stripe");
            assert_eq!(format!("{width} {n} {}", k + (n - k - 1).min(1)), *shape, "{words}");
            assert_eq!(profile.chunk_size(width) * k as u64, u64::from(width), "{words}");
            assert_eq!(profile.chunk_size(width) % codec.grain() as u64, 0, "{words}");
        }
    }
    assert_eq!(refused_here, REFUSED_HERE.len(), "each is in the table");
}

fn check_text(words: &str, text: &str) {
    assert_eq!(read(words).expect_err(words).to_string().trim_end(), text, "{words}");
}

#[test]
fn refusals_say_what_to_do() {
    check_text("k=1", "k=1 must be >= 2");
    check_text("k=30 m=3", "33 chunks are too many: choose k and m so that there are at most 32 in all");
    check_text("k=2 m=1 colour=blue", "'colour' is no key of an erasure code profile: check its spelling");
    check_text("w=16", "w=16 is not supported: set w=8, which is enough for 32 chunks and the quickest");
    check_text(
        "plugin=clay",
        "plugin=clay is not supported: choose jerasure or isa, or lrc for cheaper recovery",
    );
    check_text("plugin=foo", "there is no erasure code plugin 'foo': use jerasure, isa or lrc");
    let layers = |text: &str| format!("plugin=lrc mapping=DDD__ layers={text}");
    let unsound = |text: &str, why: &str| check_text(&layers(text), &format!("layers that lose data: {why}"));
    unsound(r#"[["DDDc_"]]"#, "position 4 is neither data nor made by a layer");
    unsound(r#"[["DDc__"],["DDDcc"]]"#, "layer 0 makes position 2, which has content already");
    unsound(r#"[["DDD_c"],["DD_Dc"]]"#, "layer 1 reads position 3, which no layer before it makes");
    unsound(r#"[["DD_cc"]]"#, "the first layer has to read every data chunk, it says how large chunks are");
    unsound(r#"[["DDDc_"],["DDDDc"]]"#, "layer 1 has every chunk, and Ceph leaves out the layers before it");
    unsound(
        r#"[["DDDc_"],["DD__c","technique=cauchy_good+packetsize=64"]]"#,
        "chunks of a multiple of 32 bytes do not suit a layer with 512 bytes together",
    );
    unsound(r#"[["DDDcc","k=2"]]"#, "DDDcc has k=2 and m=2: leave k and m out, the letters say them");
}

#[test]
fn bounds_are_those_of_32_chunks() {
    for (words, chunks) in [("k=31 m=1", 32), ("plugin=isa k=28 m=3", 31), ("plugin=lrc k=16 m=8 l=3", 32)] {
        assert_eq!(read(words).map(|p| p.chunks()), Ok(chunks), "{words}");
    }
    for words in ["k=31 m=2", "plugin=isa k=30 m=3", "plugin=lrc k=16 m=16 l=2", "k=2147483647 m=2147483647"]
    {
        assert!(matches!(read(words), Err(ProfileError::TooManyChunks(_))), "{words}");
    }
    // Sizes that do not fit are told of, not cut.
    let wide = read("technique=cauchy_good k=26 m=6 packetsize=1048576").expect("a profile");
    assert_eq!(wide.stripe_width(4096), Ok(26 << 25));
    assert_eq!(wide.chunk_size(u32::MAX), (u64::from(u32::MAX)).div_ceil(26).next_multiple_of(32 << 20));
    assert_eq!(wide.stripe_width(1 << 30), Err(ProfileError::StripeTooWide));
    let refused = read("technique=cauchy_good packetsize=3 jerasure-per-chunk-alignment=yes");
    assert!(matches!(refused, Err(ProfileError::PacketSize { value: 3, .. })));
}

#[test]
fn placement_is_what_rules_are_made_from() {
    let simple = |root: &str, failure_domain: &str, device_class: &str| {
        let [root, failure_domain, device_class] = [root, failure_domain, device_class].map(str::to_owned);
        Placement::Simple { root, failure_domain, device_class }
    };
    let placement = |words: &str| read(words).expect("a profile").placement().clone();
    assert_eq!(placement("k=2 m=1"), simple("default", "host", ""));
    let words = "plugin=isa crush-root=r crush-failure-domain=osd crush-device-class=ssd";
    assert_eq!(placement(words), simple("r", "osd", "ssd"));
    let steps = |words: &str| match placement(words) {
        Placement::Steps { root, device_class, steps } => {
            assert_eq!((root.as_str(), device_class.as_str()), ("default", ""));
            steps
                .iter()
                .map(|s| format!("{} {} {}", s.leaf, s.bucket_type, s.count))
                .collect::<Vec<_>>()
                .join(", ")
        }
        other => panic!("{other:?}"),
    };
    let kml = "plugin=lrc k=4 m=2 l=3";
    assert_eq!(steps(kml), "true host 0");
    assert_eq!(steps(&format!("{kml} crush-failure-domain=osd")), "true osd 0");
    let words = format!("{kml} crush-locality=rack crush-failure-domain=osd");
    assert_eq!(steps(&words), "false rack 2, true osd 4");
    let layers = r#"plugin=lrc mapping=DD_ layers=[["DDc"]]"#;
    assert_eq!(steps(&format!("{layers} crush-failure-domain=osd")), "true host 0");
    let words = format!("{layers} crush-steps=[[\"choose\",\"rack\",2],[\"chooseleaf\",\"osd\",0],[]]");
    assert_eq!(steps(&words), "false rack 2, true osd 0, false  0");
}

/// Words of the table, put together at random and broken at random: refused, or a codec that keeps its
/// promises.
#[test]
fn broken_profiles_are_refused_or_work() {
    let words: Vec<&str> =
        CAPTURED.lines().filter_map(|l| l.split('\t').next()).flat_map(|l| l.split(' ')).collect();
    let mut rng = testkit::Rng::new(5);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..1 + rng.below(6) {
            text = text + words[rng.below(words.len() as u64) as usize] + " ";
        }
        let at =
            (0..2).map(|_| rng.below(2 * text.len() as u64) as usize).find(|at| text.is_char_boundary(*at));
        if let Some(at) = at.filter(|at| *at < text.len()) {
            let broken = *rng.pick(&["9", "-", "[", "]", "\"", ",", "D", "c", "=", "0", "\u{7f}", "é"]);
            text.insert_str(at, broken);
        }
        let Ok(profile) = read(text.trim_end()) else {
            refused += 1;
            continue;
        };
        taken += 1;
        check_codec(&profile, &mut rng).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    assert!(taken > 500 && refused > 5_000, "{taken} and {refused}");
}

/// Any single loss is made good.
fn check_codec(profile: &Profile, rng: &mut testkit::Rng) -> Result<(), erasure::CodecError> {
    let codec = Codec::new(profile, Simd::Detected);
    let (k, n) = (codec.data_chunk_count(), codec.chunk_count());
    assert!(k >= 2 && n > k && n <= erasure::MAX_CHUNKS && codec.coding_chunks().len() == n - k);
    assert_eq!(profile.chunk_size(4096) % codec.grain() as u64, 0);
    // Where packets are long one stripe is enough for the property, and too much for a test.
    if codec.grain() > 4096 {
        return Ok(());
    }
    let data: Vec<Vec<u8>> = (0..k).map(|_| rng.bytes(codec.grain())).collect();
    let mut coding = vec![vec![0; codec.grain()]; n - k];
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    codec.encode(&inputs, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())?;
    let mut chunks: Vec<Option<&[u8]>> = vec![None; n];
    codec.data_chunks().iter().zip(&inputs).for_each(|(at, chunk)| chunks[*at] = Some(chunk));
    codec.coding_chunks().iter().zip(&coding).for_each(|(at, chunk)| chunks[at] = Some(chunk));
    let lost = rng.below(n as u64) as usize;
    let want = chunks[lost].take();
    let all = erasure::ChunkSet::first(n);
    let set = [lost].into_iter().collect();
    let mut made = vec![0x77; codec.grain()];
    codec.rebuild(set, codec.minimum_to_decode(set, all - set)?)?.execute(&chunks, &mut [&mut made])?;
    assert_eq!(Some(made.as_slice()), want, "chunk {lost}");
    Ok(())
}
