//! The text form against crushtool's: stored texts always, fresh ones where the tool is installed.

use crate::common;

use codec::{Decode, Encode};
use common::{TempFile, crushtool, data, random_map, run};
use crush::{Alg, Bucket, CrushMap, TextProblem};

/// Maps that real Ceph 16.2 made, each with crushtool's text.
const GOLDEN: [&str; 9] = [
    "new-cluster",
    "small-cluster",
    "classes",
    "choose-args",
    "erasure",
    "algs",
    "legacy-tunables",
    "shadow-without-devices",
    "reordered",
];

fn golden(name: &str) -> (Vec<u8>, String) {
    let bytes = std::fs::read(data(&format!("golden/{name}.bin"))).expect("a golden map");
    let text = std::fs::read_to_string(data(&format!("golden/{name}.txt"))).expect("a golden text");
    (bytes, text)
}

#[test]
fn golden_maps_come_back_byte_for_byte() {
    for name in GOLDEN {
        let (bytes, _) = golden(name);
        let map = CrushMap::from_bytes(bytes.clone()).expect(name);
        assert_eq!(map.to_bytes(), bytes, "{name}");
    }
}

#[test]
fn golden_maps_decompile_to_crushtools_text() {
    for name in GOLDEN {
        let (bytes, text) = golden(name);
        let map = CrushMap::from_bytes(bytes).expect(name);
        assert_eq!(map.decompile().expect(name), text, "{name}");
    }
}

/// Not the golden maps themselves: a text holds weights with three decimals only.
#[test]
fn golden_texts_compile_to_crushtools_bytes() {
    for name in GOLDEN {
        let (_, text) = golden(name);
        let again = std::fs::read(data(&format!("golden/{name}.again"))).expect("a recompiled map");
        assert_eq!(CrushMap::compile(&text).expect(name).to_bytes(), again, "{name}");
    }
}

/// Texts by hand, each with the bytes that `crushtool -c` made of it.
#[test]
fn hand_written_texts_compile_to_crushtools_bytes() {
    for name in ["hand", "hand-defaults", "hand-unordered"] {
        let text = std::fs::read_to_string(data(&format!("compile/{name}.txt"))).expect("a text");
        let bytes = std::fs::read(data(&format!("compile/{name}.bin"))).expect("its map");
        let map = CrushMap::compile(&text).expect(name);
        assert_eq!(map.decompile(), CrushMap::from_bytes(bytes.clone()).expect(name).decompile(), "{name}");
        assert_eq!(map.to_bytes(), bytes, "{name}");
    }
}

#[test]
fn random_maps_have_crushtools_text_and_compile_to_its_bytes() {
    let Some(tool) = crushtool() else { return };
    let mut compared = 0;
    for seed in 1..=80 {
        let (map, _) = random_map(seed);
        // crushtool dies of uniform buckets without weight.
        let weightless = |b: &Bucket| b.alg() == Alg::Uniform && !b.items.is_empty() && b.weight == 0;
        if map.buckets.iter().flatten().any(weightless) {
            continue;
        }
        compared += 1;
        let bytes = TempFile::new(&format!("text{seed}.bin"), &map.to_bytes());
        let text = TempFile::new(&format!("text{seed}.txt"), b"");
        run(&tool, &["-d", bytes.path(), "-o", text.path()]);
        let theirs = String::from_utf8(text.read()).expect("text");
        assert_eq!(map.decompile().expect("a text"), theirs, "seed {seed}");

        run(&tool, &["-c", text.path(), "-o", bytes.path()]);
        let ours = CrushMap::compile(&theirs).expect("crushtool's text");
        assert_eq!(ours.to_bytes(), bytes.read(), "seed {seed}");
    }
    assert!(compared >= 50, "{compared} maps compared");
}

#[test]
fn wrong_texts_are_refused_with_their_line() {
    let check = |text: &str, line: usize, fits: fn(&TextProblem) -> bool| {
        let error = CrushMap::compile(text).expect_err(text);
        assert!(error.line == line && fits(&error.problem), "{text:?}: {error}");
    };
    check("tunable speed 9", 1, |p| matches!(p, TextProblem::UnknownTunable(_)));
    check("device 0 osd.0\ndevice 1 osd.0", 2, |p| matches!(p, TextProblem::DefinedTwice(_)));
    check("type 1 host\nhost a { id 3 alg straw2 }", 2, |p| matches!(p, TextProblem::OutOfRange(_)));
    check("type 1 host\nhost a { id -3 alg magic }", 2, |p| matches!(p, TextProblem::UnknownAlg(_)));
    check("type 1 host\nhost a { alg straw2\nitem osd.7 }", 3, |p| matches!(p, TextProblem::NotDefined(_)));
    check("type 1 host\nhost a { alg straw2", 2, |p| matches!(p, TextProblem::Syntax { .. }));
    check("rule r { id 0", 1, |p| matches!(p, TextProblem::Syntax { .. }));
    check("type 1 host\nhost a { alg straw2 item b }\nhost b { alg straw2 item a }", 2, |p| {
        matches!(p, TextProblem::Mutual(..))
    });
    check("type 0 osd\nosd a { alg straw2 }", 0, |p| matches!(p, TextProblem::Map(_)));
    check("device 0 a\ntype 1 host\nhost h { alg uniform item a weight -1 }", 3, |p| {
        matches!(p, TextProblem::BadWeight(_))
    });
}

#[test]
fn no_prefix_of_a_text_panics() {
    let (_, text) = golden("choose-args");
    for end in (0..text.len()).filter(|n| text.is_char_boundary(*n)) {
        let _ = CrushMap::compile(&text[..end]);
    }
}
