//! Tasks on images, schedules and sums: what the manager has done, in which order, and what it tells of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod bounds;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod perf;

use std::time::Duration;

use bytes::Bytes;
use common::{osd_conn, peer, text};
use manager::job::{Found, ImageFacts, Job, Space, Work};
use manager::{Input, Output};
use maps::MgrClient;
use messages::Message;
use messages::metrics::MetricSums;
use messages::mgr::{MMgrOpen, MMgrReport};
use messages::mon::MConfig;
use messages::payload::RestOfFront;
use serde_json::{Value, json};
use types::{ConnId, EntityType, Errno};

use cluster::*;
#[test]
fn a_task_is_kept_done_and_forgotten() {
    let mut c = Cluster::new();
    c.image("child", true);
    let (code, _, told) = c.task("flatten", "child");
    assert_eq!(code, 0);
    let name = c.name.clone();
    let task: Value = serde_json::from_str(&told).unwrap();
    let refs = json!({
        "action": "flatten", "pool_name": name, "pool_namespace": "", "image_name": "child", "image_id": "idchild",
    });
    assert_eq!((&task["sequence"], &task["refs"]), (&json!(1), &refs));
    assert!(told.starts_with(r#"{"sequence": 1, "id": ""#), "{told}");
    let key = (Space { pool: c.pool, namespace: String::new() }, "rbd_task", "0000000000000001".to_owned());
    assert_eq!(c.kept.get(&key), Some(&told), "as Ceph's module keeps it");
    assert_eq!(c.works.values().map(|(_, w)| w.clone()).collect::<Vec<_>>(), [flatten("child")]);

    // Asked for again it is the same.
    let again: Value = serde_json::from_str(&c.task("flatten", "child").2).unwrap();
    assert_eq!((&again["id"], &again["in_progress"], c.stored()), (&task["id"], &json!(true), 1));
    let id = *c.works.keys().next().unwrap();
    c.w.input(Input::JobProgress { id, done: 1, of: 4 });
    let shown = c.tasks();
    assert_eq!((&shown[0]["in_progress"], &shown[0]["progress"]), (&json!(true), &json!(0.25)));
    let events = c.events();
    assert_eq!(events["events"][0]["refs"]["origin"], "rbd_support");
    assert_eq!(events["events"][0]["message"], format!("Flattening image {name}/child"));

    c.over(Ok(Found::Nothing));
    assert_eq!((c.stored(), c.tasks()), (0, vec![]));
    let events = c.events();
    assert_eq!((&events["events"], &events["completed"][0]["id"]), (&json!([]), &task["id"]));
    assert_eq!(events["completed"][0].get("failed"), None);
    let again: Value = serde_json::from_str(&c.task("flatten", "child").2).unwrap();
    assert_eq!(again["id"], task["id"], "a command that is sent again gives the task that it made");
}

#[test]
fn what_cannot_be_done_is_refused_in_the_words_of_cephs_module() {
    let mut c = Cluster::new();
    c.image("whole", false);
    c.image("busy", false);
    c.images.get_mut("busy").unwrap().has_snapshots = true;
    c.image("moving", false);
    c.images.get_mut("moving").unwrap().is_migrating = true;
    let name = c.name.clone();
    let not_found = |what: &str| format!("[errno 2] RBD image not found ({what})");
    for (what, image, code, words) in [
        ("flatten", "none", -2, not_found(&format!("Image {name}/none does not exist"))),
        ("flatten", "whole", -2, not_found(&format!("Image {name}/whole does not have a parent"))),
        ("flatten", "a@b", -22, format!("Invalid image spec: {name}/a@b")),
        ("remove", "none", -2, not_found(&format!("Image {name}/none does not exist"))),
        ("remove", "busy", -16, format!("[errno 16] RBD image is busy (Image {name}/busy has snapshots)")),
        ("trash remove", "0123", -2, not_found("error retrieving image from trash")),
        (
            "migration execute",
            "whole",
            -22,
            format!("[errno 22] RBD invalid argument (Image {name}/whole is not migrating)"),
        ),
        (
            "migration commit",
            "none",
            -22,
            format!("[errno 22] RBD invalid argument (Image {name}/none is not migrating)"),
        ),
        ("migration abort", "moving", -95, "a manager of Loligo does not migrate images".to_owned()),
    ] {
        assert_eq!(c.task(what, image), (code, words, String::new()), "{what} {image}");
    }
    let no_pool = c.run(json!({ "prefix": "rbd task add flatten", "image_spec": "nopool/x" }));
    assert_eq!(no_pool.1, "[errno 2] RADOS object not found (error opening pool 'nopool')");
    for prefix in ["rbd task cancel", "rbd task list"] {
        let (code, words, _) = c.run(json!({ "prefix": prefix, "task_id": "7" }));
        assert_eq!((code, words.as_str()), (-2, "No such task 7"), "{prefix}");
    }
    let (code, words, _) = c.run(json!({ "prefix": "rbd mirror snapshot schedule list" }));
    assert_eq!((code, words.contains("mirrored")), (-95, true));
    assert_eq!((c.stored(), c.works.len()), (0, 0));
}

#[test]
fn a_task_that_fails_is_tried_again_or_ends() {
    let mut c = Cluster::new();
    c.image("gone", false);
    assert_eq!(c.task("remove", "gone").0, 0);
    c.over(failed(Errno::EBUSY));
    let shown = c.tasks();
    assert_eq!(shown[0]["retry_message"], "[errno 16] RBD image is busy (it is so)");
    assert_eq!((&shown[0]["retry_attempts"], c.works.len(), c.stored()), (&json!(1), 0, 1));
    assert!(shown[0]["retry_time"].as_str().unwrap().starts_with("20"));
    c.w.advance(Duration::from_secs(30));
    c.go();
    assert_eq!(c.works.len(), 1, "after half a minute");
    c.over(failed(Errno::EBUSY));
    c.w.advance(Duration::from_secs(31));
    c.go();
    assert_eq!(c.works.len(), 0, "after a minute then");
    c.w.advance(Duration::from_secs(30));
    c.go();
    c.over(failed(Errno::ENOENT));
    assert_eq!((c.tasks(), c.stored()), (vec![], 0));
    let over = c.events()["completed"][0].clone();
    assert_eq!((&over["failed"], &over["failure_message"]), (&json!(true), &json!("Image does not exist")));

    // What is cancelled while it is under way ends early.
    assert_eq!(c.task("trash remove", "t1").0, 0);
    let id = c.tasks()[0]["id"].clone();
    assert_eq!(c.run(json!({ "prefix": "rbd task cancel", "task_id": id })).0, 0);
    assert_eq!((c.cancelled.len(), c.stored()), (1, 0));
    assert_eq!(c.tasks()[0]["canceled"], true);
    c.over(failed(Errno::ECANCELED));
    assert_eq!(c.tasks().len(), 0);
    let events = c.events();
    assert_eq!(events["completed"][1]["failure_message"], "Operation canceled");
    assert_eq!(events["completed"].as_array().unwrap().len(), 2, "once");
}

#[test]
fn the_next_manager_goes_on_where_the_last_one_was() {
    let mut c = Cluster::new();
    c.image("a", true);
    c.image("b", true);
    assert_eq!((c.task("flatten", "a").0, c.task("flatten", "b").0), (0, 0));
    let kept = c.kept.clone();
    // Another one is in charge.
    let other = c.works.len();
    c.mgr_map(77, Vec::new());
    c.w.advance(Duration::from_secs(1));
    let sent = c.w.sent();
    assert!(other == 1 && sent.contains(&Output::EndClient) && sent.contains(&Output::Respawn));
    c.works.clear();

    let mut next = Cluster::before();
    next.kept = kept;
    // It must not touch an image before it is in charge.
    next.kept.insert(
        (Space { pool: next.pool, namespace: "ns".to_owned() }, "rbd_task", "0000000000000007".to_owned()),
        json!({ "sequence": 7, "id": "m", "message": "Migrating", "refs": {
            "action": "migrate execute", "pool_name": next.name, "pool_namespace": "ns", "image_name": "x" } })
        .to_string(),
    );
    next.kept.insert(
        (Space { pool: next.pool, namespace: String::new() }, "rbd_task", "0000000000000009".to_owned()),
        "{".to_owned(),
    );
    next.mgr_map(77, Vec::new());
    next.go();
    assert_eq!((next.clients, next.works.len()), (0, 0));
    next.in_charge(4_100);
    next.go();
    assert_eq!(next.works.values().next().unwrap().1, flatten("a"));
    next.over(Ok(Found::Nothing));
    assert_eq!(next.works.values().next().unwrap().1, flatten("b"));
    next.over(Ok(Found::Nothing));
    let left = next.tasks();
    let why = left[0]["retry_message"].as_str().unwrap();
    assert!(left.len() == 1 && why.contains("does not migrate images"), "{left:?}");
    assert!(next.said.iter().any(|s| s.contains("0000000000000009")), "{:?}", next.said);
    next.image("c", true);
    next.image("d", true);
    // What is kept there stays, whatever it is.
    for (image, number) in [("c", 8), ("d", 10)] {
        let added: Value = serde_json::from_str(&next.task("flatten", image).2).unwrap();
        assert_eq!(added["sequence"], number);
    }
}

#[test]
fn nothing_is_done_before_the_monitors_know_the_client() {
    let mut c = Cluster::before();
    c.in_charge(4_100);
    c.w.advance(Duration::from_secs(1));
    let start = start_in(&c.w.sent()).expect("one is started");
    let no_way = |start| Input::Client { start, started: Err("no way".to_owned()) };
    c.w.input(no_way(start));
    assert!(c.w.sent().iter().any(|o| matches!(o, Output::Warn(text) if text.contains("no way"))));
    c.w.advance(Duration::from_secs(6));
    let again = start_in(&c.w.sent()).expect("it is tried again");
    c.w.input(Input::Client { start: again, started: Ok(addrs(5)) });
    let beacon = |o: &Output| matches!(o, Output::SendMon { msg: Message::MgrBeacon(b), .. } if b.client_addrs == [addrs(5)]);
    let is_job = |o: &Output| matches!(o, Output::Job { .. });
    let sent = c.w.sent();
    assert!(sent.iter().any(beacon) && !sent.iter().any(is_job), "{sent:?}");
    let other = MgrClient { name: "rbd_support".to_owned(), addrs: addrs(6) };
    c.mgr_map(4_100, vec![other]);
    assert!(!c.w.sent().iter().any(is_job));
    c.mgr_map(4_100, vec![MgrClient { name: "rbd_support".to_owned(), addrs: addrs(5) }]);
    let jobs: Vec<u64> =
        c.w.sent()
            .into_iter()
            .filter_map(|o| if let Output::Job { id, .. } = o { Some(id) } else { None })
            .collect();
    assert_eq!(jobs.len(), 2, "the tasks and the schedules of the pool");

    // Somebody shuts it out: another one does what it has left.
    c.w.input(Input::JobDone { id: jobs[0], result: failed(Errno::ESHUTDOWN) });
    let sent = c.w.sent();
    assert!(sent.contains(&Output::EndClient));
    let third = start_in(&sent).expect("another one");
    assert!(start < again && again < third);
    // What the one before had told, or why it could not be started, is heard too late.
    c.w.input(no_way(again));
    c.w.input(Input::Client { start: again, started: Ok(addrs(5)) });
    assert!(c.w.sent().is_empty());
    c.clients = 7;
    c.w.input(Input::Client { start: third, started: Ok(addrs(8)) });
    c.w.advance(Duration::from_secs(6));
    c.go();
    c.image("a", true);
    assert_eq!(c.task("flatten", "a").0, 0);
}

#[test]
fn keys_with_the_profile_rbd_see_their_own_pools() {
    let mut c = Cluster::new();
    c.image("a", true);
    assert_eq!(c.task("flatten", "a").0, 0);
    let ask = |c: &mut Cluster, num: u64, caps: &str, command: Value| {
        let conn = ConnId(num);
        c.w.input(Input::Connected { conn, peer: peer(EntityType::Client, num as i64, caps) });
        let r = c.w.command_as(conn, &command.to_string()).expect("an answer");
        (r.result, r.status.clone(), text(&r).trim_end().to_owned())
    };
    let own = format!("profile rbd pool={}", c.name);
    let list = || json!({ "prefix": "rbd task list" });
    assert!(ask(&mut c, 50, &own, list()).2.contains("flatten"));
    assert_eq!(ask(&mut c, 51, "profile rbd pool=other", list()), (0, String::new(), "[]".to_owned()));
    let spec = format!("{}/a", c.name);
    let add = || json!({ "prefix": "rbd task add flatten", "image_spec": spec });
    let (code, words, _) = ask(&mut c, 52, "profile rbd pool=other", add());
    let refusal = format!("not authorized on pool={}, namespace=", c.name);
    assert_eq!((code, words), (-13, refusal));
    assert_eq!(ask(&mut c, 53, "profile rbd-read-only", add()).0, -13);
    assert_eq!(ask(&mut c, 54, "profile osd", list()).0, -13);
    // Rights to modules are rights to each pool.
    assert!(ask(&mut c, 55, "allow service py r", list()).2.contains("flatten"));
    assert_eq!(ask(&mut c, 56, "allow service mgr r", list()).0, -13);
}

#[test]
fn trash_is_emptied_when_a_schedule_says_so() {
    let mut c = Cluster::new();
    let pool = c.name.clone();
    let schedule = |c: &mut Cluster, what: &str, args: Value| {
        let mut command = json!({ "prefix": format!("rbd trash purge schedule {what}") });
        command.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        c.run(command)
    };
    let level = format!("{pool}/");
    let add = |level: &str, interval: &str| json!({ "level_spec": level, "interval": interval });
    assert_eq!(schedule(&mut c, "list", json!({})).2, "{}");
    for (level, interval, why) in [
        (pool.as_str(), "1d", format!("Invalid level spec {pool}: failed to parse {pool}")),
        (&level, "10x", "Invalid interval (10x)".to_owned()),
        ("nopool/", "1d", "Invalid level spec nopool/: pool nopool does not exist".to_owned()),
        (&format!("{pool}/x/"), "1d", format!("Invalid level spec {pool}/x/: namespace x does not exist")),
    ] {
        assert_eq!(schedule(&mut c, "add", add(level, interval)), (-22, why, String::new()));
    }
    assert_eq!(schedule(&mut c, "add", add(&level, "10m")).0, 0);
    assert_eq!(schedule(&mut c, "add", add(&format!("{pool}/ns/"), "2h")).0, 0);
    let id = c.pool.0;
    let kept = c.kept.keys().filter(|(_, o, _)| *o == "rbd_trash_purge_schedule").map(|(_, _, k)| k.clone());
    assert_eq!(kept.collect::<Vec<_>>(), [id.to_string(), format!("{id}/ns")]);
    let shown: Value = serde_json::from_str(&schedule(&mut c, "list", json!({})).2).unwrap();
    let item = json!([{ "interval": "10m", "start_time": null }]);
    assert_eq!(shown[id.to_string()], json!({ "name": level, "schedule": item }));
    c.go();
    let status: Value = serde_json::from_str(&schedule(&mut c, "status", json!({})).2).unwrap();
    let scheduled = status["scheduled"].as_array().unwrap().clone();
    assert_eq!(scheduled.len(), 2, "{status}");
    assert_eq!((&scheduled[0]["namespace"], &scheduled[0]["pool_name"]), (&json!(""), &json!(pool)));

    c.w.advance(Duration::from_secs(601));
    c.go();
    let works: Vec<(Space, Work)> = c.works.values().cloned().collect();
    assert!(
        matches!(&works[..], [(space, Work::TrashPurge { .. })] if space.namespace.is_empty()),
        "{works:?}"
    );
    c.over(Ok(Found::Nothing));
    assert_eq!(c.works.len(), 0, "the next time is ten minutes later");
    assert_eq!(schedule(&mut c, "remove", json!({ "level_spec": level })).0, 0);
    assert_eq!(schedule(&mut c, "remove", add(&format!("{pool}/ns/"), "2h")).0, 0);
    assert_eq!(schedule(&mut c, "list", json!({})).2, "{}");
    assert_eq!(schedule(&mut c, "add", add("", "7d")).0, 0);
    assert!(c.said.iter().any(|s| s.contains("mgr/rbd_support/trash_purge_schedule")), "{:?}", c.said);
}

#[test]
fn images_that_are_used_are_shown_while_somebody_looks() {
    let mut c = Cluster::new();
    c.w.message(osd_conn(0), MMgrOpen { daemon_name: "0".to_owned(), ..MMgrOpen::default() });
    c.go();
    c.image("a", false);
    let pool = c.name.clone();
    let look = |c: &mut Cluster, what: &str| -> Value {
        let (code, words, out) =
            c.run(json!({ "prefix": format!("rbd perf image {what}"), "pool_spec": pool }));
        assert_eq!(code, 0, "{words}");
        serde_json::from_str(&out).unwrap()
    };
    assert_eq!(look(&mut c, "stats")["stats"], json!([]));
    let queries = c.wishes.clone().expect("OSDs are asked").metric_queries(10).unwrap();
    let (query, limits) = queries.first_key_value().unwrap();
    assert_eq!((queries.len(), limits.len()), (1, 6));
    let said = |c: &mut Cluster, id: &str| {
        let part =
            |parts: &[&str]| parts.iter().map(|p| Bytes::copy_from_slice(p.as_bytes())).collect::<Vec<_>>();
        let pool = c.pool.0.to_string();
        let key = vec![part(&[&pool]), part(&[""]), part(&["", id])];
        let values: Vec<u8> =
            [50_u64, 0, 5_000, 0, 100_000, 50, 0, 0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let sums = MetricSums { counters: query.counters.clone(), packed: [(key, values.into())].into() };
        let report = MMgrReport {
            daemon_name: "0".to_owned(),
            packed: Bytes::from_static(&[1, 1, 0, 0, 0, 0]),
            ..MMgrReport::default()
        };
        c.w.message(osd_conn(0), report.with_metrics(&[(query.clone(), sums)].into()));
    };
    for _ in 0..3 {
        said(&mut c, "ida");
        said(&mut c, "foreign");
        c.w.advance(Duration::from_secs(5));
        c.go();
    }
    let stats = look(&mut c, "stats");
    assert_eq!(stats["pool_descriptors"], json!({ "0": pool }));
    let row = &stats["stats"][0]["0/a"];
    assert!(row[0].as_f64().unwrap() > 5.0 && row[4].as_f64().unwrap() > 1_000.0, "{stats}");
    assert_eq!(stats["stats"].as_array().unwrap().len(), 1, "of what has no name nothing is shown");
    let counters = look(&mut c, "counters");
    assert_eq!(counters["counters"][0]["0/a"], json!([150, 0, 15_000, 0, 300_000, 0]));
    let (code, words, _) = c.run(json!({ "prefix": "rbd perf image stats", "pool_spec": "nopool" }));
    assert_eq!((code, words.as_str()), (-2, "[errno 2] RADOS object not found (Pool 'nopool' not found)"));

    // An answer that cannot be read is refused, and said once.
    for _ in 0..2 {
        let rest = RestOfFront(Bytes::from_static(&[7, 0, 0, 0, 1]));
        let packed = Bytes::from_static(&[1, 1, 0, 0, 0, 0]);
        let daemon_name = "0".to_owned();
        c.w.message(osd_conn(0), MMgrReport { daemon_name, packed, rest, ..MMgrReport::default() });
    }
    c.w.advance(Duration::from_secs(70));
    c.go();
    assert_eq!(c.said.iter().filter(|s| s.contains("sums over images")).count(), 1, "{:?}", c.said);
    assert_eq!(c.wishes.clone().unwrap().metric_queries(10).unwrap().len(), 0, "nobody looks any more");
}

#[test]
fn a_task_is_taken_where_its_image_is_and_nowhere_else() {
    let (mut c, other, name) = Cluster::with_other();
    let own = c.name.clone();
    let pool = c.pool;
    c.keep_task((other, ""), "0000000000000001", removal(1, &own, "", "elsewhere"));
    c.keep_task((other, "ns"), "0000000000000002", removal(2, &name, "", "outside"));
    c.keep_task((other, ""), "0000000000000003", removal(3, &name, "ns", "inside"));
    c.keep_task((other, ""), "0000000000000005", removal(4, &name, "", "keyless"));
    let mut nameless = removal(6, &name, "", "any");
    nameless["refs"].as_object_mut().unwrap().remove("image_id");
    c.keep_task((other, ""), "0000000000000006", nameless);
    let mut long = removal(7, &name, "", "long");
    long["id"] = json!("x".repeat(65));
    c.keep_task((other, ""), "0000000000000007", long);
    c.keep_task((pool, "ns"), "0000000000000008", removal(8, &own, "ns", "good"));
    c.in_charge(4_100);
    c.go();
    assert_eq!(c.all_works(), [remove("good")]);
    assert_eq!(c.tasks().len(), 1);
    assert!(c.said.iter().any(|s| s.contains("is not for images of this place")), "{:?}", c.said);
    assert_eq!(c.stored(), 7, "what is none stays");
}

#[test]
fn the_key_of_a_task_that_is_over_is_removed_until_it_is_gone() {
    let mut c = Cluster::new();
    c.image("a", false);
    assert_eq!(c.task("remove", "a").0, 0);
    c.keeps = true;
    c.over(Ok(Found::Nothing));
    assert_eq!((c.tasks().len(), c.stored()), (0, 1));
    for _ in 0..3 {
        c.w.advance(Duration::from_secs(61));
        c.go();
    }
    assert_eq!(c.said.iter().filter(|s| s.contains("no way")).count(), 1, "{:?}", c.said);
    // Whoever finds the key is told of the image that was meant.
    let mut next = Cluster::before();
    next.kept = c.kept.clone();
    next.images.insert("a".to_owned(), ImageFacts { id: "new".to_owned(), ..ImageFacts::default() });
    next.in_charge(4_100);
    next.go();
    assert_eq!(next.all_works(), [remove("a")]);
    next.over(failed(Errno::ENOENT));
    assert_eq!((next.tasks().len(), next.stored()), (0, 0));

    c.keeps = false;
    c.w.advance(Duration::from_secs(61));
    c.go();
    assert_eq!(c.stored(), 0);
}

#[test]
fn a_cancelled_task_stays_until_its_key_is_gone() {
    let mut c = Cluster::new();
    c.image("a", false);
    c.image("b", false);
    assert_eq!((c.task("remove", "a").0, c.task("remove", "b").0), (0, 0));
    c.keeps = true;
    let id = c.tasks()[1]["id"].clone();
    assert_eq!(c.run(json!({ "prefix": "rbd task cancel", "task_id": id })).0, -5);
    c.over(Ok(Found::Nothing));
    let left = c.tasks();
    assert_eq!((left.len(), &left[0]["id"], &left[0]["canceled"]), (1, &id, &json!(true)));
    c.w.advance(Duration::from_secs(61));
    c.go();
    assert_eq!((c.works.len(), c.tasks().len()), (0, 1));
    // The same may be asked for again, and is another one.
    let again: Value = serde_json::from_str(&c.task("remove", "b").2).unwrap();
    assert_ne!(again["id"], id);
    c.keeps = false;
    c.w.advance(Duration::from_secs(61));
    c.go();
    assert_eq!((c.all_works(), c.tasks().len(), c.stored()), (vec![remove("b")], 1, 1));
}

#[test]
fn the_schedule_of_all_pools_outlives_a_change_of_managers() {
    let mut c = Cluster::before();
    let option = "mgr/rbd_support/trash_purge_schedule".to_owned();
    let schedule = json!([{ "interval": "3h", "start_time": null }]).to_string();
    c.w.mon_sends(MConfig { options: [(option, schedule)].into() });
    c.mgr_map(77, Vec::new());
    c.go();
    c.in_charge(4_100);
    c.go();
    let (_, _, shown) = c.run(json!({ "prefix": "rbd trash purge schedule list" }));
    assert!(shown.contains("3h"), "{shown}");
}

#[test]
fn absurd_numbers_and_too_many_tasks_harm_their_pool_alone() {
    let (mut c, other, name) = Cluster::with_other();
    c.keep_task((other, ""), "FFFFFFFFFFFFFFFF", removal(u64::MAX, &name, "", "x"));
    c.keep_task((other, ""), "4000000000000000", removal(1 << 62, &name, "", "y"));
    c.in_charge(4_100);
    c.go();
    assert_eq!(c.all_works(), [remove("y")]);
    c.image("a", false);
    let own: Value = serde_json::from_str(&c.task("remove", "a").2).unwrap();
    assert_eq!(own["sequence"], 1);
    let there = json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/a") });
    let (code, _, told) = c.run(there.clone());
    let added: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &added["sequence"]), (0, &json!(2)), "the pool goes on as well");

    let (mut c, other, name) = Cluster::with_other();
    for n in 1..=1_100_u64 {
        c.keep_task((other, ""), &format!("{n:016X}"), removal(n, &name, "", &format!("i{n}")));
    }
    c.in_charge(4_100);
    c.go();
    c.image("a", false);
    assert_eq!(c.tasks().len(), 512, "the share of one of two namespaces");
    assert!(c.said.iter().any(|s| s.contains("more tasks on images than are looked at")));
    assert_eq!(c.run(there).0, -11, "its number may be another's");
    assert_eq!(c.task("remove", "a").0, 0);
    // When all is done that is known, the rest is looked at.
    for _ in 0..3 {
        while !c.works.is_empty() {
            c.over(Ok(Found::Nothing));
        }
        c.w.advance(Duration::from_secs(61));
        c.go();
    }
    assert_eq!((c.stored(), c.works.len()), (0, 0));
}

#[test]
fn a_pool_without_an_answer_holds_no_other() {
    let (mut c, other, name) = Cluster::with_other();
    c.silent = Some(other);
    c.in_charge(4_100);
    c.go();
    c.image("a", false);
    assert_eq!(c.task("remove", "a").0, 0);
    let add = json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/a") });
    let asked: Vec<u64> = (0..20).map(|_| c.ask(add.clone())).collect();
    c.go();
    assert_eq!(c.replies.len(), 4, "one session has sixteen");
    assert!(c.replies.values().all(|r| r.result == -11));
    c.replies.clear();
    for _ in 0..1_200 {
        c.w.advance(Duration::from_secs(1));
        c.go();
    }
    assert!(asked.iter().skip(16).all(|tid| !c.replies.contains_key(tid)) && c.replies.len() == 16);
    assert!(c.replies.values().all(|r| r.result == -11), "they do not wait for ever");
    assert!(c.unheard < 12, "{} jobs", c.unheard);
    // A list waits for it, but not for long.
    let tid = c.ask(json!({ "prefix": "rbd task list" }));
    c.go();
    assert!(!c.replies.contains_key(&tid));
    c.w.advance(Duration::from_secs(5));
    c.go();
    assert!(text(&c.replies[&tid]).contains("Removing image"));
}

#[test]
fn work_that_does_not_end_holds_no_other_pool() {
    let (mut c, _, name) = Cluster::with_other();
    c.in_charge(4_100);
    c.go();
    c.image("a", false);
    c.image("b", false);
    assert_eq!((c.task("remove", "a").0, c.task("remove", "b").0), (0, 0));
    assert_eq!(c.run(json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/b") })).0, 0);
    let first = *c.works.keys().next().unwrap();
    let go_on = |c: &mut Cluster, done| {
        c.w.advance(Duration::from_secs(20));
        c.w.input(Input::JobProgress { id: first, done, of: 1 << 40 });
        c.go();
    };
    go_on(&mut c, 1);
    go_on(&mut c, 2);
    assert_eq!(c.all_works(), [remove("a")], "one after the other");
    go_on(&mut c, 3);
    assert_eq!(c.all_works(), [remove("a"), remove("b")]);
    assert_ne!(c.works[&first].0, c.works.values().next_back().unwrap().0);
}

#[test]
fn what_may_be_kept_though_nobody_was_told_so_is_removed() {
    let mut c = Cluster::new();
    c.image("a", false);
    let name = c.name.clone();
    let tid = c.ask(json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/a") }));
    let look = c.w.sent().into_iter().find_map(|o| match o {
        Output::Job { id, job } => Some((id, job)),
        _ => None,
    });
    let (id, job) = look.unwrap();
    let result = c.perform(job);
    c.w.input(Input::JobDone { id, result });
    let keep = c.w.sent().into_iter().find_map(|o| match o {
        Output::Job { id, job: Job::Keep { space, object, key, value } } => {
            Some((id, space, object, key, value))
        }
        _ => None,
    });
    let (id, space, object, key, value) = keep.unwrap();
    c.kept.insert((space, object, key), value.unwrap());
    c.w.input(Input::JobDone { id, result: failed(Errno::EIO) });
    c.go();
    assert_eq!((c.replies[&tid].result, c.stored(), c.works.len()), (-5, 0, 0));
}

#[test]
fn schedules_are_for_whoever_has_rights_to_the_pool() {
    let mut c = Cluster::new();
    let ask = |c: &mut Cluster, num: u64, caps: &str, command: Value| {
        let conn = ConnId(num);
        c.w.input(Input::Connected { conn, peer: peer(EntityType::Client, num as i64, caps) });
        let r = c.w.command_as(conn, &command.to_string());
        r.map(|r| (r.result, text(&r).trim_end().to_owned()))
    };
    let level = format!("{}/", c.name);
    let change = |what: &str, level: &str| json!({ "prefix": format!("rbd trash purge schedule {what}"), "level_spec": level, "interval": "10m" });
    let show = |what: &str| json!({ "prefix": format!("rbd trash purge schedule {what}") });
    let (own, other) = (format!("profile rbd pool={}", c.name), "profile rbd pool=other");
    for (num, caps, command) in [
        (50, other, change("add", &level)),
        (51, other, change("remove", &level)),
        (52, other, json!({ "prefix": "rbd trash purge schedule list", "level_spec": level })),
        (53, &own, change("add", "")),
    ] {
        assert_eq!(ask(&mut c, num, caps, command.clone()).unwrap().0, -13, "{caps} {command}");
    }
    assert_eq!(ask(&mut c, 54, &own, change("add", &level)), None, "it is kept first");
    c.go();
    for (num, what) in [(55, "list"), (57, "status")] {
        let all = ask(&mut c, num, &own, show(what)).unwrap().1;
        let none = ask(&mut c, num + 1, other, show(what)).unwrap().1;
        assert!(all.contains(&c.name) && !none.contains(&c.name), "{all} {none}");
    }
}

#[test]
fn a_namespace_is_no_regular_expression() {
    let mut c = Cluster::new();
    c.w.message(osd_conn(0), MMgrOpen { daemon_name: "0".to_owned(), ..MMgrOpen::default() });
    let look = |spec: String| json!({ "prefix": "rbd perf image stats", "pool_spec": spec });
    assert_eq!(c.run(look(format!("{}/a.(b)", c.name))).0, 0);
    c.go();
    let queries = c.wishes.clone().unwrap().metric_queries(10).unwrap();
    let query = queries.into_keys().next().unwrap();
    assert_eq!(query.key[1].regex, r"^(a\.\(b\))$");
    assert_eq!(c.run(look(format!("{}/{}", c.name, "n".repeat(257)))).0, -22);
}
