//! What Ceph's own manager answers on a cluster, and what ours does on the same one: the same.

use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::managers::{Asking, CephMgr, Said, answer, in_charge, installed, post_crash};

/// Commands that both answer: whom a client asks, the prefix, and arguments.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("mon", "status", "{}"),
    ("mon", "df", r#"{"detail":"detail"}"#),
    ("mon", "health", r#"{"detail":"detail"}"#),
    ("mon", "osd pool ls", r#"{"detail":"detail"}"#),
    ("mon", "osd utilization", "{}"),
    ("mgr", "pg stat", "{}"),
    ("mgr", "pg dump", "{}"),
    ("mgr", "pg dump", r#"{"dumpcontents":["summary"]}"#),
    ("mgr", "pg dump", r#"{"dumpcontents":["pgs_brief"]}"#),
    ("mgr", "pg dump_json", "{}"),
    ("mgr", "pg dump_pools_json", "{}"),
    ("mgr", "pg dump_stuck", "{}"),
    ("mgr", "pg ls", "{}"),
    ("mgr", "pg ls", r#"{"states":["degraded"]}"#),
    ("mgr", "pg ls-by-pool", r#"{"poolstr":"p"}"#),
    ("mgr", "pg ls-by-osd", r#"{"osd":1}"#),
    ("mgr", "pg ls-by-primary", r#"{"osd":1}"#),
    ("mgr", "pg debug", r#"{"debugop":"degraded_pgs_exist"}"#),
    ("mgr", "osd perf", "{}"),
    ("mgr", "osd df", "{}"),
    ("mgr", "osd df", r#"{"output_method":"tree"}"#),
    ("mgr", "osd pool stats", "{}"),
    ("mgr", "osd blocked-by", "{}"),
    ("mgr", "osd status", "{}"),
    ("mgr", "osd pool autoscale-status", "{}"),
    ("mgr", "osd test-reweight-by-utilization", "{}"),
    ("mgr", "osd test-reweight-by-pg", "{}"),
    ("mgr", "osd ok-to-stop", r#"{"ids":["0"]}"#),
    ("mgr", "osd safe-to-destroy", r#"{"ids":["0"]}"#),
    ("mgr", "balancer status", "{}"),
    ("mgr", "balancer eval", "{}"),
    ("mgr", "balancer eval-verbose", "{}"),
    ("mgr", "balancer ls", "{}"),
    ("mgr", "balancer pool ls", "{}"),
    ("mgr", "progress", "{}"),
    ("mgr", "progress json", "{}"),
    ("mgr", "crash ls", "{}"),
    ("mgr", "crash ls-new", "{}"),
    ("mgr", "crash stat", "{}"),
    ("mgr", "crash info", r#"{"id":"a"}"#),
    ("mgr", "crash json_report", r#"{"hours":"1"}"#),
    ("mgr", "device ls", "{}"),
    ("mgr", "device ls-by-daemon", r#"{"who":"osd.0"}"#),
    ("mgr", "device ls-by-host", r#"{"host":"h"}"#),
    ("mgr", "device ls-lights", "{}"),
    ("mgr", "device info", r#"{"devid":"x"}"#),
    ("mgr", "device get-health-metrics", r#"{"devid":"x"}"#),
    ("mgr", "device query-daemon-health-metrics", r#"{"who":"osd.0"}"#),
    ("mgr", "device query-daemon-health-metrics", r#"{"who":"x.0"}"#),
    ("mgr", "device scrape-daemon-health-metrics", r#"{"who":"osd.0"}"#),
    ("mgr", "device scrape-health-metrics", r#"{"devid":"x"}"#),
    ("mgr", "device check-health", "{}"),
    ("mgr", "device predict-life-expectancy", r#"{"devid":"x"}"#),
    ("mgr", "service dump", "{}"),
    ("mgr", "service status", "{}"),
    ("mgr", "config show", r#"{"who":"osd.0"}"#),
    ("mgr", "config show-with-defaults", r#"{"who":"osd.0"}"#),
    ("mgr", "config show", r#"{"who":"mon.a"}"#),
    ("mon", "pg stat", "{}"),
    ("mon", "config get", r#"{"who":"mgr","key":"mgr/balancer/sleep_interval"}"#),
    ("mgr", "telemetry status", "{}"),
    ("mgr", "orch status", "{}"),
    ("mgr", "fs status", "{}"),
];

/// What may differ: a command's prefix (`*`: any), the place, with `*` for one step, and why. A place
/// includes what is in it.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("*", "/out/health/checks/MGR_TICKETS_OF_CEPH", "it names Ceph's manager"),
    ("*", "/out/health/status", "because of that"),
    ("health", "/out/checks/MGR_TICKETS_OF_CEPH", "it names Ceph's manager"),
    ("health", "/out/status", "because of that"),
    ("status", "/out/osdmap/epoch", "the one that lost its place was shut out"),
    ("pg debug", "/out", "Ceph's sends an empty JSON object behind its text"),
    ("progress json", "/out/completed", "Ceph's module mixes up the times of what it has loaded"),
    ("service dump", "/out/epoch", "each manager counts its own maps"),
    ("telemetry status", "/out", "ours has no telemetry to set: nothing is ever sent"),
];

/// Fields of which the type counts alone: times, and counts of reports, of which the second manager had more.
const VARY: &[&str] = &[
    "quorum_age",
    "apply_latency_ms",
    "apply_latency_ns",
    "commit_latency_ms",
    "commit_latency_ns",
    "seq",
    "reported_seq",
    "reported_epoch",
    "last_fresh",
    "last_active",
    "last_peered",
    "last_clean",
    "last_unstale",
    "last_undegraded",
    "last_fullsized",
    "last_optimize_started",
    "last_optimize_duration",
    "stamp",
    "stamp_delta",
    "version",
];
/// Fields that follow from the space that OSDs have left, of which their own logs take some all the time.
const NEAR: &[&str] = &[
    "kb_avail",
    "kb_used",
    "available",
    "avail_raw",
    "max_avail",
    "bytes_avail",
    "bytes_used",
    "percent_used",
    "total_avail_bytes",
    "total_used_bytes",
    "total_used_raw_bytes",
    "total_used_raw_ratio",
    "total_kb_avail",
    "total_kb_used",
    "utilization",
    "average_utilization",
    "overload_utilization",
    "var",
    "min_var",
    "max_var",
];
/// How near those have to be, as a part of the value: an OSD's log and tables move by a few MiB of 180.
const NEAR_PART: f64 = 0.05;
/// The deviation of OSDs' use is small itself: so near, in points of a percentage.
const NEAR_DEVIATION: f64 = 0.1;

fn all_answers(asking: &mut Asking) -> Vec<Said> {
    let ask = |(to, prefix, more): &(&str, &str, &str)| {
        let mut command: Value = serde_json::from_str(more).expect("JSON");
        command["prefix"] = json!(prefix);
        command["format"] = json!("json");
        asking.command(to, &command)
    };
    COMMANDS.iter().map(ask).collect()
}

/// Every place where two values differ: in their type, or, if they have the same, in what they hold.
fn differences(at: &str, ours: &Value, theirs: &Value, out: &mut Vec<(String, String)>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let at = format!("{at}/{}", key.replace('/', "|"));
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => differences(&at, x, y, out),
                    (Some(x), None) => out.push((at, format!("{x} is ours alone"))),
                    (None, Some(y)) => out.push((at, format!("{y} is missing"))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            let (a, b) = (in_order(a), in_order(b));
            if a.len() != b.len() {
                out.push((at.to_owned(), format!("{} entries instead of {}", a.len(), b.len())));
            }
            for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
                differences(&format!("{at}/{i}"), x, y, out);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (x, y) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            let bound = match at {
                _ if is_one_of(at, &["dev"]) => NEAR_DEVIATION,
                _ if is_one_of(at, NEAR) => NEAR_PART * x.abs().max(y.abs()),
                _ => 1e-6 * x.abs().max(y.abs()),
            };
            if (x - y).abs() > bound && !is_one_of(at, VARY) {
                out.push((at.to_owned(), format!("{a} instead of {b}")));
            }
        }
        (Value::String(_), Value::String(_)) if is_one_of(at, VARY) => {}
        (Value::String(a), Value::String(b)) if is_near_text(a, b) => {}
        _ if ours == theirs => {}
        _ => out.push((at.to_owned(), format!("{ours} instead of {theirs}"))),
    }
}

/// Whether two texts have the same words in the same width, but for sizes (`180M`), which are near.
fn is_near_text(a: &str, b: &str) -> bool {
    let size = |word: &str| {
        let unit = "kMGT".find(word.chars().last()?)?;
        let number: f64 = word.get(..word.len() - 1)?.parse().ok()?;
        Some(number * 1024f64.powi(i32::try_from(unit).ok()? + 1))
    };
    let near = |(a, b): (&str, &str)| match (size(a), size(b)) {
        (Some(x), Some(y)) => (x - y).abs() <= NEAR_PART * x.max(y),
        _ => a == b,
    };
    let words = |text: &str| text.split_whitespace().count();
    let all_near = a.split_whitespace().zip(b.split_whitespace()).all(near);
    a.len() == b.len() && words(a) == words(b) && all_near
}

/// Entries by what names them: Ceph's manager keeps OSDs and PGs in no order.
fn in_order(list: &[Value]) -> Vec<&Value> {
    let name = |entry: &Value| {
        ["pgid", "poolid", "osd", "id"].iter().find_map(|key| entry.get(key)).map(|value| {
            match value.as_i64() {
                Some(number) => format!("{number:9}"),
                None => value.to_string(),
            }
        })
    };
    let mut list: Vec<&Value> = list.iter().collect();
    list.sort_by_key(|entry| name(entry));
    list
}

/// `{'a': {0: 1}}` as JSON, where names are text.
fn json_of_python(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive([' ', '{']) {
        match word.strip_suffix(": ").filter(|number| number.parse::<i64>().is_ok()) {
            Some(number) => out += &format!("\"{number}\": "),
            None => out += word,
        }
    }
    out.replace('\'', "\"")
}

fn is_one_of(at: &str, names: &[&str]) -> bool {
    at.rsplit('/').next().is_some_and(|name| names.contains(&name))
}

/// Whether a place is, or lies in, what a pattern names.
fn is_in(at: &str, pattern: &str) -> bool {
    let mut steps = at.split('/');
    pattern.split('/').all(|p| steps.next().is_some_and(|s| p == "*" || p == s))
}

/// An answer as a value: JSON or lines of Python's dictionaries where it is one, else its text.
fn value((code, output, status): &Said) -> Value {
    let python = || {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let value =
                value.strip_prefix('{').and_then(|_| serde_json::from_str(&json_of_python(value)).ok());
            Some((name.to_owned(), value.unwrap_or_else(|| json!(line))))
        };
        output.lines().all(|l| l.contains(' ')).then(|| output.lines().filter_map(line).collect::<Value>())
    };
    let read =
        serde_json::from_str(output).ok().or_else(|| python().filter(|_| output.contains("by_root {")));
    let output = read.unwrap_or_else(|| json!(output));
    json!({ "code": code, "out": output, "status": status })
}

fn unlike(ours: &[Said], theirs: &[Said]) -> Vec<String> {
    let mut out = Vec::new();
    for (((_, prefix, more), a), b) in COMMANDS.iter().zip(ours).zip(theirs) {
        let mut found = Vec::new();
        differences("", &value(a), &value(b), &mut found);
        let allowed = |at: &str| {
            ALLOWED.iter().any(|(of, pattern, _)| (*of == "*" || of == prefix) && is_in(at, pattern))
        };
        found.retain(|(at, _)| !allowed(at));
        out.extend(found.into_iter().map(|(at, what)| format!("{prefix} {more} {at}: {what}")));
    }
    out
}

/// Nothing is under way any more, and the manager in charge knows it.
fn quiet(c: &Cluster) {
    until("all PGs clean", || {
        let pgs = answer(c, "pg stat")["pg_summary"].clone();
        let states = pgs["num_pg_by_state"].as_array().cloned().unwrap_or_default();
        states.len() == 1 && states[0]["name"] == "active+clean" && pgs["num_pgs"] == states[0]["num"]
    });
    until("a balancer with nothing to do", || {
        let result = answer(c, "balancer status")["optimize_result"].clone();
        result.as_str().is_some_and(|text| text.starts_with("Unable to find"))
    });
}

/// A recovery of long ago, which each shows when it has come into charge.
fn what_is_finished_is_kept(c: &Cluster) {
    let event = json!({
        "id": "a", "message": "Rebalancing after osd.1 marked in", "refs": [], "add_to_ceph_s:": true,
        "started_at": 1_600_000_000.5, "finished_at": 1_600_000_009.5,
    });
    let file = c.dir.path().join("progress");
    let kept = json!({ "events": [event], "version": 2, "compat_version": 2 });
    std::fs::write(&file, kept.to_string()).expect("written");
    let file = file.display().to_string();
    c.ok("ceph", &["config-key", "set", "mgr/progress/completed", "-i", &file]);
}

#[test]
fn cephs_manager_and_ours_answer_alike() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    c.pool("q", 16);
    // Ceph's makes it by itself.
    c.ceph("osd pool create device_health_metrics 1");
    c.ceph("osd pool application enable device_health_metrics mgr_devicehealth");
    // Balancers look once, and soon.
    c.ceph("config set mgr mgr/balancer/sleep_interval 1");
    c.ok("rados", &["-p", "p", "bench", "1", "write", "-b", "65536", "-t", "4", "--no-cleanup"]);
    c.ceph("osd pool mksnap q s");
    post_crash(&c, "a");
    what_is_finished_is_kept(&c);
    let _z = CephMgr::start(&c, "z");
    let mut asking = Asking::start(&c);
    // Each comes into charge when all is written, so that neither sees anything change.
    let mut take_over = |from: &str, to: &str| {
        until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
        c.ceph(&format!("mgr fail {from}"));
        in_charge(&c, to);
        until("the other one's return", || answer(&c, "mgr stat")["num_standby"] == 1);
        quiet(&c);
        all_answers(&mut asking)
    };
    let theirs = take_over("x", "z");
    let ours = take_over("z", "x");
    let found = unlike(&ours, &theirs);
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

#[test]
fn differences_are_seen() {
    let check = |a: Value, b: Value, want: &[&str]| {
        let mut found = Vec::new();
        differences("", &a, &b, &mut found);
        assert_eq!(found.iter().map(|(at, _)| at.as_str()).collect::<Vec<_>>(), want, "{a} {b}");
    };
    check(json!({"a": 1, "b": [1, 2]}), json!({"a": 1.0, "b": [1, 2]}), &[]);
    check(json!({"a": 1}), json!({"a": "1"}), &["/a"]);
    check(json!({"a": 1}), json!({"b": 1}), &["/a", "/b"]);
    check(json!([1, 2]), json!([1]), &[""]);
    check(json!([{"a": 2}]), json!([{"a": 3}]), &["/0/a"]);
    check(json!([{"osd": 10}, {"osd": 9}]), json!([{"osd": 9}, {"osd": 10}]), &[]);
    check(json!({"seq": 1, "stamp": "a"}), json!({"seq": 2, "stamp": "b"}), &[]);
    check(json!({"seq": 1, "kb_used": 100}), json!({"seq": "1", "kb_used": 106}), &["/kb_used", "/seq"]);
    check(json!({"kb_used": 100, "dev": 0.12}), json!({"kb_used": 104, "dev": 0.2}), &[]);
    check(json!({"dev": 0.1}), json!({"dev": 0.3}), &["/dev"]);
    check(json!("0  vm  179M  9.82G  up"), json!("0  vm  181M  9.83G  up"), &[]);
    check(json!("vm   99M"), json!("vm  101M"), &[]);
    for other in
        ["0  vm  181k  9.82G  up", "0  vm  150M  9.82G  up", "0 vm 181M 9.82G up", "0  vm  181M  9.82G  in"]
    {
        check(json!("0  vm  179M  9.82G  up"), json!(other), &[""]);
    }
    assert_eq!(json_of_python("{'a': {0: 1, 10: 2.5}}"), r#"{"a": {"0": 1, "10": 2.5}}"#);
    let said = |text: &str| value(&(0, text.to_owned(), String::new()))["out"].clone();
    assert_eq!(said("a b\nx_by_root {'a': 1}\n"), json!({"a": "a b", "x_by_root": {"a": 1}}));
    assert!(is_in("/out/0/stamp", "/out/*/stamp") && is_in("/out/0/stamp", "/out"));
    assert!(!is_in("/out/0/stamp", "/out/*/state") && !is_in("/out", "/out/*"));
}
