//! Health of a cluster that changes: checks come and go, mutes silence them and end by themselves.

use crate::common;

use common::World;
use serde_json::Value;

struct Cluster {
    world: World,
    admin: types::ConnId,
}

impl Cluster {
    fn new() -> Self {
        let mut world = World::new();
        let admin = world.admin();
        Self { world, admin }
    }

    fn run(&mut self, cmd: &str) -> (i32, String, String) {
        let cmd = self.world.command(self.admin, cmd);
        self.world.run();
        cmd
    }

    fn done(&mut self, cmd: &str) {
        let (code, outs, _) = self.run(cmd);
        assert_eq!(code, 0, "{cmd}: {outs}");
    }

    fn health(&mut self) -> String {
        self.run(r#"{"prefix":"health"}"#).2
    }
}

const SET_NOOUT: &str = r#"{"prefix":"osd set","key":"noout"}"#;
const SET_NOUP: &str = r#"{"prefix":"osd set","key":"noup"}"#;
const UNSET_NOOUT: &str = r#"{"prefix":"osd unset","key":"noout"}"#;
const MUTE: &str = r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","ttl":"1h"}"#;

#[test]
fn a_mute_silences_until_its_time_is_over() {
    let mut c = Cluster::new();
    let (code, outs, _) = c.run(MUTE);
    assert_eq!((code, outs.as_str()), (-2, "health alert OSDMAP_FLAGS is not currently raised"));
    let (code, outs, _) = c.run(r#"{"prefix":"health mute","code":"X","ttl":"soon","sticky":true}"#);
    assert_eq!((code, outs.as_str()), (-22, "not a valid duration: soon"));
    c.done(SET_NOOUT);
    assert_eq!(c.health(), "HEALTH_WARN noout flag(s) set\n");
    c.done(MUTE);
    assert_eq!(c.health(), "HEALTH_OK (muted: OSDMAP_FLAGS(60m))\n");
    let json = c.run(r#"{"prefix":"health","format":"json"}"#).2;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["status"], &json["checks"]["OSDMAP_FLAGS"]["muted"]),
        (&"HEALTH_OK".into(), &true.into())
    );
    c.world.tick(3_601);
    assert_eq!(c.health(), "HEALTH_WARN noout flag(s) set\n");
    assert!(c.world.mon.state().mutes.is_empty());
}

#[test]
fn a_mute_ends_when_what_it_silences_is_over_or_grows() {
    let mut c = Cluster::new();
    c.done(SET_NOOUT);
    c.done(MUTE);
    c.done(UNSET_NOOUT);
    c.world.tick(5);
    assert_eq!(c.health(), "HEALTH_OK\n");
    c.done(SET_NOOUT);
    c.done(MUTE);
    c.done(SET_NOUP);
    c.world.tick(5);
    assert_eq!(c.health(), "HEALTH_WARN noup,noout flag(s) set\n");
    let log = c.run(r#"{"prefix":"log last","num":9}"#).2;
    let cleared = "Health alert mute OSDMAP_FLAGS cleared (count increased from 5 to 10)";
    assert!(log.contains(cleared) && log.contains("cleared (health alert cleared)"), "{log}");
}

#[test]
fn sticky_mutes_stay_until_they_are_taken_away() {
    let mut c = Cluster::new();
    c.done(r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","sticky":true}"#);
    c.world.tick(5);
    c.done(SET_NOOUT);
    assert_eq!(c.health(), "HEALTH_OK (muted: OSDMAP_FLAGS)\n");
    c.done(r#"{"prefix":"health unmute","code":"OSDMAP_FLAGS"}"#);
    assert_eq!(c.health(), "HEALTH_WARN noout flag(s) set\n");
}

/// A monitor that begins to lead knows only what a manager said to somebody else, perhaps long ago: PGs count as unknown
/// until a manager speaks.
#[test]
fn yesterdays_health_is_not_todays() {
    let mut c = Cluster::new();
    let mut digest = monitor::state::PgDigest::default();
    digest.pg_states.insert(0x82, 8);
    let say = |c: &mut Cluster| {
        let summary = codec::Encode::to_bytes(&digest);
        let msg = messages::mgr::MPgDigest { gid: 0, summary, ..messages::mgr::MPgDigest::default() };
        c.world.send(c.admin, msg);
    };
    say(&mut c);
    assert!(!c.health().contains("PG_AVAILABILITY") && !c.health().contains("inactive"));
    let later = monitor::QuorumView { term: 2, ..monitor::QuorumView::alone() };
    c.world.input(monitor::Input::Quorum(later));
    c.world.run();
    c.admin = c.world.admin();
    assert!(c.health().contains("Reduced data availability: 8 pgs inactive"), "{}", c.health());
    let status: Value =
        serde_json::from_str(&c.run(r#"{"prefix":"status","format":"json"}"#).2).expect("JSON");
    assert_eq!(status["pgmap"]["pgs_by_state"][0]["state_name"], "unknown");
    say(&mut c);
    assert!(!c.health().contains("inactive"), "{}", c.health());
}

/// PGs that nobody reports are counted as unknown. A pool that OSDs serve is not said to be refused
/// meanwhile.
#[test]
fn pgs_that_nobody_reports_are_counted() {
    use monitor::state::{PgDigest, PoolUsage};
    let mut c = Cluster::new();
    (0..3).for_each(|id| common::boot_osd(&mut c.world, id));
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    c.done(r#"{"prefix":"osd pool create","pool":"e","pg_num":4,"pool_type":"erasure"}"#);
    let map = c.world.mon.state().osdmap();
    let mut digest = PgDigest { epoch: map.epoch, ..PgDigest::default() };
    let usage = |p: &maps::Pool| PoolUsage { num_pg: p.pg_num, ..PoolUsage::default() };
    digest.pools = map.pools.iter().map(|(id, pool)| (*id, usage(pool))).collect();
    digest.pg_states.insert(messages::pg_state::ACTIVE | messages::pg_state::CLEAN, 8);
    let summary = codec::Encode::to_bytes(&digest);
    let report = messages::mgr::MPgDigest { epoch: digest.epoch, gid: 0, summary };
    c.world.send(c.admin, report);
    let json = |c: &mut Cluster, cmd: &str| -> Value { serde_json::from_str(&c.run(cmd).2).expect("JSON") };
    let status = json(&mut c, r#"{"prefix":"status","format":"json"}"#);
    assert_eq!(status["pgmap"]["num_pgs"], 12);
    let unknown = serde_json::json!({ "state_name": "unknown", "count": 4 });
    assert!(status["pgmap"]["pgs_by_state"].as_array().is_some_and(|s| s.contains(&unknown)), "{status}");
    let health = json(&mut c, r#"{"prefix":"health","format":"json"}"#);
    assert!(health["checks"]["POOL_NOT_SERVED"].is_null());
}

/// Nothing is forgotten that a PG may need; much of it is told of.
#[test]
fn many_old_maps_are_told_of() {
    let mut c = Cluster::new();
    let kept = c.world.mon.state().osds.kept_bytes();
    let warn_at = |bytes: usize| {
        let value = bytes.to_string();
        serde_json::json!({"prefix": "config set", "who": "mon", "name": "mon_data_size_warn", "value": value}).to_string()
    };
    c.done(&warn_at(kept + 10_000));
    assert_eq!(c.health(), "HEALTH_OK\n");
    while c.world.mon.state().osds.kept_bytes() < kept + 10_000 {
        c.done(SET_NOOUT);
        c.done(UNSET_NOOUT);
    }
    c.world.tick(5);
    assert_eq!(c.health(), "HEALTH_WARN mon a is using a lot of disk space\n");
    c.done(&warn_at(kept + 1_000_000));
    assert_eq!(c.health(), "HEALTH_OK\n");
}
