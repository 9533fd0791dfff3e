//! Erasure-coded PGs whose members lose messages, sessions and copies: nothing is acknowledged too early, and
//! no request waits for an answer that does not come.

use pg::{Input, OsdConfig};
use types::OsdId;

use crate::coded::{CHUNK, acting, bytes, check_shards, cluster_with, primary, under_way};
use crate::sim::{CLIENT, Sim};

fn long_log() -> OsdConfig {
    OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() }
}

fn all_under_way(s: &Sim, from: i32, to: &[i32], kind: &str) -> bool {
    to.iter().all(|to| under_way(s, from, *to, kind).is_some())
}

/// The primary takes a write back that no member has got, because a session was lost. Its device has it all
/// the same, and says so late: that is no word of the next write, which has the same version.
#[test]
fn a_write_that_was_taken_back_does_not_stand_for_the_next() {
    for (seed, code) in (0..8).zip([(2, 1), (2, 2)].into_iter().cycle()) {
        let (mut s, pool) = cluster_with(code, 2, 0, seed, long_log());
        let map = s.mon.map.clone();
        let (old, new) = (bytes(&mut s, 6 * CHUNK), bytes(&mut s, 6 * CHUNK));
        s.client.write(&map, pool, "o", old);
        s.settle();
        let first = primary(&s, pool);
        let others: Vec<i32> = acting(&s, pool).into_iter().filter(|osd| *osd != first).collect();
        s.client.write(&map, pool, "o", new);
        s.deliver_requests(first);
        assert!(all_under_way(&s, first, &others, "RepOp"));
        let core = s.nodes[first as usize].core.as_mut().unwrap();
        let late = core.store_mut().take_commit().expect("the write");
        for osd in &others {
            s.links.remove(&(first, *osd));
            s.input(first, Input::OsdReset { osd: OsdId(*osd) });
        }
        s.until("starts again", |s| {
            let starts = s.states().values().all(|t| t.contains("activating"));
            starts && !others.iter().any(|osd| s.links.get(&(first, *osd)).is_some_and(|q| !q.is_empty()))
        });
        let device = s.nodes[first as usize].device.clone();
        let core = s.nodes[first as usize].core.as_mut().unwrap();
        let seq = core.store_mut().committed(late.execute(&*device)).unwrap();
        s.input(first, Input::Durable(seq));
        s.commit(first);
        s.until("shipped again", |s| all_under_way(s, first, &others, "RepOp"));
        for osd in &others {
            s.deliver_all(first, *osd);
            s.commit(*osd);
            s.deliver_all(*osd, first);
        }
        assert!(!s.is_durable(first), "the write is durable there");
        s.deliver_all(first, CLIENT);
        assert!(!s.client.is_idle(), "the write was acknowledged, and may be lost");
        // All end, and the copy with the shortest log counts.
        for osd in [&[first][..], &others].concat() {
            s.crash(osd);
            s.start(osd);
        }
        s.settle();
        check_shards(&mut s, pool);
    }
}
