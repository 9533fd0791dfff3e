//! Maps of real 16.2.15 clusters come back byte for byte, and increments lead from one to the next.

use crate::common;

use codec::{Decode, Encode};
use common::{RECORDED, chain, data, recorded, replay};
use maps::{Incremental, OsdMap};
use types::{Fsid, Utime};

#[test]
fn full_maps_come_back_byte_for_byte() {
    for (series, epoch) in RECORDED {
        let bytes = data(&format!("osdmap-{series}-{epoch}.bin"));
        let map = OsdMap::from_bytes(bytes.clone()).expect("a real map");
        assert_eq!(map.epoch.0, epoch);
        assert_eq!(map.to_bytes(), bytes, "{series} {epoch}");
    }
}

#[test]
fn increments_come_back_byte_for_byte() {
    for series in [1, 2] {
        for (i, bytes) in chain(series).into_iter().enumerate() {
            let inc = Incremental::from_bytes(bytes.clone()).expect("a real increment");
            assert_eq!(inc.epoch.0, i as u32 + 1);
            assert_eq!(inc.to_bytes(), bytes, "{series} {}", inc.epoch);
        }
    }
}

/// Each real increment holds the crc32c of the map it leads to.
#[test]
fn every_real_increment_leads_to_the_real_next_map() {
    for series in [1, 2] {
        let mut map = OsdMap::before_first(Fsid::default(), Utime::ZERO);
        for bytes in chain(series) {
            let inc = Incremental::from_bytes(bytes).expect("a real increment");
            map.apply_checked(&inc).unwrap_or_else(|e| panic!("{series} {}: {e}", inc.epoch));
            map.assert_invariants();
        }
    }
    for (series, epoch) in RECORDED {
        assert_eq!(replay(series, epoch), recorded(series, epoch), "{series} {epoch}");
    }
}
