//! Clients keep to themselves what a PG could only let wait, and send it when they may.

use pg::OsdConfig;
use types::{PgId, PoolId};

use crate::sim::Sim;

fn cluster(seed: u64, config: OsdConfig) -> (Sim, PoolId) {
    let mut s = Sim::with_config(3, seed, config);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(3, 2, 4);
    s.settle();
    (s, pool)
}

fn ops_at_osds(s: &mut Sim) -> u64 {
    let count = |s: &mut Sim, osd: i32| {
        let cmd = serde_json::json!({ "prefix": "ops" }).to_string();
        s.input(osd, pg::Input::AdminCommand { tid: 1, cmd });
        let reply = s.nodes[osd as usize].admin_replies.pop()?;
        serde_json::from_slice::<serde_json::Value>(&reply.data).ok()?["num_ops"].as_u64()
    };
    (0..3).filter_map(|osd| count(s, osd)).sum()
}

/// Below `min_size` nothing waits at the OSDs, however much the client has to write; all of it is done, in order, when the
/// members are back.
#[test]
fn what_an_inactive_pg_cannot_take_stays_with_the_client() {
    for seed in 1..7 {
        let (mut s, pool) = cluster(seed, OsdConfig { min_pg_log_entries: 200, ..OsdConfig::default() });
        let map = s.mon.map.clone();
        // Some of the writes are under way when the members go.
        for i in 0..20 {
            s.client.write(&map, pool, &format!("o{i}"), vec![1, i]);
        }
        s.run(seed as usize * 20);
        let keep = map.pg_to_up_acting(PgId::new(pool, 0)).acting_primary;
        let gone: Vec<i32> = (0..3).filter(|o| *o != keep).collect();
        for osd in &gone {
            s.crash(*osd);
            s.notice_crash(*osd);
        }
        s.until("both down", |s| gone.iter().all(|o| !s.mon.map.is_up(*o)));
        let map = s.mon.map.clone();
        for i in 20..60 {
            s.client.write(&map, pool, &format!("o{i}"), vec![2, i]);
            s.client.read(&map, pool, &format!("other{i}"));
        }
        s.until("told to wait", |s| s.client.blocked > 0);
        s.run(2_000);
        assert!(!s.client.is_idle());
        assert!(!s.client.backoffs.is_empty());
        assert_eq!(ops_at_osds(&mut s), 0, "nothing waits there");
        s.start(gone[0]);
        s.until("done", |s| s.client.is_idle());
        assert!(s.client.backoffs.is_empty(), "all were released");
        s.start(gone[1]);
        s.settle();
        s.check_copies();
    }
}

/// With the options for it, also peering and objects in recovery keep clients from sending.
#[test]
fn peering_and_degraded_objects_too_when_asked_for() {
    for seed in 1..5 {
        let config = OsdConfig {
            min_pg_log_entries: 200,
            backoff_on_peering: true,
            backoff_on_degraded: true,
            ..OsdConfig::default()
        };
        let (mut s, pool) = cluster(seed, config);
        let map = s.mon.map.clone();
        for round in 0..6u8 {
            let osd = i32::from(round % 3);
            s.crash(osd);
            s.notice_crash(osd);
            for i in 0..30u8 {
                if !s.client.is_busy(&format!("o{i}")) {
                    s.client.write(&map, pool, &format!("o{i}"), vec![round, i]);
                }
            }
            // Some may have to wait for who is away: what was written while the others were lies there alone.
            s.run(2_000);
            s.start(osd);
            s.run(300);
        }
        s.settle();
        s.until("all are done", |s| s.client.is_idle());
        assert!(s.client.acked > 100, "{}", s.client.acked);
        assert!(s.client.blocked > 10, "{}", s.client.blocked);
        assert!(s.client.backoffs.is_empty());
        s.check_copies();
    }
}

/// A pool whose only member that is left tells its client to wait.
fn waiting(seed: u64) -> (Sim, PoolId) {
    let (mut s, pool) = cluster(seed, OsdConfig::default());
    for osd in [1, 2] {
        s.crash(osd);
        s.notice_crash(osd);
    }
    s.until("both down", |s| !s.mon.map.is_up(1) && !s.mon.map.is_up(2));
    let map = s.mon.map.clone();
    for i in 0..8 {
        s.client.write(&map, pool, &format!("o{i}"), vec![i]);
    }
    s.until("told to wait", |s| s.client.blocked > 0);
    // No message is under way any more.
    s.run(2_000);
    (s, pool)
}

/// A client that leaves takes its backoffs with it; the invariants hold sessions and PGs against each other.
#[test]
fn backoffs_end_with_the_session() {
    let (mut s, _) = waiting(9);
    let conn = types::ConnId(crate::sim::CLIENT as u64);
    s.input(0, pg::Input::Disconnected { conn });
    s.client_without_backoffs();
    s.client.session_lost(0);
    s.run(200);
    assert!(s.client.backoffs.is_empty());
    assert!(ops_at_osds(&mut s) > 0, "a client without the feature waits at the OSD");
}

#[test]
fn backoffs_end_with_the_pool() {
    let (mut s, pool) = waiting(10);
    assert!(!s.client.backoffs.is_empty());
    s.client = crate::client::Client::default();
    s.mon.change(|inc, _| {
        inc.old_pools.insert(pool);
    });
    s.until("gone", |s| s.nodes[0].core.as_ref().is_some_and(|c| c.pg_states().is_empty()));
    assert_eq!(ops_at_osds(&mut s), 0);
}
