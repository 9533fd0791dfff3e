//! A panic in one piece of a monitor's work: the others go on, and whoever asked for it is told.

use crate::common;

use common::{FSID, World};
use messages::Message;
use messages::mon::MMonCommand;
use types::ConnId;

const ADMIN: ConnId = ConnId(1);
const EIO: i32 = -5;

fn log(w: &mut World) -> String {
    w.command(ADMIN, r#"{"prefix":"log last","num":50}"#).2
}

#[test]
fn a_part_of_a_tick_that_panics_leaves_the_others() {
    let mut w = World::new();
    w.admin();
    (0..2).for_each(|id| common::boot_osd(&mut w, id));
    w.command(ADMIN, r#"{"prefix":"config set","who":"mon","name":"mon_osd_down_out_interval","value":"5"}"#);
    w.command(ADMIN, r#"{"prefix":"osd down","ids":["1"]}"#);
    w.mon.panics_in = Some("silent OSDs");
    (2..30).for_each(|secs| w.tick(secs));
    assert!(!w.mon.state().osdmap().is_in(1), "OSDs are marked out");
    let text = "a bug keeps the monitor from looking after silent OSDs";
    assert_eq!(log(&mut w).matches(text).count(), 1, "said once");
    assert_eq!(w.command(ADMIN, r#"{"prefix":"osd set","key":"noout"}"#).0, 0);
    w.mon.panics_in = None;
    w.tick(31);
    w.mon.panics_in = Some("silent OSDs");
    w.tick(32);
    assert_eq!(log(&mut w).matches(text).count(), 2, "and again when it had worked meanwhile");
}

#[test]
fn a_request_that_panics_is_refused_alone() {
    let mut w = World::new();
    w.admin();
    w.mon.panics_in = Some("osd pool create");
    let command = |cmd: &str| {
        let msg = MMonCommand { fsid: FSID, cmd: vec![cmd.to_owned()], ..MMonCommand::default() };
        (ADMIN, Message::from(msg))
    };
    let set = |key: &str| command(&format!(r#"{{"prefix":"osd set","key":"{key}"}}"#));
    let create = command(r#"{"prefix":"osd pool create","pool":"p"}"#);
    w.send_behind_a_change(vec![set("noout"), create, set("noscrub")]);
    let ack = |m| match m {
        Message::MonCommandAck(ack) => Some(ack.result),
        _ => None,
    };
    let codes: Vec<i32> = w.sent(ADMIN).into_iter().filter_map(ack).collect();
    // The change that was under way, then the three.
    assert_eq!(codes, [0, 0, EIO, 0]);
    assert!(w.mon.state().osdmap().pools.is_empty());
    assert_eq!(w.command(ADMIN, r#"{"prefix":"osd unset","key":"noout"}"#).0, 0);
}

#[test]
fn a_question_that_panics_is_answered() {
    let mut w = World::new();
    w.admin();
    w.mon.panics_in = Some("status");
    assert_eq!(w.command(ADMIN, r#"{"prefix":"status"}"#).0, EIO);
    assert_eq!(w.command(ADMIN, r#"{"prefix":"health"}"#).0, 0);
    assert!(!monitor::is_panic_contained());
}
