//! Cut, random and altered bytes are refused, or read as some map: nothing panics.

use crate::common;

use codec::{Decode, Encode, crc32c};
use common::{RECORDED, Random, chain, data};
use maps::{FsMap, Incremental, MgrMap, MonMap, OsdMap, Pool, ServiceMap};

/// Refused at every length but the whole.
fn refuses_cuts<T: Decode>(what: &str, bytes: &[u8]) {
    assert!(T::from_bytes(bytes.to_vec()).is_ok(), "{what}");
    for n in 0..bytes.len() {
        assert!(T::from_bytes(bytes[..n].to_vec()).is_err(), "{what} cut at {n}");
    }
}

#[test]
fn cut_maps_are_refused() {
    for (series, epoch) in RECORDED {
        refuses_cuts::<OsdMap>("osdmap", &data(&format!("osdmap-{series}-{epoch}.bin")));
    }
    for inc in chain(1).iter().step_by(7) {
        refuses_cuts::<Incremental>("increment", inc);
    }
    refuses_cuts::<MonMap>("monmap", &data("monmap.bin"));
    refuses_cuts::<MgrMap>("mgrmap", &data("mgrmap-1.bin"));
    refuses_cuts::<FsMap>("fsmap", &data("fsmap.bin"));
    refuses_cuts::<ServiceMap>("servicemap", &data("servicemap.bin"));
    let map = OsdMap::from_bytes(data("osdmap-1-106.bin")).expect("a real map");
    for pool in map.pools.values() {
        refuses_cuts::<Pool>("pool", &pool.to_bytes());
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut r = Random::new(11);
    for _ in 0..2_000 {
        let n = r.below(200);
        let mut bytes: Vec<u8> = (0..n).map(|_| r.below(256) as u8).collect();
        // Half of them get past the head.
        if r.chance(50) && bytes.len() > 6 {
            bytes[..6].copy_from_slice(&[8, 7, (n - 6) as u8, 0, 0, 0]);
        }
        assert!(OsdMap::from_bytes(bytes.clone()).is_err());
        assert!(Incremental::from_bytes(bytes.clone()).is_err());
        let _ = MonMap::from_bytes(bytes.clone());
        let _ = MgrMap::from_bytes(bytes.clone());
        let _ = FsMap::from_bytes(bytes.clone());
        let _ = ServiceMap::from_bytes(bytes.clone());
        let _ = Pool::from_bytes(bytes);
    }
}

/// Puts the right crc back: `tail` bytes follow it.
fn fix_crc(bytes: &mut [u8], tail: usize) {
    let at = bytes.len() - tail - 4;
    let crc = crc32c(crc32c(!0, &bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn alter(r: &mut Random, bytes: &mut [u8]) {
    for _ in 0..1 + r.below(3) {
        let at = r.below(bytes.len() as u64) as usize;
        bytes[at] = if r.chance(50) { r.below(256) as u8 } else { bytes[at] ^ (1 << r.below(8)) };
    }
}

/// Everything that reads a map works on whatever was accepted. PGs are placed when the CRUSH map is as it was: altered
/// ones are the crush crate's tests, and may be slow by right.
fn use_map(map: &OsdMap, before: &OsdMap) {
    map.assert_invariants();
    // The required release implies flags, which readers set; from then on nothing changes.
    let read = OsdMap::from_bytes(map.to_bytes()).expect("what we write we read");
    let again = OsdMap::from_bytes(read.to_bytes()).expect("what we write we read");
    assert_eq!(again.to_bytes(), read.to_bytes());
    assert!(map.dump().is_object() && !map.print().is_empty());
    let few = map.pools.values().map(|p| u64::from(p.pg_num)).sum::<u64>() < 500;
    if few && map.crush == before.crush {
        map.for_each_pg(|pg, m| assert!(m.acting.len() <= 10_000, "{pg}"));
    }
}

#[test]
fn altered_maps_are_refused_or_usable() {
    let mut r = Random::new(12);
    let mut accepted = 0;
    for (series, epoch) in RECORDED {
        let whole = data(&format!("osdmap-{series}-{epoch}.bin"));
        let original = OsdMap::from_bytes(whole.clone()).expect("a real map");
        for _ in 0..400 {
            let mut bytes = whole.clone();
            alter(&mut r, &mut bytes);
            if bytes != whole {
                assert!(OsdMap::from_bytes(bytes.clone()).is_err(), "the crc no longer fits");
            }
            fix_crc(&mut bytes, 0);
            if let Ok(map) = OsdMap::from_bytes(bytes) {
                accepted += 1;
                use_map(&map, &original);
            }
        }
    }
    assert!(accepted > 400, "{accepted}");
}

#[test]
fn altered_increments_are_refused_or_apply_wholly() {
    let mut r = Random::new(13);
    let mut map = OsdMap::before_first(Default::default(), Default::default());
    let (mut refused, mut applied) = (0, 0);
    for bytes in chain(1) {
        for _ in 0..15 {
            let mut altered = bytes.clone();
            alter(&mut r, &mut altered);
            fix_crc(&mut altered, 4);
            let Ok(inc) = Incremental::from_bytes(altered) else { continue };
            let mut next = map.clone();
            if next.apply(&inc).is_ok() {
                applied += 1;
                use_map(&next, &map);
            } else {
                refused += 1;
                assert_eq!(next, map, "unchanged after an error");
            }
        }
        map.apply(&Incremental::from_bytes(bytes).expect("a real increment")).expect("applies");
    }
    assert!(applied > 100 && refused > 100, "{applied} {refused}");
}
