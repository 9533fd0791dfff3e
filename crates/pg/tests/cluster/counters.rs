//! Counters: what moves each of them, what the manager is told of them, and what it may ask beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use messages::Message;
use messages::metrics::{KeyPart, MetricCounter, MetricQueries, MetricQuery, counter_kind, key_kind};
use messages::mgr::{MMgrConfigure, MMgrReport};
use messages::osd::{Extent, MMonGetOsdMap, Op};
use pg::Input;
use serde_json::{Value, json};
use types::PoolId;

use crate::scenarios::{cluster, write_all};
use crate::scrub::{How, scrub};
use crate::sim::{CLIENT, Sim};

fn ask(s: &mut Sim, osd: i32, cmd: Value) -> Value {
    s.input(osd, Input::AdminCommand { tid: 1, cmd: cmd.to_string() });
    let reply = s.nodes[osd as usize].admin_replies.pop().expect("an answer");
    serde_json::from_slice(&reply.data).expect("JSON")
}

fn dump(s: &mut Sim, osd: i32) -> Value {
    ask(s, osd, json!({ "prefix": "perf dump" }))
}

/// One of an OSD's own counters.
pub fn counter(s: &mut Sim, osd: i32, name: &str) -> u64 {
    dump(s, osd)["osd"][name].as_u64().expect("a counter")
}

fn is_moved(value: &Value) -> bool {
    match value {
        Value::Object(of) if of.contains_key("avgcount") => of["avgcount"] != 0 && of["sum"] != 0.0,
        Value::Object(histogram) => {
            let rows = histogram["values"].as_array().expect("rows");
            rows.iter().flat_map(|row| row.as_array().expect("cells")).any(|n| *n != 0)
        }
        number => *number != 0,
    }
}

/// Counters by path.
fn names(told: &Value) -> Vec<(String, &Value)> {
    let mut out = Vec::new();
    for (logger, of) in told.as_object().expect("loggers") {
        let counters = of.as_object().expect("counters");
        out.extend(counters.iter().map(|(name, value)| (format!("{logger}.{name}"), value)));
    }
    out
}

/// Adds the counters that have moved on any OSD.
fn gather(s: &mut Sim, moved: &mut BTreeSet<String>) {
    for osd in 0..s.nodes.len() as i32 {
        if s.nodes[osd as usize].core.is_none() {
            continue;
        }
        for prefix in ["perf dump", "perf histogram dump"] {
            let told = ask(s, osd, json!({ "prefix": prefix }));
            moved.extend(names(&told).into_iter().filter(|(_, value)| is_moved(value)).map(|(name, _)| name));
        }
    }
}

/// Reads and writes of all kinds, on two OSDs; some wait for others.
fn requests(moved: &mut BTreeSet<String>) {
    let (mut s, pool) = cluster(2, 2, 1, 4, 11);
    let map = s.mon.map.clone();
    for i in 0..20 {
        let name = format!("o{i}");
        s.client.write(&map, pool, &name, vec![1; 20_000]);
        s.client.goes_on(&name);
        s.client.read_and_write(&map, pool, &name, &[1; 20_000]);
        s.client.goes_on(&name);
        s.client.read(&map, pool, &name);
    }
    s.run(50);
    gather(&mut s, moved);
    s.until("answered", |s| s.client.is_idle());
    s.client.change(&map, pool, "o4", vec![Op::Read(Extent::new(0, 0)), Op::Zero(Extent::new(1 << 20, 10))]);
    s.client.copy(&map, pool, "copy", "o1");
    s.until("copied", |s| s.client.is_idle());
    // A request that names a map which the OSD does not have yet.
    s.mon.change(|_, _| {});
    let map = s.mon.map.clone();
    let tid = s.client.write(&map, pool, "o1", vec![2; 100]);
    let (primary, msg) = s.client.send_now(&map, tid);
    s.send(CLIENT, primary, msg);
    s.deliver_all(CLIENT, primary);
    s.mono += Duration::from_millis(10);
    s.until("answered", |s| s.client.is_idle());
    // A map twice.
    let (full_first, full_last) = (map.epoch, map.epoch);
    let again = MMonGetOsdMap { full_first, full_last, ..MMonGetOsdMap::default() };
    for maps in s.mon.handle(primary, 1, again.into()) {
        s.input(primary, Input::FromMon(maps));
    }
    for _ in 0..3 {
        s.client.write(&map, pool, "small", vec![3; 4096]);
        s.until("written", |s| s.client.is_idle());
    }
    s.client.write(&map, pool, "large", vec![4; 5 << 20]);
    s.until("written", |s| s.client.is_idle());
    // More than the log holds; then what is on the disk alone is read.
    for round in 0..60 {
        let bytes = if round % 2 == 0 { 100_000 } else { 100 };
        for i in 0..8 {
            s.client.patch(&map, pool, &format!("o{i}"), 0, &vec![round; bytes]);
        }
        s.until("written", |s| s.client.is_idle());
    }
    gather(&mut s, moved);
    s.restart(0);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..20 {
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.until("read", |s| s.client.is_idle());
    gather(&mut s, moved);
}

/// Recovery, which writes wait for; clients are told to wait.
fn recovery(moved: &mut BTreeSet<String>) {
    let mut s = Sim::new(3, 12);
    s.until("all up", |s| (0..3).all(|o| s.mon.map.is_up(o)));
    let pool = s.mon.create_pool(2, 2, 8);
    s.settle();
    write_all(&mut s, pool, 0..60, 1);
    s.settle();
    s.kill(1);
    write_all(&mut s, pool, 0..60, 2);
    s.until("told to wait", |s| s.client.blocked > 0);
    gather(&mut s, moved);
    s.mon.mark_out(1);
    s.run(200);
    gather(&mut s, moved);
    s.settle();
    s.start(1);
    s.mon.mark_in(1);
    write_all(&mut s, pool, 0..60, 3);
    for _ in 0..60 {
        s.run(40);
        gather(&mut s, moved);
    }
    s.settle();
}

/// A copy that is deleted slowly.
fn deletion(moved: &mut BTreeSet<String>) {
    let (mut s, pool) = crate::remove::cluster(13, 1, 500);
    let osd = s.mon.map.pg_to_up_acting(types::PgId::new(pool, 0)).acting[1];
    crate::remove::move_away(&mut s, osd);
    gather(&mut s, moved);
}

/// Damage that a scrub finds and mends.
fn damage(moved: &mut BTreeSet<String>) {
    let (mut s, pool): (Sim, PoolId) = crate::repair::cluster(3, 2);
    let primary = crate::repair::primary(&s, pool);
    crate::repair::flip(&mut s, 1 - primary, 2);
    scrub(&mut s, pool, How::Repair);
    s.settle();
    let map = s.mon.map.clone();
    for i in 0..6 {
        s.client.read(&map, pool, &format!("o{i}"));
    }
    s.settle();
    gather(&mut s, moved);
}

/// A shard that has missed a write.
fn stale_shard(seed: u64, moved: &mut BTreeSet<String>) {
    let (mut s, pool) = crate::coded::with_a_stale_shard(seed);
    let map = s.mon.map.clone();
    s.client.read(&map, pool, "o");
    s.settle();
    gather(&mut s, moved);
}

/// Tickets that the shell has refused for their form.
fn old_tickets(moved: &mut BTreeSet<String>) {
    let (mut s, _) = cluster(1, 1, 1, 1, 1);
    for count in [1, 2] {
        s.input(0, Input::OldTickets { count });
    }
    assert_eq!(counter(&mut s, 0, "loligo_tickets_refused"), 3);
    gather(&mut s, moved);
}

/// What the store alone can be made to do; its own tests do: `discard.rs`, `corruption.rs`.
const OF_THE_STORE: [&str; 2] = ["store.discarded_bytes", "store.corrupt_pages"];

#[test]
fn a_workload_moves_every_counter() {
    let mut moved = BTreeSet::new();
    requests(&mut moved);
    recovery(&mut moved);
    deletion(&mut moved);
    damage(&mut moved);
    (0..3).for_each(|seed| stale_shard(seed, &mut moved));
    old_tickets(&mut moved);
    let (mut s, _) = cluster(1, 1, 1, 1, 1);
    s.nodes[0].core.as_mut().expect("it runs").set_load(150);
    gather(&mut s, &mut moved);
    let (mut s, _) = cluster(1, 1, 1, 1, 1);
    let mut declared = BTreeSet::new();
    for prefix in ["perf schema", "perf histogram schema"] {
        let told = ask(&mut s, 0, json!({ "prefix": prefix }));
        declared.extend(names(&told).into_iter().map(|(name, _)| name));
    }
    let still: Vec<&String> =
        declared.difference(&moved).filter(|n| !OF_THE_STORE.contains(&n.as_str())).collect();
    assert!(still.is_empty(), "nothing moves {still:?}");
    assert!(OF_THE_STORE.iter().all(|name| declared.contains(*name) && !moved.contains(*name)));
}

/// What clients did is counted once, when it is answered, and only if it succeeded.
#[test]
fn requests_are_counted_as_ceph_counts_them() {
    let (mut s, pool) = cluster(1, 1, 1, 1, 21);
    let map = s.mon.map.clone();
    for i in 0..10 {
        s.client.write(&map, pool, &format!("o{i}"), vec![1; 1000]);
    }
    s.until("written", |s| s.client.is_idle());
    s.client.read(&map, pool, "o1");
    s.client.read(&map, pool, "none");
    s.client.read_and_write(&map, pool, "o2", &[1; 500]);
    // It reads, and has nothing to change.
    s.client.change(&map, pool, "o4", vec![Op::Read(Extent::new(0, 0)), Op::Zero(Extent::new(1 << 20, 10))]);
    // A write that fails.
    s.client.remove(&map, pool, "none too");
    s.until("answered", |s| s.client.is_idle());
    let osd = &dump(&mut s, 0)["osd"];
    let counted = |name: &str| osd[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    assert_eq!((counted("op"), counted("op_w"), counted("op_r"), counted("op_rw")), (13, 10, 1, 2));
    assert_eq!(
        (counted("op_in_bytes"), counted("op_w_in_bytes"), counted("op_rw_in_bytes")),
        (10_500, 10_000, 500)
    );
    assert_eq!(
        (counted("op_out_bytes"), counted("op_r_out_bytes"), counted("op_rw_out_bytes")),
        (2000, 1000, 1000)
    );
    assert_eq!((&osd["op_latency"]["avgcount"], &osd["op_w_latency"]["avgcount"]), (&json!(13), &json!(10)));
    assert_eq!(counted("op_wip"), 0);
    let whole = osd["op_latency"]["sum"].as_f64().expect("seconds");
    let parts =
        ["op_r_latency", "op_w_latency", "op_rw_latency"].map(|n| osd[n]["sum"].as_f64().expect("seconds"));
    assert!((whole - parts.iter().sum::<f64>()).abs() < 1e-6 && whole > 0.0, "{whole} of {parts:?}");
    // How long the batch took that answered them comes on top, once.
    let core = s.nodes[0].core.as_mut().expect("it runs");
    assert!(core.has_answered());
    (0..3).for_each(|_| core.batch_done(s.mono + Duration::from_millis(2)));
    assert!(!core.has_answered());
    let longer = dump(&mut s, 0)["osd"]["op_latency"]["sum"].as_f64().expect("seconds") - whole;
    assert!((longer - 13.0 * 0.002).abs() < 1e-6, "{longer}");
    // From here on.
    let done = ask(&mut s, 0, json!({ "prefix": "perf reset", "var": "osd" }));
    assert_eq!(done, json!({ "success": "perf reset osd" }));
    s.client.write(&map, pool, "o1", vec![1; 7]);
    s.until("written", |s| s.client.is_idle());
    let after = dump(&mut s, 0);
    assert_eq!((&after["osd"]["op"], &after["osd"]["op_in_bytes"]), (&json!(1), &json!(7)));
    assert_eq!(after["osd"]["numpg"], 1, "what is so is not reset");
    assert!(after["store"]["txns"].as_u64().expect("a number") > 10, "another part is not reset");
}

fn configure(s: &mut Sim, m: MMgrConfigure) -> MMgrReport {
    s.nodes[0].told_mgr.clear();
    s.input(0, Input::FromMgr(m.into()));
    let told = std::mem::take(&mut s.nodes[0].told_mgr);
    let report = told.into_iter().find_map(|m| if let Message::MgrReport(r) = m { Some(*r) } else { None });
    report.expect("a report at once")
}

#[test]
fn the_manager_is_told_what_perf_dump_shows() {
    let (mut s, pool) = cluster(1, 1, 1, 1, 22);
    write_all(&mut s, pool, 0..5, 1);
    s.settle();
    s.input(0, Input::MgrConnected);
    let wish = |threshold| MMgrConfigure { period_s: 5, threshold, ..MMgrConfigure::default() };
    let report = configure(&mut s, wish(5));
    let schema = ask(&mut s, 0, json!({ "prefix": "perf schema" }));
    let useful = names(&schema).into_iter().filter(|(_, c)| c["priority"].as_u64().expect("a priority") >= 5);
    let useful: BTreeMap<String, Value> = useful.map(|(name, c)| (name, c.clone())).collect();
    let declared: Vec<&String> = report.declare_types.iter().map(|t| &t.path).collect();
    assert_eq!(declared, useful.keys().collect::<Vec<_>>());
    let shown = dump(&mut s, 0);
    let mut r = codec::Reader::new(report.packed.clone());
    r.envelope("counters", 1, |r, _| {
        for t in &report.declare_types {
            let (logger, name) = t.path.split_once('.').expect("a path");
            assert_eq!(useful[&t.path]["type"], t.kind, "{}", t.path);
            assert_eq!((useful[&t.path]["units"] == "bytes", t.unit), (t.unit == 0, t.unit), "{}", t.path);
            let (value, shown) = (r.u64()?, &shown[logger][name]);
            if t.kind & 4 == 0 {
                assert_eq!(json!(value), *shown, "{}", t.path);
                continue;
            }
            let (count, again) = (r.u64()?, r.u64()?);
            assert_eq!((json!(count), count), (shown["avgcount"].clone(), again), "{}", t.path);
            let sum = shown["sum"].as_f64().expect("seconds");
            assert!((sum - value as f64 / 1e9).abs() < 1e-9, "{}: {sum} {value}", t.path);
        }
        assert!(r.is_empty());
        Ok(())
    })
    .expect("whole");
    assert!(report.declare_types.iter().any(|t| t.path == "osd.op" && t.nick == "ops" && t.priority == 10));
    // A higher threshold takes counters back.
    let fewer = configure(&mut s, wish(10));
    assert!(fewer.declare_types.is_empty() && fewer.undeclare_types.contains(&"osd.op_r".to_owned()));
    let left = declared.len() - fewer.undeclare_types.len();
    assert!(left > 0 && fewer.packed.len() < report.packed.len());
    assert_eq!(configure(&mut s, wish(0)).declare_types.len(), names(&schema).len() - left);
    // Reports come by themselves, as often as asked.
    s.nodes[0].told_mgr.clear();
    (0..21).for_each(|_| s.tick(Duration::from_millis(500)));
    let told = s.nodes[0].told_mgr.iter().filter(|m| matches!(m, Message::MgrReport(_))).count();
    assert_eq!(told, 2, "in ten seconds");
}

/// A hundredth of a core between two reports, which an OSD that is busy with one may spend: a tenth of that
/// where nothing is done.
const REPORT_BUSY: Duration = Duration::from_millis(50);
const REPORT_IDLE: Duration = Duration::from_millis(5);

#[test]
fn what_reports_take_of_an_osd_is_bounded() {
    let (mut s, pool) = cluster(1, 1, 1, 200, 25);
    write_all(&mut s, pool, 0..200, 1);
    s.settle();
    s.input(0, Input::MgrConnected);
    configure(&mut s, MMgrConfigure { period_s: 5, threshold: 5, ..MMgrConfigure::default() });
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..10u8 {
        let is_busy = round % 2 == 1;
        if is_busy {
            write_all(&mut s, pool, 0..200, round);
            s.until("written", |s| s.client.is_idle());
        }
        s.nodes[0].told_mgr.clear();
        s.mono += Duration::from_secs(5);
        costs[usize::from(is_busy)].push(s.time_of(0, Input::Tick));
        let told = &s.nodes[0].told_mgr;
        let pgs =
            told.iter().find_map(|m| if let Message::PgStats(m) = m { Some(m.pg_stats.len()) } else { None });
        assert!(told.iter().any(|m| matches!(m, Message::MgrReport(_))), "{told:?}");
        assert!(!is_busy || pgs > Some(100), "{pgs:?}");
    }
    println!("idle {:?}, busy {:?}", costs[0], costs[1]);
    // The machine's other work may stand in the way of some.
    let least = costs.map(|all| all.into_iter().min().expect("some"));
    assert!(least[0] < REPORT_IDLE && least[1] < REPORT_BUSY, "{least:?}");
}

#[test]
fn the_manager_hears_what_clients_do_to_images() {
    let (mut s, pool) = cluster(1, 1, 1, 1, 23);
    let part = |kind, regex: &str| KeyPart { kind, regex: regex.to_owned() };
    let query = MetricQuery {
        key: vec![part(key_kind::POOL_ID, "^(.*)$"), part(key_kind::OBJECT_NAME, "^rbd_data\\.([^.]+)\\.")],
        counters: [counter_kind::WRITE_OPS, counter_kind::READ_BYTES, counter_kind::WRITE_LATENCY]
            .map(|kind| MetricCounter { kind })
            .to_vec(),
    };
    let queries: MetricQueries = [(query.clone(), Vec::new())].into();
    let wish = MMgrConfigure { period_s: 5, ..MMgrConfigure::default() }.with_metric_queries(&queries);
    s.input(0, Input::MgrConnected);
    assert!(configure(&mut s, wish.clone()).metrics().expect("decodes")[&query].packed.is_empty());
    let map = s.mon.map.clone();
    for name in ["rbd_data.ab.1", "rbd_data.ab.2", "rbd_header.ab"] {
        s.client.write(&map, pool, name, vec![1; 300]);
    }
    s.until("written", |s| s.client.is_idle());
    s.client.read(&map, pool, "rbd_data.ab.2");
    s.until("read", |s| s.client.is_idle());
    let sums = configure(&mut s, wish.clone()).metrics().expect("decodes").remove(&query).expect("an answer");
    let key = vec![vec![bytes::Bytes::from(pool.0.to_string())], vec![bytes::Bytes::from_static(b"ab")]];
    assert_eq!(sums.packed.keys().collect::<Vec<_>>(), [&key]);
    let mut r = codec::Reader::new(sums.packed[&key].clone());
    let numbers: Vec<u64> = (0..4).map(|_| r.u64().expect("a number")).collect();
    assert!(numbers[0] == 2 && numbers[1] == 300 && numbers[2] > 0 && numbers[3] == 2, "{numbers:?}");
    // What it does not ask any more, or what another one asked, is not told.
    s.client.write(&map, pool, "rbd_data.ab.1", vec![2]);
    s.until("written", |s| s.client.is_idle());
    let nothing = MMgrConfigure { period_s: 5, ..MMgrConfigure::default() };
    assert_eq!(configure(&mut s, nothing.clone()).metrics(), Ok(BTreeMap::new()));
    configure(&mut s, wish);
    s.input(0, Input::MgrConnected);
    assert_eq!(configure(&mut s, nothing).metrics(), Ok(BTreeMap::new()));
}
