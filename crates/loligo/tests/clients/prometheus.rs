//! What Prometheus is told of a whole cluster: the same as by Ceph's own module on the same cluster, in a
//! form that Prometheus takes, within bounds, and to nobody who may not know it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::exposition::{Families, check, parse};

use crate::cluster::{Cluster, mon_port, until};
use crate::managers::{CephMgr, answer, in_charge, installed};

/// Families of a scrape of Ceph's own cluster that no scrape of ours has, by how their names begin, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("ceph_bluestore_", "the store is another one"),
    ("ceph_bluefs_", "the store is another one"),
    ("ceph_rocksdb_", "the store is another one"),
    ("ceph_mds_", "this cluster has no metadata server"),
    ("ceph_objecter_", "of metadata servers and gateways"),
    ("ceph_rgw_", "this cluster has no gateway"),
    ("ceph_purge_queue_", "of metadata servers"),
    ("ceph_prioritycache", "it tunes the caches of BlueStore and RocksDB"),
    ("ceph_paxos_", "monitors agree by another protocol: ceph_mon_log_index"),
];

/// Series of which the labels differ by what each manager is: its modules, and its own measurements.
const OTHER_LABELS: &[&str] = &[
    "ceph_mgr_module_status",
    "ceph_mgr_module_can_run",
    "ceph_prometheus_collect_duration_seconds_sum",
    "ceph_prometheus_collect_duration_seconds_count",
    // It has a check that only managers of Ceph's see: MGR_TICKETS_OF_CEPH.
    "ceph_health_detail",
];

/// Families whose values are the same while nothing happens, by how their names begin.
const QUIET: &[&str] = &[
    "ceph_pg_",
    "ceph_osd_up",
    "ceph_osd_in",
    "ceph_osd_weight",
    "ceph_osd_flag_",
    "ceph_osd_metadata",
    "ceph_mon_metadata",
    "ceph_mon_quorum_status",
    "ceph_mgr_metadata",
    "ceph_pool_metadata",
    "ceph_pool_objects",
    "ceph_pool_quota_",
    "ceph_pool_rd",
    "ceph_pool_wr",
    "ceph_pool_dirty",
    "ceph_pool_stored",
    "ceph_pool_compress_",
    "ceph_num_objects_",
    "ceph_cluster_total_bytes",
    "ceph_healthcheck_slow_ops",
    "ceph_daemon_health_metrics",
];

/// Each manager that comes into charge reads which images there are: reads of their pool, the second one, are
/// the manager's own too.
fn is_quiet(name: &str, labels: &str) -> bool {
    begins(name, QUIET) && !(name.starts_with("ceph_pool_rd") && labels.contains("(\"pool_id\", \"2\")"))
}

/// A port that nobody has.
fn port() -> u16 {
    mon_port().parse().expect("a number")
}

/// Status, head and body.
fn ask(c: &Cluster, url: &str, args: &[&str]) -> Option<(u16, String, String)> {
    let out = c.client("curl", &[&["-s", "-k", "-i", "--max-time", "60", url], args].concat());
    let said = String::from_utf8(out.stdout).expect("text");
    let (head, body) = said.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_ascii_lowercase(), body.to_owned()))
}

fn status(c: &Cluster, url: &str, args: &[&str]) -> u16 {
    ask(c, url, args).map_or(0, |(status, ..)| status)
}

/// Ceph's module says `HELP` and `TYPE` of one name once for each pool.
fn said_once(text: &str) -> String {
    let mut seen = BTreeSet::new();
    let lines = text.lines().filter(|l| !l.starts_with("# ") || seen.insert(l.to_owned()));
    // The static one has other words, and nothing behind it.
    let lines =
        lines.filter(|l| *l != "# HELP ceph_pool_objects_repaired Number of objects repaired in a pool");
    let mut lines: Vec<&str> =
        lines.filter(|l| !l.starts_with("# TYPE ceph_pool_objects_repaired")).collect();
    if let Some(at) = lines.iter().position(|l| l.starts_with("# HELP ceph_pool_objects_repaired")) {
        lines.insert(at + 1, "# TYPE ceph_pool_objects_repaired counter");
    }
    lines.join("\n") + "\n"
}

fn scrape(c: &Cluster, url: &str) -> Option<Families> {
    scraped(c, url, str::to_owned)
}

fn scraped(c: &Cluster, url: &str, text: impl Fn(&str) -> String) -> Option<Families> {
    let (status, _, body) = ask(c, url, &[])?;
    if status != 200 {
        return None;
    }
    let all = parse(&text(&body)).unwrap_or_else(|why| panic!("{why}"));
    all.contains_key("ceph_health_status").then_some(all)
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/metrics")
}

/// Switches the module on, at a port of its own.
fn enable(c: &Cluster) -> u16 {
    let port = port();
    c.ceph("config set mgr mgr/prometheus/server_addr 127.0.0.1");
    c.ceph(&format!("config set mgr mgr/prometheus/server_port {port}"));
    c.ceph("config set mgr mgr/prometheus/scrape_interval 1");
    c.ceph("mgr module enable prometheus");
    until("a scrape", || scrape(c, &url(port)).is_some());
    port
}

/// All that a family says but for its values.
fn form(families: &Families) -> BTreeMap<&str, (String, String)> {
    let labels = |f: &testkit::exposition::Family| f.label_names().join(",");
    families.iter().map(|(name, f)| (name.as_str(), (f.kind.clone(), labels(f)))).collect()
}

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|w| name.starts_with(w))
}

/// What ours lacks of theirs, or says otherwise.
fn unlike(ours: &Families, theirs: &Families) -> Vec<String> {
    let mut out = Vec::new();
    let forms = form(ours);
    for (name, form) in form(theirs) {
        let empty = theirs[name].series.is_empty();
        match forms.get(name) {
            None => out.push(format!("{name} is missing")),
            // Without series there are no labels to be seen.
            Some((kind, labels)) if *kind == form.0 && (*labels == form.1 || empty) => {}
            Some(other) => out.push(format!("{name} is {other:?} instead of {form:?}")),
        }
        let Some(own) = ours.get(name) else { continue };
        if own.help != theirs[name].help {
            out.push(format!("{name} says '{}' instead of '{}'", own.help, theirs[name].help));
        }
        if OTHER_LABELS.contains(&name) {
            continue;
        }
        let sorted = |f: &testkit::exposition::Family| {
            let series = f.series.iter().map(|(labels, value)| (format!("{labels:?}"), *value));
            series.collect::<BTreeMap<String, f64>>()
        };
        let (a, b) = (sorted(own), sorted(&theirs[name]));
        for (labels, value) in &b {
            match a.get(labels) {
                None => out.push(format!("{name}{labels} is missing")),
                Some(other) if is_quiet(name, labels) && other != value => {
                    out.push(format!("{name}{labels} is {other} instead of {value}"));
                }
                Some(_) => {}
            }
        }
    }
    out
}

fn quiet(c: &Cluster) {
    until("all PGs clean", || {
        let pgs = answer(c, "pg stat")["pg_summary"].clone();
        let states = pgs["num_pg_by_state"].as_array().cloned().unwrap_or_default();
        states.len() == 1 && states[0]["name"] == "active+clean" && pgs["num_pgs"] == states[0]["num"]
    });
}

#[test]
fn cephs_module_and_ours_tell_the_same_series_of_one_cluster() {
    if !installed("ceph-mgr") {
        return;
    }
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    c.ceph("osd pool create images 8");
    c.ceph("osd pool application enable images rbd");
    // Ceph's makes it by itself.
    c.ceph("osd pool create device_health_metrics 1");
    c.ceph("osd pool application enable device_health_metrics mgr_devicehealth");
    c.ceph("config set mgr mgr/prometheus/rbd_stats_pools images");
    c.ok("rbd", &["create", "--size", "64M", "images/one"]);
    c.ok("rbd", &["create", "--size", "64M", "images/two"]);
    c.ok("rados", &["-p", "p", "bench", "1", "write", "-b", "65536", "-t", "4", "--no-cleanup"]);
    let own = enable(&c);
    let other = port();
    c.ceph(&format!("config set mgr mgr/prometheus/z/server_port {other}"));
    assert_eq!(answer(&c, "mgr services")["prometheus"], format!("http://127.0.0.1:{own}/"));
    image_is_counted(&c, own);
    let all = scrape(&c, &url(own)).expect("a scrape");
    check(&all).unwrap_or_else(|why| panic!("{why}"));
    nothing_of_a_real_cluster_is_missing(&all);
    promtool_takes(&c, own);
    let _z = CephMgr::start(&c, "z");
    until("a manager that stands by", || answer(&c, "mgr stat")["num_standby"] == 1);
    // Ours stands by meanwhile.
    c.ceph("mgr fail x");
    in_charge(&c, "z");
    until("the other one's return", || answer(&c, "mgr stat")["num_standby"] == 1);
    quiet(&c);
    let counts = |all: &Families| all.get("ceph_osd_op").is_some_and(|f| f.series.len() == 3);
    let mut theirs = Families::new();
    until("a whole scrape of Ceph's", || {
        theirs = scraped(&c, &url(other), said_once).unwrap_or_default();
        counts(&theirs) && theirs.contains_key("ceph_rbd_write_ops")
    });
    until("what stands by", || {
        ask(&c, &url(own), &[]).is_some_and(|(s, _, body)| s == 200 && body.is_empty())
    });
    c.ceph("mgr fail z");
    in_charge(&c, "x");
    until("the other one's return", || answer(&c, "mgr stat")["num_standby"] == 1);
    quiet(&c);
    let mut found = vec!["nothing was scraped".to_owned()];
    // Statistics come with the OSDs' next reports.
    until("the same of ours", || {
        let Some(ours) = scrape(&c, &url(own)) else { return false };
        let now = unlike(&ours, &theirs);
        if now != found {
            eprintln!("--- {} differences\n{}", now.len(), now.join("\n"));
            found = now;
        }
        found.is_empty()
    });
}

fn image_is_counted(c: &Cluster, port: u16) {
    let value = |name: &str| {
        let all = scrape(c, &url(port))?;
        all.get(name)?.value(&[("pool", "images"), ("namespace", ""), ("image", "one")])
    };
    // OSDs begin to count when they are asked, and they are when the image has a name.
    until("the image's name", || value("ceph_rbd_write_ops").is_some());
    until("the image's use", || {
        c.ok("rbd", &["bench", "--io-type", "write", "--io-size", "4096", "--io-total", "1M", "images/one"]);
        value("ceph_rbd_write_bytes") >= Some(1_048_576.0)
    });
    let written = value("ceph_rbd_write_bytes").expect("bytes");
    let (ops, count) = (value("ceph_rbd_write_ops"), value("ceph_rbd_write_latency_count"));
    assert!(ops > Some(0.0) && count > Some(0.0) && value("ceph_rbd_write_latency_sum") > Some(0.0));
    assert_eq!(written % 4096.0, 0.0);
}

/// Of a recorded scrape of a cluster of Ceph's, with its own daemons.
fn nothing_of_a_real_cluster_is_missing(all: &Families) {
    let recorded = include_str!("prometheus_16.2.15.txt");
    let (mut missing, mut excused) = (Vec::new(), BTreeSet::new());
    for line in recorded.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ');
        let [name, kind, labels] = [(); 3].map(|()| words.next().unwrap_or_default());
        let Some(family) = all.get(name) else {
            match NOT_HERE.iter().find(|(begin, _)| name.starts_with(begin)) {
                Some((begin, _)) => drop(excused.insert(*begin)),
                None => missing.push(line),
            }
            continue;
        };
        assert_eq!(family.kind, kind, "{name}");
        let own = family.label_names().join(",");
        assert!(own == labels || own.is_empty() || labels.is_empty(), "{name}: {own} instead of {labels}");
    }
    assert!(missing.is_empty(), "{} are missing:\n{}", missing.len(), missing.join("\n"));
    assert_eq!(excused.len(), NOT_HERE.len(), "what is here needs no excuse: {excused:?}");
}

/// The files of docs/monitoring.
fn monitoring() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring")
}

/// What Debian's promtool says of a text: whether it can be read, and its remarks.
fn promtool(args: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new("promtool");
    command
        .args(args)
        .current_dir(monitoring())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it listens");
    let out = child.wait_with_output().expect("it ends");
    (out.status.code(), crate::cluster::text(&out))
}

/// Remarks on names (3) are on Ceph's, which stay; whatever cannot be read is an error (1).
fn promtool_takes(c: &Cluster, port: u16) {
    if !installed("promtool") {
        return;
    }
    let (_, _, body) = ask(c, &url(port), &[]).expect("a scrape");
    let (code, said) = promtool(&["check", "metrics"], &body);
    assert!(matches!(code, Some(0 | 3)) && !said.contains("error while linting"), "{code:?} {said}");
    let (code, said) = promtool(&["check", "metrics"], &format!("{body}# HELP ceph_osd_up again\n"));
    assert!(code == Some(1) && said.contains("second HELP"), "it does look: {code:?} {said}");
}

/// Debian's Prometheus, which ends with the test.
struct Prometheus(Child, u16);

impl Prometheus {
    /// Scrapes a manager each second, and looks at the rules.
    fn start(c: &Cluster, target: u16) -> Self {
        let (dir, own) = (c.dir.path().join("prometheus"), port());
        std::fs::create_dir_all(&dir).expect("a folder");
        let rules = monitoring().join("loligo.rules.yml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n  \
             - job_name: ceph\n    honor_labels: true\n    static_configs: [{{ targets: ['127.0.0.1:{target}'] }}]\n",
            rules.display()
        );
        std::fs::write(dir.join("config.yml"), config).expect("written");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.join("config.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{own}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("prometheus starts"), own)
    }

    /// The series that a query finds.
    fn query(&self, c: &Cluster, query: &str) -> Vec<Value> {
        let (url, query) = (format!("http://127.0.0.1:{}/api/v1/query", self.1), format!("query={query}"));
        let out = c.client("curl", &["-s", "-G", &url, "--data-urlencode", &query]);
        let said: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        said["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What it scrapes is what is told, odd names and all; an alert fires by its cause.
fn debians_prometheus_takes(c: &Cluster, port: u16, hostile: &str) {
    if !installed("prometheus") {
        return;
    }
    let p = Prometheus::start(c, port);
    until("Prometheus' scrape", || p.query(c, "ceph_osd_up == 1").len() == 3);
    let pools = p.query(c, "ceph_pool_metadata");
    assert!(pools.iter().any(|s| s["metric"]["name"] == hostile), "{pools:?}");
    assert_eq!(p.query(c, "up")[0]["value"][1], "1");
    let waits = || !p.query(c, "ALERTS{alertname='ClusterHealthWarning'}").is_empty();
    assert!(!waits(), "the cluster is healthy");
    c.ceph("osd set noout");
    until("an alert that waits", waits);
    c.ceph("osd unset noout");
}

#[test]
fn rules_are_well_formed_and_each_fires_by_its_cause() {
    if !installed("promtool") {
        return;
    }
    for args in [["check", "rules", "loligo.rules.yml"], ["test", "rules", "loligo.rules.test.yml"]] {
        let (code, said) = promtool(&args, "");
        assert_eq!(code, Some(0), "{args:?}: {said}");
    }
    let read = |name: &str| std::fs::read_to_string(monitoring().join(name)).expect("a file");
    let alerts = |text: &str, word: &str| -> BTreeSet<String> {
        text.lines().filter_map(|l| l.trim().strip_prefix(word).map(|n| n.trim().to_owned())).collect()
    };
    let rules = alerts(&read("loligo.rules.yml"), "- alert:");
    let tested = alerts(&read("loligo.rules.test.yml"), "- name:");
    assert!(rules.len() > 20);
    assert_eq!(rules, tested, "each has a test");
}

/// Labels that the rules and the board name.
const LABELS: [&str; 2] = ["ceph_daemon", "ceph_version"];

/// Every series that the rules and the board name is told.
fn series_that_files_name_are_told(all: &Families) {
    let read = |name: &str| std::fs::read_to_string(monitoring().join(name)).expect("a file");
    let mut named = BTreeSet::new();
    for text in [read("loligo.rules.yml"), read("loligo-board.json")] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        named.extend(words.filter(|w| w.starts_with("ceph_")).map(ToOwned::to_owned));
    }
    let known = |name: &&String| all.contains_key(*name) || LABELS.contains(&name.as_str());
    let unknown: Vec<&String> = named.iter().filter(|n| !known(n)).collect();
    assert!(named.len() > 30 && unknown.is_empty(), "{unknown:?}");
}

#[test]
fn whoever_asks_gets_a_clear_answer() {
    let c = Cluster::start(&[]);
    c.managed();
    c.ceph("osd pool create images 8");
    c.ceph("osd pool application enable images rbd");
    c.ceph("config set mgr mgr/prometheus/rbd_stats_pools images");
    let hostile = "a\"} 1 <b>\\ \u{202e}x";
    c.ok("ceph", &["osd", "pool", "create", hostile, "1"]);
    // The port is taken, and health says so until it is free.
    let taken = port();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).expect("bound");
    c.ceph("config set mgr mgr/prometheus/server_addr 127.0.0.1");
    c.ceph(&format!("config set mgr mgr/prometheus/server_port {taken}"));
    c.ceph("mgr module enable prometheus");
    until("the warning", || c.ceph("health detail").contains(&refused(taken)));
    a_cluster_starts_beside_another_that_has_the_port(&c, taken);
    drop(listener);
    until("a scrape of the port that has become free", || scrape(&c, &url(taken)).is_some());
    until("no warning", || !c.ceph("health detail").contains("MGR_MODULE_ERROR"));
    let port = enable(&c);
    until("the end of the old port", || TcpStream::connect((Ipv4Addr::LOCALHOST, taken)).is_err());
    let all = scrape(&c, &url(port)).expect("a scrape");
    check(&all).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(all["ceph_pool_metadata"].value(&[("name", hostile)]), Some(1.0));
    series_that_files_name_are_told(&all);
    debians_prometheus_takes(&c, port, hostile);
    let root = format!("http://127.0.0.1:{port}");
    assert!(ask(&c, &root, &[]).is_some_and(|(s, _, body)| s == 200 && body.contains("href='/metrics'")));
    assert!(
        ask(&c, &url(port), &[])
            .is_some_and(|(_, head, _)| head.contains("content-type: text/plain; version=0.0.4"))
    );
    assert_eq!(status(&c, &format!("{root}/nothing"), &[]), 404);
    assert_eq!(status(&c, &url(port), &["-X", "POST", "-d", "x"]), 405);
    assert_eq!(status(&c, &url(port), &["-H", &format!("X: {}", "x".repeat(40_000))]), 431);
    many_at_once(&c, port);
    history_is_kept(&c);
    with_a_password_and_tls(&c, port);
    c.ceph("mgr module disable prometheus");
    until("a port that is closed", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    assert_eq!(answer(&c, "mgr services").get("prometheus"), None);
    assert!(
        c.fails("ceph", &["healthcheck", "history", "ls"]).1.contains("Module 'prometheus' is not enabled")
    );
}

/// How health says that the port is another's.
fn refused(port: u16) -> String {
    format!("Module 'prometheus' has failed: cannot listen at 127.0.0.1:{port}: Address already in use")
}

/// Two clusters on one laptop: the second one comes up, and says in its log and in health what it lacks.
fn a_cluster_starts_beside_another_that_has_the_port(c: &Cluster, port: u16) {
    assert!(c.loligo(&["down"]).status.success());
    c.up(&[]);
    c.managed();
    until("the warning again", || c.ceph("health detail").contains(&refused(port)));
    assert_eq!(answer(c, "mgr services").get("prometheus"), None);
    let logs = std::fs::read_dir(c.data()).expect("a folder").flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
    let said: String = logs.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
    let line = format!("no metrics are served: cannot listen at 127.0.0.1:{port}: Address already in use");
    assert!(said.contains(&line), "{said}");
    assert!(
        said.contains("`ceph config set mgr mgr/prometheus/server_port PORT` sets another port"),
        "{said}"
    );
}

/// A hundred who ask at once, and connections that ask nothing.
fn many_at_once(c: &Cluster, port: u16) {
    let looks = || {
        let all = scrape(c, &url(port)).expect("a scrape");
        all["ceph_prometheus_collect_duration_seconds_count"]
            .value(&[("method", "collect")])
            .expect("a number")
    };
    c.ceph("config set mgr mgr/prometheus/cache false");
    until("no cache", || ask(c, &url(port), &[]).is_some_and(|(s, ..)| s == 200) && looks() < 5.0);
    let before = looks();
    let urls: Vec<String> = (0..100).map(|_| url(port)).collect();
    let mut args = vec![
        "-s",
        "-Z",
        "--parallel-immediate",
        "--parallel-max",
        "100",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}\n",
    ];
    args.extend(urls.iter().map(String::as_str));
    let said = c.ok("curl", &args);
    let good = said.lines().filter(|l| *l == "200").count();
    assert_eq!(good, 100, "{said}");
    let cost = looks() - before - 1.0;
    assert!(cost < 50.0, "{cost} looks at the cluster for a hundred who ask");
    c.ceph("config set mgr mgr/prometheus/cache true");
    until("a cache", || scrape(c, &url(port)).is_some());
    let idle: Vec<TcpStream> =
        (0..1_000).filter_map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()).collect();
    assert!(idle.len() > 500);
    // Those that ask nothing end, and make room.
    until("a scrape beside a thousand idle connections", || scrape(c, &url(port)).is_some());
    drop(idle);
}

fn history_is_kept(c: &Cluster) {
    c.ceph("osd set noout");
    until("a check in the history", || c.ceph("healthcheck history ls").contains("OSDMAP_FLAGS"));
    c.ceph("osd unset noout");
    until("its end", || {
        let all: Value = serde_json::from_str(&c.ceph("healthcheck history ls --format json")).expect("JSON");
        all["OSDMAP_FLAGS"]["active"] == false
    });
    assert!(c.ceph("healthcheck history ls --format yaml").contains("OSDMAP_FLAGS:\n  active: false\n"));
    assert!(c.ceph("config-key get mgr/prometheus/health_history").contains("OSDMAP_FLAGS"));
    c.ceph("healthcheck history clear");
    assert!(!c.ceph("healthcheck history ls").contains("OSDMAP_FLAGS"));
    assert!(!c.ceph("config-key get mgr/prometheus/health_history").contains("OSDMAP_FLAGS"));
    let targets: Value = serde_json::from_str(&c.ceph("prometheus file_sd_config")).expect("JSON");
    assert!(targets[0]["targets"][0].as_str().is_some_and(|t| t.contains(':')), "{targets}");
}

fn with_a_password_and_tls(c: &Cluster, port: u16) {
    let file = c.dir.path().join("password");
    std::fs::write(&file, "a:good password\n").expect("written");
    c.ceph("config set mgr mgr/prometheus/auth true");
    until("an error for want of a password", || c.ceph("health detail").contains("there is no password"));
    c.ok("ceph", &["config-key", "set", "mgr/prometheus/password", "-i", &file.display().to_string()]);
    until("a question for the password", || status(c, &url(port), &[]) == 401);
    assert!(ask(c, &url(port), &[]).is_some_and(|(_, head, _)| head.contains("www-authenticate: basic")));
    assert_eq!(status(c, &format!("http://127.0.0.1:{port}/"), &[]), 401);
    until("an answer to who knows it", || {
        status(c, &url(port), &["-u", "prometheus:a:good password"]) == 200
    });
    assert_eq!(status(c, &url(port), &["-u", "admin:a:good password"]), 401);
    until("a pause", || status(c, &url(port), &["-u", "prometheus:guess"]) == 429);
    c.ceph("config set mgr mgr/prometheus/ssl true");
    let secure = url(port).replace("http", "https");
    until("TLS", || status(c, &secure, &["-u", "prometheus:a:good password"]) == 200);
    assert_eq!(status(c, &url(port), &[]), 0, "nothing without TLS");
    assert_eq!(answer(c, "mgr services")["prometheus"], format!("https://127.0.0.1:{port}/"));
}
