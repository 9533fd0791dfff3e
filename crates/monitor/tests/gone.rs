//! What an OSD leaves behind: data that only it had, and leases that it may still serve by. Neither is given up lightly.

use crate::common;

use common::{FSID, World, boot_message, boot_osd, uuid};
use messages::osd::{MOsdBoot, MOsdFailure, OsdSuperblock};
use monitor::health::Health;
use types::{ConnId, Epoch, Fsid};

const ADMIN: ConnId = ConnId(1);

fn cluster(osds: i32) -> World {
    let mut w = World::new();
    w.admin();
    (0..osds).for_each(|id| boot_osd(&mut w, id));
    w.take();
    w
}

fn lost_at(w: &World, id: i32) -> Epoch {
    w.mon.state().osdmap().osd(id).expect("in the map").info.lost_at
}

fn is_up(w: &World, id: i32) -> bool {
    w.mon.state().osdmap().is_up(id)
}

fn run(w: &mut World, cmd: &str) -> String {
    let (code, status, out) = w.command(ADMIN, cmd);
    assert_eq!(code, 0, "{cmd}: {status}");
    out
}

/// A store that was never up boots under the number, in another process.
fn boot_empty(w: &mut World, id: i32, osd_fsid: Fsid, life: u64) {
    let conn = w.connect(
        200 + life,
        &format!("osd.{id}"),
        id.into(),
        &format!("v2:127.0.0.1:{}/{}", 6_900 + life, 10 + life),
    );
    let message = boot_message(id, w);
    // It was refused before, and stopped in order.
    let clean_thru = message.superblock.newest_map;
    let superblock = OsdSuperblock { osd_fsid, mounted: Epoch(0), clean_thru, ..message.superblock };
    w.send(conn, MOsdBoot { superblock, ..message });
}

fn health(w: &World) -> Option<String> {
    let health = Health::of(w.mon.state(), &common::settings(), w.now);
    health.checks.get("OSD_EMPTY_STORE").map(|check| check.detail.join("\n"))
}

#[test]
fn an_empty_store_boots_only_when_an_operator_gave_its_data_up() {
    let mut w = cluster(3);
    run(&mut w, r#"{"prefix":"osd down","ids":["1"]}"#);
    boot_empty(&mut w, 1, uuid(1), 0);
    assert!(!is_up(&w, 1), "what it held may be nowhere else");
    assert_eq!(lost_at(&w, 1), Epoch(0));
    let told = health(&w).expect("health says so");
    assert!(told.contains("ceph osd lost 1 --yes-i-really-mean-it"), "{told}");
    let log = run(&mut w, r#"{"prefix":"log last","num":5}"#);
    assert!(log.contains("osd.1 does not boot: its store is empty"), "{log}");
    let epoch = w.mon.state().osdmap().epoch;
    boot_empty(&mut w, 1, uuid(1), 1);
    assert_eq!(w.mon.state().osdmap().epoch, epoch, "asking again changes nothing");
    run(&mut w, r#"{"prefix":"osd lost","id":1,"yes_i_really_mean_it":true}"#);
    assert_eq!(health(&w), None);
    let lost = lost_at(&w, 1);
    assert!(lost.0 > 0);
    boot_empty(&mut w, 1, uuid(1), 2);
    assert!(is_up(&w, 1));
    assert_eq!(lost_at(&w, 1), lost, "no later than the operator said");
}

#[test]
fn the_process_that_was_up_may_have_missed_that() {
    let mut w = cluster(2);
    run(&mut w, r#"{"prefix":"osd down","ids":["1"]}"#);
    let message = boot_message(1, &w);
    let superblock = OsdSuperblock { mounted: Epoch(0), ..message.superblock };
    w.send(ConnId(101), MOsdBoot { superblock, ..message });
    assert!(is_up(&w, 1));
}

#[test]
fn a_destroyed_osd_gets_an_empty_disk() {
    let mut w = cluster(3);
    run(&mut w, r#"{"prefix":"osd down","ids":["1"]}"#);
    run(&mut w, r#"{"prefix":"osd destroy","id":1,"yes_i_really_mean_it":true}"#);
    let lost = lost_at(&w, 1);
    assert_eq!(lost, w.mon.state().osdmap().osd(1).expect("there").info.down_at);
    let new = Fsid([0xc8; 16]);
    run(&mut w, &format!(r#"{{"prefix":"osd new","uuid":"{new}","id":1}}"#));
    boot_empty(&mut w, 1, new, 0);
    assert!(is_up(&w, 1));
    assert_eq!(lost_at(&w, 1), lost);
}

#[test]
fn a_number_that_is_used_again_has_lost_what_it_had() {
    let mut w = cluster(3);
    run(&mut w, r#"{"prefix":"osd down","ids":["1"]}"#);
    run(&mut w, r#"{"prefix":"osd purge","id":1,"yes_i_really_mean_it":true}"#);
    let purged = w.mon.state().osdmap().epoch;
    let new = Fsid([0xc8; 16]);
    run(&mut w, &format!(r#"{{"prefix":"osd new","uuid":"{new}","id":1}}"#));
    assert_eq!(lost_at(&w, 1), purged);
    boot_empty(&mut w, 1, new, 0);
    assert!(is_up(&w, 1));
    run(&mut w, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(7)));
    assert_eq!(lost_at(&w, 3), Epoch(0), "nobody had this number");
}

/// Nobody listens at the address of OSD 0, says this one.
fn refused(w: &mut World, reporter: i32, epoch: Epoch) {
    let report = MOsdFailure {
        fsid: FSID,
        target_osd: 0,
        target_addrs: w.mon.state().osdmap().osd(0).expect("there").client_addrs.clone(),
        epoch,
        flags: MOsdFailure::FAILED | MOsdFailure::IMMEDIATE,
        ..MOsdFailure::default()
    };
    w.send(ConnId(100 + reporter as u64), report);
}

/// Four OSDs on hosts of these names.
fn on_hosts(names: [&str; 4]) -> World {
    let mut w = World::new();
    w.admin();
    for (id, name) in (0..).zip(names) {
        run(&mut w, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(id)));
        let args = format!(r#""args":["host={name}","root=default"]"#);
        run(&mut w, &format!(r#"{{"prefix":"osd crush add","id":{id},"weight":1.0,{args}}}"#));
        let conn = w.osd(id);
        let mut boot = boot_message(id, &w);
        boot.metadata.insert("hostname".to_owned(), name.to_owned());
        w.send(conn, boot);
    }
    w
}

#[test]
fn one_refused_connection_brings_down_and_two_hosts_or_the_own_one_prove_death() {
    let dead = |w: &World| w.mon.state().osdmap().osd(0).expect("there").xinfo.dead_epoch.0 > 0;
    let mut w = on_hosts(["a", "b", "b", "c"]);
    let epoch = w.mon.state().osdmap().epoch;
    refused(&mut w, 1, epoch);
    assert!(!is_up(&w, 0) && !dead(&w), "down; a firewall may have refused");
    refused(&mut w, 2, epoch);
    assert!(!dead(&w), "the same host's firewall");
    refused(&mut w, 3, epoch);
    assert!(dead(&w), "two hosts found nobody there");

    let mut w = on_hosts(["a", "a", "b", "c"]);
    let epoch = w.mon.state().osdmap().epoch;
    refused(&mut w, 1, epoch);
    assert!(!is_up(&w, 0) && dead(&w), "no network in between");

    // What was said long ago, or of another life, does not add up.
    let mut w = on_hosts(["a", "b", "c", "d"]);
    let epoch = w.mon.state().osdmap().epoch;
    refused(&mut w, 1, epoch);
    w.now = common::at(100);
    refused(&mut w, 2, epoch);
    assert!(!dead(&w));
    let boot = boot_message(0, &w);
    w.send(ConnId(100), boot);
    assert!(is_up(&w, 0));
    refused(&mut w, 3, epoch);
    assert!(is_up(&w, 0) && !dead(&w), "an older life was meant");
}
