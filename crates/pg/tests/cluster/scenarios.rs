//! One story per test.

use types::Epoch;

use crate::sim::Sim;

fn cluster(osds: i32, size: u8, min_size: u8, pg_num: u32, seed: u64) -> (Sim, types::PoolId) {
    let mut s = Sim::new(osds, seed);
    s.until("all up", |s| (0..osds).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(size, min_size, pg_num);
    s.settle();
    (s, pool)
}

fn write_all(s: &mut Sim, pool: types::PoolId, names: std::ops::Range<u32>, tag: u8) {
    for i in names {
        let name = format!("o{i}");
        let content = vec![tag, i as u8, tag];
        let map = s.mon.map.clone();
        s.client.write(&map, pool, &name, content);
    }
}

#[test]
fn writes_are_on_every_member_when_acknowledged() {
    let (mut s, pool) = cluster(3, 3, 2, 8, 1);
    write_all(&mut s, pool, 0..40, 1);
    s.until("all acked", |s| s.client.is_idle());
    s.check_copies();
    assert_eq!(s.client.acked, 40);
    for (_, r) in &s.client.replies {
        assert!(r.replay_version.epoch > Epoch(0) && r.user_version > 0);
        assert_eq!(r.bad_replay_version.version, r.user_version);
    }
    for i in 0..40 {
        let map = s.mon.map.clone();
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.settle();
}
