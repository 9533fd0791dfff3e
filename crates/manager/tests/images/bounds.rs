//! What one namespace, pool, schedule or cancelled task does to others and to later ones.

use std::time::Duration;

use crate::common::{OSDMAP, full_map, peer, text};
use bytes::Bytes;
use codec::{Decode, Encode};
use manager::Input;
use manager::job::{Found, Space, Work};
use maps::OsdMap;
use serde_json::json;
use types::{ConnId, EntityType, Epoch, Errno};

use crate::cluster::*;
/// A schedule for a level of the pool.
fn add_schedule(c: &mut Cluster, namespace: &str, interval: &str) {
    let level = format!("{}/{namespace}", c.name);
    let add = json!({ "prefix": "rbd trash purge schedule add", "level_spec": level, "interval": interval });
    assert_eq!(c.run(add).0, 0);
}

fn remove_schedule(c: &mut Cluster, namespace: &str) -> i32 {
    let level = format!("{}/{namespace}", c.name);
    c.run(json!({ "prefix": "rbd trash purge schedule remove", "level_spec": level })).0
}

/// Namespaces of trash that is being emptied.
fn purged(c: &Cluster) -> Vec<&str> {
    let purges = c.works.values().filter(|(_, work)| matches!(work, Work::TrashPurge { .. }));
    purges.map(|(space, _)| space.namespace.as_str()).collect()
}

fn wait(c: &mut Cluster, seconds: u64) {
    c.w.advance(Duration::from_secs(seconds));
    c.go();
}

#[test]
fn a_task_that_is_cancelled_while_the_client_starts_is_not_carried_out() {
    let mut c = Cluster::new();
    c.image("a", false);
    assert_eq!(c.task("remove", "a").0, 0);
    let id = c.tasks()[0]["id"].clone();
    let (job, _) = c.works.pop_first().unwrap();
    c.w.input(Input::JobDone { id: job, result: failed(Errno::ESHUTDOWN) });
    let start = start_in(&c.w.sent()).expect("another one");
    c.w.advance(Duration::from_secs(31));
    c.w.sent();
    let list = c.ask(json!({ "prefix": "rbd task list" }));
    let cancels = [0; 2].map(|_| c.ask(json!({ "prefix": "rbd task cancel", "task_id": id })));
    let mut answers = Vec::new();
    c.w.sent().into_iter().for_each(|o| c.take(o, &mut answers));
    assert!(text(&c.replies[&list]).contains("in_progress"), "it is begun");
    c.w.input(Input::Client { start, started: Ok(addrs(9)) });
    c.go();
    assert_eq!((c.all_works(), c.tasks(), c.stored()), (vec![], vec![], 0));
    assert_eq!(cancels.map(|tid| c.replies[&tid].result), [0, -2]);
    let over = c.events()["completed"].clone();
    assert_eq!(
        (over.as_array().unwrap().len(), &over[0]["failure_message"]),
        (1, &json!("Operation canceled"))
    );
    // The pool goes on.
    assert_eq!((c.task("remove", "a").0, c.all_works()), (0, vec![remove("a")]));
}

#[test]
fn the_event_of_a_task_that_is_cancelled_twice_ends_once() {
    let mut c = Cluster::new();
    c.image("a", false);
    assert_eq!(c.task("remove", "a").0, 0);
    let id = c.tasks()[0]["id"].clone();
    for _ in 0..2 {
        assert_eq!(c.run(json!({ "prefix": "rbd task cancel", "task_id": id })).0, 0);
    }
    assert_eq!(c.events()["completed"].as_array().unwrap().len(), 1);
}

#[test]
fn trash_that_is_due_stays_when_its_schedule_is_removed() {
    let mut c = Cluster::new();
    add_schedule(&mut c, "", "10m");
    c.go();
    wait(&mut c, 601);
    assert_eq!(purged(&c), [""], "one after the other");
    assert_eq!(remove_schedule(&mut c, ""), 0);
    c.over(Ok(Found::Nothing));
    wait(&mut c, 1_200);
    assert!(purged(&c).is_empty());
    // Another one's does not let go what was due before.
    add_schedule(&mut c, "", "30d");
    wait(&mut c, 61);
    assert!(purged(&c).is_empty());
}

/// An image of 2^62 bytes that has no object map goes in years.
#[test]
fn a_purge_that_does_not_end_is_stopped_and_goes_on_after_the_others() {
    let mut c = Cluster::new();
    add_schedule(&mut c, "", "100m");
    let next = |c: &mut Cluster| {
        while c.works.is_empty() {
            wait(c, 5);
        }
    };
    next(&mut c);
    let behind = |c: &Cluster| match c.works.values().next() {
        Some((space, Work::TrashPurge { behind, .. })) => Some((space.namespace.clone(), behind.clone())),
        _ => None,
    };
    let of = |namespace: &str, behind: &str| Some((namespace.to_owned(), behind.to_owned()));
    assert_eq!(behind(&c), of("", ""));
    wait(&mut c, 580);
    assert!(c.cancelled.is_empty());
    wait(&mut c, 20);
    assert_eq!(c.cancelled.iter().collect::<Vec<_>>(), c.works.keys().collect::<Vec<_>>());
    c.over(Ok(Found::Stopped { at: "7".to_owned() }));
    assert_eq!(behind(&c), of("ns", ""), "it was due before");
    c.over(Ok(Found::Nothing));
    assert_eq!(behind(&c), of("", "7"), "not behind the image that is too large");
    c.over(Ok(Found::Nothing));
    assert_eq!(behind(&c), None);
    next(&mut c);
    assert_eq!(behind(&c), of("", ""));
    // What is stopped when its schedule is gone does not go on.
    assert_eq!(remove_schedule(&mut c, ""), 0);
    c.over(Ok(Found::Stopped { at: "7".to_owned() }));
    wait(&mut c, 6_001);
    assert_eq!(behind(&c), None);
}

#[test]
fn trash_of_a_pool_that_is_not_for_images_any_more_stays() {
    let mut c = Cluster::new();
    add_schedule(&mut c, "", "10m");
    c.go();
    wait(&mut c, 601);
    assert_eq!(purged(&c), [""]);
    let mut map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).unwrap();
    map.epoch = Epoch(map.epoch.0 + 1);
    map.pools.values_mut().for_each(|p| drop(p.application_metadata.remove("rbd")));
    c.w.mon_sends(full_map(map.to_bytes()));
    c.go();
    c.over(Ok(Found::Nothing));
    wait(&mut c, 1_200);
    assert!(purged(&c).is_empty());
}

#[test]
fn a_schedule_ends_with_its_namespace() {
    let mut c = Cluster::new();
    let schedules = |c: &Cluster| c.kept.keys().filter(|(_, o, _)| *o == "rbd_trash_purge_schedule").count();
    for keeps in [false, true] {
        add_schedule(&mut c, "ns/", "10m");
        c.namespaces.clear();
        c.keeps = keeps;
        wait(&mut c, 61);
        assert_eq!(schedules(&c), usize::from(keeps), "a key that cannot be removed");
        c.namespaces = vec!["ns".to_owned()];
        for _ in 0..20 {
            wait(&mut c, 61);
        }
        assert!(purged(&c).is_empty(), "the later one of that name has none");
        c.keeps = false;
        wait(&mut c, 61);
        assert_eq!(schedules(&c), 0, "it is removed until it is gone");
    }
    // Before that is noticed somebody removes it.
    add_schedule(&mut c, "ns/", "10m");
    c.namespaces.clear();
    assert_eq!((remove_schedule(&mut c, "ns/"), schedules(&c)), (0, 0));
}

/// The names of a pool's namespaces may be so long that not all are looked at.
#[test]
fn a_schedule_stays_while_not_all_namespaces_are_known() {
    let mut c = Cluster::new();
    add_schedule(&mut c, "ns/", "10m");
    c.namespaces.insert(0, "long".to_owned());
    c.most_namespaces = 1;
    wait(&mut c, 130);
    let kept = |c: &Cluster| c.kept.keys().any(|(_, object, _)| *object == "rbd_trash_purge_schedule");
    assert!(kept(&c));
    let level = format!("{}/ns/", c.name);
    let add = json!({ "prefix": "rbd trash purge schedule add", "level_spec": level, "interval": "20m" });
    let (code, words, _) = c.run(add);
    assert!(code == -22 && words.contains("not among those"), "{words}");
    c.most_namespaces = usize::MAX;
    c.namespaces.retain(|n| n == "long");
    wait(&mut c, 130);
    assert!(!kept(&c), "it is not there");
}

#[test]
fn what_a_task_removes_from_the_trash_is_not_purged_meanwhile() {
    let mut c = Cluster::new();
    add_schedule(&mut c, "", "10m");
    c.go();
    assert_eq!(c.task("trash remove", "t1").0, 0);
    wait(&mut c, 601);
    let except = |c: &Cluster| {
        c.works.values().find_map(|(_, work)| match work {
            Work::TrashPurge { except, .. } => Some(except.clone()),
            _ => None,
        })
    };
    assert_eq!(except(&c), Some(["t1".to_owned()].into()));
    // What has failed for good may be asked for again; it is not begun while that trash is emptied.
    c.over(failed(Errno::ENOENT));
    assert_eq!((c.task("trash remove", "t1").0, c.tasks().len(), purged(&c)), (0, 1, vec![""]));
    assert_eq!(c.works.len(), 1, "{:?}", c.works);
    c.over(Ok(Found::Nothing));
    // Beside it the trash of the namespace is emptied, which is due as well: another trash of the same pool.
    let here: Vec<Work> =
        c.works.values().filter(|(s, _)| s.namespace.is_empty()).map(|(_, work)| work.clone()).collect();
    assert_eq!((here, purged(&c)), (vec![Work::TrashRemove { id: "t1".to_owned() }], vec!["ns"]));
    // The next purge of this trash spares it again.
    let other = *c.works.iter().find(|(_, (space, _))| space.namespace == "ns").unwrap().0;
    c.works.remove(&other);
    c.w.input(Input::JobDone { id: other, result: Ok(Found::Nothing) });
    wait(&mut c, 601);
    assert_eq!((purged(&c), except(&c)), (vec![""], Some(["t1".to_owned()].into())));
}

#[test]
fn one_namespace_does_not_keep_others_from_their_tasks() {
    let (mut c, other, name) = Cluster::with_other();
    c.namespaces = vec!["a".to_owned(), "z".to_owned()];
    for n in 1..=1_100_u64 {
        c.keep_task((other, "a"), &format!("{n:016X}"), removal(n, &name, "a", &format!("i{n}")));
    }
    c.keep_task((other, "z"), "0000000000002000", removal(0x2000, &name, "z", "last"));
    c.in_charge(4_100);
    c.go();
    let shown = c.tasks();
    assert_eq!(shown.len(), 1_024 / 3 + 1);
    assert!(shown.iter().any(|t| t["refs"]["image_name"] == "last"));
    c.image("b", false);
    for (space, code) in [("a/", -11), ("z/", 0), ("", 0)] {
        let add = json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/{space}b") });
        assert_eq!(c.run(add).0, code, "{space}");
    }
    // A namespace that has room again is read again, whatever others have left.
    while c.all_works() != [remove("last")] {
        c.over(Ok(Found::Nothing));
    }
    wait(&mut c, 61);
    assert!(c.tasks().len() > 100);
}

#[test]
fn what_namespaces_keep_does_not_keep_the_schedules_of_their_pool_from_being_read() {
    let mut c = Cluster::before();
    for n in 0..300 {
        let space = Space { pool: c.pool, namespace: "ns".to_owned() };
        c.kept.insert((space, "rbd_trash_purge_schedule", format!("{n:05}")), "{}".to_owned());
    }
    c.in_charge(4_100);
    c.go();
    add_schedule(&mut c, "ns/", "10m");
}

#[test]
fn nothing_is_purged_where_the_nearest_schedule_is_not_known() {
    let keep = |c: &mut Cluster, namespace: &str, schedule: &str| {
        let space = Space { pool: c.pool, namespace: String::new() };
        let key = format!("{}{namespace}", c.pool.0);
        c.kept.insert((space, "rbd_trash_purge_schedule", key), schedule.to_owned());
    };
    let every = |interval: &str| json!([{ "interval": interval, "start_time": null }]).to_string();
    let mut c = Cluster::before();
    keep(&mut c, "", &every("10m"));
    keep(&mut c, "/ns", "{");
    c.in_charge(4_100);
    c.go();
    wait(&mut c, 601);
    assert_eq!(purged(&c), [""]);
    c.over(Ok(Found::Nothing));
    assert!(purged(&c).is_empty(), "that one cannot be read");

    let mut c = Cluster::before();
    c.namespaces = (0..300).map(|n| format!("n{n:03}")).collect();
    keep(&mut c, "", &every("10m"));
    keep(&mut c, "/n000", &every("10m"));
    (1..300).for_each(|n| keep(&mut c, &format!("/n{n:03}"), &every("700d")));
    c.in_charge(4_100);
    c.go();
    wait(&mut c, 601);
    assert_eq!(purged(&c), ["n000"]);
    c.over(Ok(Found::Nothing));
    assert!(purged(&c).is_empty(), "not all schedules are read");
}

#[test]
fn an_image_that_cannot_be_changed_is_refused_at_once() {
    let mut c = Cluster::new();
    c.image("a", true);
    c.images.get_mut("a").unwrap().unfit = Some("has features: journaling".to_owned());
    for what in ["flatten", "remove"] {
        let (code, words, _) = c.task(what, "a");
        assert_eq!((code, words.contains("journaling"), c.stored()), (-95, true, 0), "{what}");
    }
}

/// However many sessions there are.
#[test]
fn commands_that_wait_for_one_pool_hold_none_for_others() {
    let (mut c, other, name) = Cluster::with_other();
    c.silent = Some(other);
    c.in_charge(4_100);
    c.go();
    c.image("a", false);
    let add = json!({ "prefix": "rbd task add remove", "image_spec": format!("{name}/a") }).to_string();
    let (mut waiting, mut refused) = (0, 0);
    for n in 100..120_i64 {
        let conn = ConnId(n.unsigned_abs());
        c.w.input(Input::Connected { conn, peer: peer(EntityType::Client, n, "allow *") });
        for _ in 0..16 {
            match c.w.command_as(conn, &add) {
                None => waiting += 1,
                Some(reply) => {
                    assert_eq!(reply.result, -11);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((waiting, refused), (64, 20 * 16 - 64));
    assert_eq!(c.task("remove", "a").0, 0, "another pool's is taken");
}

#[test]
fn an_id_that_two_tasks_have_cancels_neither() {
    let (mut c, other, name) = Cluster::with_other();
    let (pool, own) = (c.pool, c.name.clone());
    c.keep_task((pool, ""), "0000000000000001", removal(1, &own, "", "planted"));
    let mut genuine = removal(2, &name, "", "meant");
    genuine["id"] = json!("t1");
    c.keep_task((other, ""), "0000000000000002", genuine);
    c.in_charge(4_100);
    c.go();
    let cancel = json!({ "prefix": "rbd task cancel", "task_id": "t1" });
    let (code, words, _) = c.run(cancel.clone());
    assert_eq!((code, words.contains("more than one task"), c.tasks().len()), (-17, true, 2));
    // Whoever has rights to one of them means that one.
    let conn = ConnId(50);
    let caps = format!("profile rbd pool={name}");
    c.w.input(Input::Connected { conn, peer: peer(EntityType::Client, 50, &caps) });
    assert_eq!(c.w.command_as(conn, &cancel.to_string()), None, "its key is removed first");
    c.go();
    assert_eq!((c.tasks().len(), c.all_works()), (1, vec![remove("planted")]));
}

/// Whoever has rights to all pools can cancel each, whatever ids others have made up.
#[test]
fn an_id_that_two_tasks_have_is_told_apart_by_its_pool() {
    let (mut c, other, name) = Cluster::with_other();
    let (pool, own) = (c.pool, c.name.clone());
    let with_id = |task: serde_json::Value, id: &str| {
        let mut task = task;
        task["id"] = json!(id);
        task
    };
    c.keep_task((pool, "ns"), "0000000000000001", with_id(removal(1, &own, "ns", "planted"), "t"));
    c.keep_task((other, ""), "0000000000000002", with_id(removal(2, &name, "", "meant"), "t"));
    // What another's place and id would be together is no id.
    let copied = with_id(removal(3, &own, "", "copied"), &format!("{name}/t"));
    c.keep_task((pool, ""), "0000000000000003", copied);
    c.in_charge(4_100);
    c.go();
    assert_eq!(c.tasks().len(), 2);
    let cancel = |c: &mut Cluster, id: &str| c.run(json!({ "prefix": "rbd task cancel", "task_id": id }));
    let (code, words, _) = cancel(&mut c, "t");
    let both = [format!("{own}/ns/t"), format!("{name}/t")];
    assert!(code == -17 && both.iter().all(|id| words.contains(id)), "{words}");
    assert_eq!(cancel(&mut c, &format!("{own}/t")).0, -2, "none is there");
    assert_eq!(cancel(&mut c, &both[1]).0, 0);
    let left = c.tasks();
    assert_eq!((left.len(), &left[0]["refs"]["image_name"]), (1, &json!("planted")));
    let shown = c.run(json!({ "prefix": "rbd task list", "task_id": both[0] }));
    assert!(shown.0 == 0 && shown.2.contains("planted"), "{shown:?}");
}
