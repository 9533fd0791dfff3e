//! OSDs and monitors of Ceph's are turned away with the reason, and before anything has changed.

use crate::common;

use cephx::METHOD_NONE;
use common::{World, addr, boot_message, uuid};
use messages::osd::MOsdBoot;
use monitor::{Input, Output};
use types::{AuthName, ConnId, EntityType, Epoch, Errno, GlobalId};

fn epochs(w: &World) -> [Epoch; 3] {
    let state = w.mon.state();
    [state.osdmap().epoch, state.monmap.epoch, state.mgr.epoch]
}

fn logged(w: &World, text: &str) -> usize {
    let log = w.mon.state().log.last(100, monitor::state::Priority::Debug, "cluster");
    log.iter().filter(|e| e.text.contains(text)).count()
}

#[test]
fn an_osd_that_does_not_say_that_it_is_ours_changes_nothing() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(admin, &format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(0)));
    let osd = w.osd(0);
    let before = epochs(&w);
    let place = r#""id":0,"weight":1.0,"args":["host=h","root=default"]"#;
    let class = r#""class":"ssd","ids":["0"]"#;
    for (prefix, more) in [
        ("osd crush set-device-class", class.to_owned()),
        ("osd crush  create-or-move", place.to_owned()),
        ("osd create", format!(r#""uuid":"{}","id":1"#, uuid(1))),
        ("osd new", format!(r#""uuid":"{}""#, uuid(1))),
        ("osd crush create-or-move", format!(r#"{place},"by":"somebody""#)),
    ] {
        let (code, why, _) = w.command(osd, &format!(r#"{{"prefix":"{prefix}",{more}}}"#));
        assert_eq!(code, Errno::EOPNOTSUPP.neg(), "{prefix}");
        assert!(why.starts_with("osd.0: the monitors are Loligo's"), "{why}");
    }
    // ceph-volume asks for a number before the OSD says anything.
    let volume = w.connect(77, "client.bootstrap-osd", 77, "v2:10.0.0.9:0/7");
    let new = format!(r#"{{"prefix":"osd new","uuid":"{}"}}"#, uuid(1));
    let (code, why, _) = w.command(volume, &new);
    assert!(
        code == Errno::EOPNOTSUPP.neg() && why.starts_with("client.bootstrap-osd: the monitors"),
        "{why}"
    );
    let boot = boot_message(0, &w);
    let theirs =
        [("osd_objectstore", "bluestore"), ("ceph_version", "ceph version 16.2.15 (618f440) pacific")];
    let metadata = theirs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    for _ in 0..3 {
        w.send(osd, MOsdBoot { metadata: std::collections::BTreeMap::clone(&metadata), ..boot.clone() });
    }
    assert_eq!(epochs(&w), before);
    assert_eq!(logged(&w, "osd.0 does not boot: the monitors are Loligo's"), 1, "said once");
    // One of ours is let in, and an administrator's command is nobody's OSD.
    let (code, why, _) =
        w.command(osd, &format!(r#"{{"prefix":"osd crush create-or-move",{place},"by":"loligo"}}"#));
    assert_eq!(code, 0, "{why}");
    assert_eq!(w.command(admin, &format!(r#"{{"prefix":"osd crush set-device-class",{class}}}"#)).0, 0);
    w.send(osd, boot);
    assert!(w.mon.state().osdmap().is_up(0));
}

#[test]
fn a_monitor_of_cephs_is_told_apart_and_spoken_of_once() {
    let mut w = World::new();
    let before = epochs(&w);
    let mut reasons = Vec::new();
    for (conn, peer_type, at) in [
        (1, EntityType::Mon, "v2:10.0.0.2:3300/0"),
        (2, EntityType::Mon, "v2:10.0.0.2:3300/0"),
        (3, EntityType::Client, "v2:10.0.0.3:0/5"),
        (4, EntityType::Mon, "v2:10.0.0.4:3300/0"),
    ] {
        // What daemons of Ceph's bring to each other; ours log in.
        let payload = cephx::none_authorizer(&AuthName::new(EntityType::Mon, ""), GlobalId(0));
        w.input(Input::AuthRequest {
            conn: ConnId(conn),
            peer_type,
            method: METHOD_NONE,
            preferred_modes: vec![2, 1],
            payload,
            peer_addr: addr(at),
        });
        for o in w.take() {
            let Output::AuthBad { refusal, .. } = o else { panic!("{o:?}") };
            assert_eq!(refusal.errno, Errno::EOPNOTSUPP);
            reasons.extend(refusal.why);
        }
    }
    w.run();
    let said = |at: &str| format!("a monitor of Ceph's at v2:{at}:3300/0: it forms no quorum with Loligo's");
    assert_eq!(reasons, [said("10.0.0.2"), said("10.0.0.4")]);
    assert_eq!(epochs(&w), before);
}
