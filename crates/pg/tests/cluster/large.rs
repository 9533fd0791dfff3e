//! Much in one message: long omap values, many attributes. Every message fits what the receiver's reader takes.

use bytes::Bytes;
use messages::osd::{CopyFromArgs, CopySource, Op};
use pg::OsdConfig;
use store::{FormatOptions, Store};
use testkit::SimDevice;
use types::{Errno, ObjectLocator, PgId, PoolId, SnapId};

use crate::mon;
use crate::scrub::{How, scrub};
use crate::sim::Sim;

const MIB: usize = 1 << 20;
const DEVICE_BYTES: u64 = 1_500 << 20;

fn cluster(seed: u64) -> (Sim, PoolId) {
    let mut s = Sim::with_devices(&[DEVICE_BYTES; 2], seed, OsdConfig::default());
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    (s, pool)
}

/// The result of a change.
fn change(s: &mut Sim, pool: PoolId, name: &str, ops: Vec<Op>) -> i32 {
    let map = s.mon.map.clone();
    let tid = s.client.change(&map, pool, name, ops);
    s.until("done", |s| s.client.is_idle());
    s.client.replies.iter().find(|(t, _)| *t == tid).expect("an answer").1.result
}

fn omap(key: &str, mib: usize) -> Op {
    let value = Bytes::from(vec![mib as u8; mib * MIB]);
    Op::OmapSetVals { vals: [(Bytes::copy_from_slice(key.as_bytes()), value)].into() }
}

fn xattr(name: &str, mib: usize) -> Op {
    Op::SetXattr { name: name.into(), value: vec![mib as u8; mib * MIB].into() }
}

/// A disk is replaced by an empty one, and everything comes back to it.
fn replace(s: &mut Sim, osd: i32) {
    s.kill(osd);
    let device = SimDevice::new(DEVICE_BYTES);
    let options = FormatOptions { fsid: mon::FSID, osd_uuid: mon::uuid(osd), log_bytes: None };
    Store::format(&device, options).expect("format");
    s.nodes[osd as usize].device = device.into();
    s.mon.change(|inc, map| {
        inc.new_lost.insert(osd, map.epoch);
    });
    s.start(osd);
    s.settle();
}

/// All members hold the same, as attributes and omap say.
fn check(s: &mut Sim, pool: PoolId, names: &[&str]) {
    let map = s.mon.map.clone();
    for name in names {
        let key = store::ObjectKey::replicated(s.client.object(&map, pool, name));
        let mut held = (0..2).map(|osd: usize| {
            let store = s.nodes[osd].core.as_mut().expect("runs").store_mut();
            let omap = store.omap_list(&key, std::ops::Bound::Unbounded, usize::MAX, usize::MAX);
            (store.attrs(&key).expect("attrs"), store.omap_header(&key).expect("header"), omap.expect("omap"))
        });
        let (first, second) = (held.next().expect("one"), held.next().expect("two"));
        assert!(!first.0.is_empty() && first == second, "{name} differs");
    }
    assert!(scrub(s, pool, How::Deep).contains(" ok"));
}

#[test]
fn long_values_are_written_recovered_and_scrubbed() {
    let (mut s, pool) = cluster(1);
    assert_eq!(change(&mut s, pool, "omap", vec![omap("a", 1), omap("b", 17)]), 0);
    assert_eq!(change(&mut s, pool, "omap", vec![omap("d", 80), omap("e", 3)]), 0);
    let header = Op::OmapSetHeader { header: vec![1; 15 * MIB].into() };
    assert_eq!(change(&mut s, pool, "attrs", vec![header, xattr("a", 17)]), 0);
    assert_eq!(change(&mut s, pool, "attrs", vec![xattr("c", 80), xattr("d", 1), omap("k", 1)]), 0);
    let names = ["omap", "attrs"];
    let primary = s.mon.map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
    replace(&mut s, 1 - primary);
    replace(&mut s, primary);
    check(&mut s, pool, &names);
}

/// A write that no member could be sent changes nothing, here neither.
#[test]
fn a_write_beyond_a_message_is_refused() {
    let (mut s, pool) = cluster(2);
    assert_eq!(change(&mut s, pool, "long", vec![omap("a", 80)]), 0);
    assert_eq!(change(&mut s, pool, "o", vec![xattr("a", 1)]), 0);
    s.client.too_large_allowed = true;
    let from = CopySource { object: "long".into(), locator: ObjectLocator::pool(pool) };
    let args = CopyFromArgs { snap: SnapId::HEAD, ..Default::default() };
    let copy = Op::CopyFrom2 { from, args, truncation: None };
    assert_eq!(change(&mut s, pool, "o", vec![xattr("b", 20), copy]), Errno::E2BIG.neg());
    assert_eq!(change(&mut s, pool, "o", vec![xattr("b", 3)]), 0);
    check(&mut s, pool, &["o"]);
    let key = store::ObjectKey::replicated(s.client.object(&s.mon.map.clone(), pool, "o"));
    let held = s.nodes[0].core.as_mut().expect("runs").store_mut().attrs(&key).expect("attrs");
    let sizes: Vec<usize> = held.iter().map(|(_, v)| v.len()).filter(|n| *n >= MIB).collect();
    assert_eq!(sizes, [MIB, 3 * MIB]);
}

/// A name of 1 KiB.
fn long_name(i: u64) -> String {
    format!("{i:01024}")
}

/// A member has missed as many writes as the log keeps, all of long names; both start again. Its log and its
/// list of what is missing go in messages that their reader takes.
#[test]
fn a_long_log_of_long_names_peers_after_a_restart() {
    const WRITES: u64 = 10_000;
    let entries = WRITES as usize + 100;
    let config =
        OsdConfig { min_pg_log_entries: entries, max_pg_log_entries: entries, ..OsdConfig::default() };
    let mut s = Sim::with_devices(&[DEVICE_BYTES; 2], 9, config);
    s.until("all up", |s| (0..2).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 1, 1);
    s.settle();
    assert_eq!(change(&mut s, pool, &long_name(WRITES), vec![xattr("a", 0)]), 0);
    s.kill(1);
    let map = s.mon.map.clone();
    for i in 0..WRITES {
        s.client.write(&map, pool, &long_name(i), vec![i as u8; 8]);
        if i % 50 == 49 {
            s.until("written", |s| s.client.is_idle());
        }
    }
    let pgid = types::SpgId::replicated(PgId::new(pool, 0));
    let head = types::Eversion::new(types::Epoch(u32::MAX), u64::MAX);
    let logged = |s: &Sim, osd: usize| {
        let core = s.nodes[osd].core.as_ref().expect("runs");
        core.logged(pgid, head, usize::MAX).expect("the PG").versions.len() as u64
    };
    s.crash(0);
    s.mon.mark_down(0);
    (0..2).for_each(|osd| s.start(osd));
    s.until("active", |s| {
        s.states().values().all(|state| state.starts_with("active")) && logged(s, 1) > WRITES
    });
    assert!(logged(&s, 0) > WRITES && logged(&s, 1) == logged(&s, 0));
    s.settle();
    s.check_copies();
}
