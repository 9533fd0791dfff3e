//! Capability strings are accepted and refused exactly as Ceph's monitor does, with the same words.

use cephx::validate_caps;

#[test]
fn the_parsers_agree_with_ceph() {
    let mut cases = 0;
    for line in include_str!("data/caps.txt").lines().filter(|l| !l.starts_with('#')) {
        let fields: Vec<String> = line.split('\t').map(|f| f.replace("\\n", "\n")).collect();
        let [service, text, error] = fields.as_slice() else { panic!("malformed fixture line: {line}") };
        let got = validate_caps(service, text).map_or_else(|e| e.to_string(), |()| String::new());
        assert_eq!(&got, error, "{service} '{text}'");
        cases += 1;
    }
    assert!(cases > 140, "only {cases} cases were read");
}
