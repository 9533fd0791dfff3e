//! A recovery as managers of both kinds follow it on the same cluster, and what each keeps of it for the
//! other. `cargo xtask soak` runs it.

use serde_json::Value;

use crate::cluster::{Cluster, until};
use crate::managers::{CephMgr, answer, in_charge, installed};
use crate::managers_act::wanted;

fn messages(c: &Cluster, which: &str) -> Vec<String> {
    let all = answer(c, "progress json")[which].clone();
    let message = |e: &Value| e["message"].as_str().map(str::to_owned);
    all.as_array().into_iter().flatten().filter_map(message).collect()
}

/// Marks an OSD out or in, and waits until the manager in charge says that its PGs have arrived.
fn mark(c: &Cluster, how: &str) {
    c.ceph(&format!("osd {how} 3"));
    let event = format!("Rebalancing after osd.3 marked {how}");
    until(&event, || messages(c, "completed").contains(&event));
    // Whatever of all PGs was not clean has its own event, and an end as well.
    until("nothing under way", || messages(c, "events").is_empty());
    until("nothing in the status", || {
        answer(c, "status")["progress_events"].as_object().is_some_and(serde_json::Map::is_empty)
    });
}

#[test]
fn both_managers_follow_a_recovery_to_its_end() {
    if !wanted() || !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&["--osds", "4"]);
    c.managed();
    c.pool("p", 16);
    c.ok("rados", &["-p", "p", "bench", "1", "write", "-b", "4096", "-t", "4", "--no-cleanup"]);
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    mark(&c, "out");
    let ours = messages(&c, "completed");
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    until("what ours has kept", || messages(&c, "completed") == ours);
    mark(&c, "in");
    let both = messages(&c, "completed");
    // Ceph's module has it kept some seconds later.
    until("what Ceph's keeps", || c.ceph("config-key get mgr/progress/completed").contains("marked in"));
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    c.ceph("mgr fail z");
    in_charge(&c, "x");
    until("what Ceph's has kept", || messages(&c, "completed") == both);
    assert!(c.ceph("progress").contains("[Complete]: Rebalancing after osd.3 marked in ("));
    the_autoscaler_of_ours_acts(&c);
}

fn the_autoscaler_of_ours_acts(c: &Cluster) {
    c.ceph("config set mgr mgr/pg_autoscaler/sleep_interval 1");
    c.pool("few", 8);
    c.ceph("osd pool set few pg_autoscale_mode on");
    let pool = || {
        let pools = answer(c, "osd pool ls detail");
        pools.as_array().into_iter().flatten().find(|p| p["pool_name"] == "few").cloned().unwrap_or_default()
    };
    until("the PGs that it should have", || pool()["pg_num"] == 32);
    let event = format!("PG autoscaler increasing pool {} PGs from 8 to 32", pool()["pool_id"]);
    until(&event, || messages(c, "completed").contains(&event));
}
