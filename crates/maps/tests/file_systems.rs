//! Maps of file systems that a real 16.2.15 cluster had: a follower, two ranks, a mirrored file system, a failed rank.

use crate::common;

use codec::{Decode, Encode};
use common::{data, text};
use maps::{FsMap, FsMapUser, MdsInfo, MdsMap, MdsState, NO_FS};
use serde_json::Value;
use types::{CompatSet, Epoch, Utime};

const RECORDED: [u32; 5] = [5, 12, 24, 26, 36];

fn recorded(epoch: u32) -> FsMap {
    FsMap::from_bytes(data(&format!("fsmap-{epoch}.bin"))).expect("a real map")
}

#[test]
fn real_maps_come_back_byte_for_byte_and_are_shown_as_ceph_does() {
    for epoch in RECORDED {
        let map = recorded(epoch);
        assert_eq!((map.epoch, map.check()), (Epoch(epoch), Ok(())));
        assert_eq!(map.to_bytes(), data(&format!("fsmap-{epoch}.bin")), "{epoch}");
        // The command drops empty lines, and the file has the newline of the client.
        let lines =
            |text: &str| text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&map.print()), lines(&text(&format!("fsmap-{epoch}.txt"))), "{epoch}");
        let theirs: Value = serde_json::from_str(&text(&format!("fsmap-{epoch}.json"))).expect("JSON");
        assert_eq!(map.dump().to_string(), theirs.to_string(), "{epoch}");
    }
}

#[test]
fn cut_maps_are_refused_at_every_length() {
    for epoch in RECORDED {
        let whole = data(&format!("fsmap-{epoch}.bin"));
        for n in 0..whole.len() {
            assert!(FsMap::from_bytes(whole[..n].to_vec()).is_err(), "{epoch} cut at {n}");
        }
    }
    let one = recorded(24).filesystems[&1].map.to_bytes();
    for n in 0..one.len() {
        assert!(MdsMap::from_bytes(one.slice(..n)).is_err(), "cut at {n}");
    }
    let user = FsMapUser::of(&recorded(24));
    let bytes = user.to_bytes();
    assert_eq!(FsMapUser::from_bytes(bytes.clone()), Ok(user));
    for n in 0..bytes.len() {
        assert!(FsMapUser::from_bytes(bytes.slice(..n)).is_err(), "cut at {n}");
    }
}

/// Of a map whose parts do not agree nothing is taken.
#[test]
fn a_map_that_does_not_hold_together_is_refused() {
    let spoil: [fn(&mut FsMap); 6] = [
        |m| m.legacy_client_fscid = 7,
        |m| m.filesystems.get_mut(&1).expect("is there").map.up.clear(),
        |m| m.filesystems.get_mut(&1).expect("is there").map.r#in.clear(),
        |m| m.filesystems.get_mut(&1).expect("is there").map.damaged.extend([0]),
        |m| m.standbys.values_mut().for_each(|(i, _)| i.rank = 0),
        |m| m.filesystems.get_mut(&1).expect("is there").map.info.values_mut().for_each(|i| i.rank = 9),
    ];
    for (i, spoil) in spoil.into_iter().enumerate() {
        let mut map = recorded(5);
        spoil(&mut map);
        assert!(map.check().is_err(), "{i}");
        assert!(FsMap::from_bytes(map.to_bytes()).is_err(), "{i}");
    }
}

#[test]
fn the_words_of_status_are_cephs() {
    let cases = [
        (5, "cephfs:1 {0=a=up:active} 2 up:standby", "1/1 daemons up, 2 standby", "1/1 healthy"),
        (
            12,
            "cephfs:2 two:1 {cephfs:0=a=up:active,cephfs:1=d=up:active,two:0=b=up:creating} 2 up:standby-replay",
            "3/3 daemons up, 2 hot standby",
            "2/2 healthy",
        ),
        (
            36,
            "cephfs:1/2 two:0/1 {cephfs:0=e=up:active} 1 up:standby, 2 failed",
            "1/3 daemons up (2 failed), 1 standby",
            "0/2 healthy, 2 failed",
        ),
    ];
    for (epoch, stat, daemons, volumes) in cases {
        let map = recorded(epoch);
        assert_eq!(map.summary(), stat);
        assert_eq!(map.daemons_summary(), daemons);
        assert_eq!(map.volumes_summary().as_deref(), Some(volumes));
    }
    assert_eq!(FsMap::initial().volumes_summary(), None);
}

fn daemon(gid: u64, name: &str) -> MdsInfo {
    MdsInfo { gid, name: name.to_owned(), compat: CompatSet::all(), ..MdsInfo::default() }
}

fn with_standbys(gids: &[u64]) -> FsMap {
    let mut map = FsMap::initial();
    gids.iter().for_each(|gid| map.insert_standby(daemon(*gid, &format!("m{gid}"))));
    map
}

fn state(map: &FsMap, gid: u64) -> MdsState {
    map.daemon(gid).map_or(MdsState::DNE, |i| i.state)
}

/// A rank begins anew once, is replayed from then on, and reads its tables when it comes back after it was stopped.
#[test]
fn what_a_rank_begins_with_follows_from_its_past() {
    let mut map = with_standbys(&[1, 2, 3, 4]);
    let fs = map.create("a", 1, 2, Utime::ZERO, None);
    assert_eq!((fs, map.legacy_client_fscid), (1, 1));
    map.promote(1, fs, 0);
    assert_eq!(state(&map, 1), MdsState::CREATING);
    // It never got as far as to write something that counts.
    map.erase(1, Some(Epoch(5)));
    assert!(map.filesystems[&fs].map.r#in.is_empty());
    map.promote(2, fs, 0);
    assert_eq!(state(&map, 2), MdsState::CREATING);
    map.modify_daemon(2, |i| i.state = MdsState::ACTIVE);
    map.follow(3, fs, 0);
    assert_eq!(state(&map, 3), MdsState::STANDBY_REPLAY);
    map.erase(2, Some(Epoch(9)));
    assert_eq!(map.filesystems[&fs].map.last_failure_osd_epoch, Epoch(9));
    let next = map.replacement(fs, 0, |_| true).expect("somebody").gid;
    assert_eq!(next, 3, "whoever followed");
    map.promote(next, fs, 0);
    assert_eq!((state(&map, 3), map.check()), (MdsState::REPLAY, Ok(())));
    map.promote(4, fs, 1);
    assert_eq!(state(&map, 4), MdsState::CREATING);
    map.insert_standby(daemon(5, "m5"));
    map.follow(5, fs, 1);
    assert_eq!(map.stop(4), [5], "followers of a rank that ends go with it");
    map.insert_standby(daemon(6, "m6"));
    map.promote(6, fs, 1);
    assert_eq!((state(&map, 6), map.check()), (MdsState::STARTING, Ok(())));
    map.damaged(6, Some(Epoch(12)));
    let ranks = &map.filesystems[&fs].map;
    assert!(ranks.damaged.contains(&1) && !ranks.failed.contains(&1) && ranks.r#in.contains(&1));
    assert!(map.undamaged(fs, 1) && !map.undamaged(fs, 1));
    assert_eq!(map.check(), Ok(()));
}

/// A follower or a standby that goes blocks nobody: the epoch that the next holder of a rank waits for stays.
#[test]
fn the_end_of_a_follower_takes_no_epoch_back() {
    let mut map = with_standbys(&[1, 2]);
    let fs = map.create("a", 1, 2, Utime::ZERO, None);
    map.promote(1, fs, 0);
    map.modify_daemon(1, |i| i.state = MdsState::ACTIVE);
    map.erase(1, Some(Epoch(30)));
    map.promote(2, fs, 0);
    map.insert_standby(daemon(3, "m3"));
    map.follow(3, fs, 0);
    map.erase(3, None);
    assert_eq!(map.filesystems[&fs].map.last_failure_osd_epoch, Epoch(30));
    map.erase(2, Some(Epoch(31)));
    map.reset_fs(fs, Utime::ZERO);
    assert_eq!(map.filesystems[&fs].map.last_failure_osd_epoch, Epoch(31), "a reset lets nobody in earlier");
}

#[test]
fn standbys_are_chosen_by_what_they_would_rather_serve() {
    let mut map = with_standbys(&[1, 2, 3]);
    let (a, b) = (map.create("a", 1, 2, Utime::ZERO, None), map.create("b", 3, 4, Utime::ZERO, None));
    map.modify_daemon(1, |i| i.join_fscid = b);
    map.modify_daemon(3, |i| i.join_fscid = a);
    let chosen = |map: &FsMap, fs| map.replacement(fs, 0, |_| true).map(|i| i.gid);
    assert_eq!((chosen(&map, a), chosen(&map, b)), (Some(3), Some(1)));
    map.modify_daemon(3, |i| i.flags = MdsInfo::FROZEN);
    assert_eq!(chosen(&map, a), Some(2), "one that wants no other");
    map.modify_daemon(2, |i| i.laggy_since = Utime::new(1, 0));
    assert_eq!(chosen(&map, a), Some(1), "any");
    map.modify_fs(a, |fs| fs.map.compat = CompatSet::all());
    map.modify_daemon(1, |i| i.compat = CompatSet::of_new_file_system());
    assert_eq!(chosen(&map, a), None, "one that would not understand what is there");
    map.erase_fs(b);
    assert_eq!(map.daemon(1).map(|i| i.join_fscid), Some(NO_FS));
    map.erase_fs(a);
    assert_eq!((map.legacy_client_fscid, map.check()), (NO_FS, Ok(())));
}
