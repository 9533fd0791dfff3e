//! Background work on images by our manager: `ceph rbd task`, `rbd trash purge schedule`, `rbd perf image`.

use serde_json::{Value, json};

use crate::cluster::{Cluster, binary, text, until};
use crate::managers::answer;

/// Has an image removed while it is open, sees that this is tried again, and cancels it.
const KEEPS_OPEN: &str = r#"
import json, os, rados, rbd
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('images'); image = rbd.Image(io, 'open')
ask = lambda **command: r.mgr_command(json.dumps(command), b'')
assert ask(prefix='rbd task add remove', image_spec='images/open')[0] == 0
tasks = []
while not tasks or 'retry_message' not in tasks[0]:
    tasks = json.loads(ask(prefix='rbd task list')[1])
print(json.dumps(tasks[0]))
assert ask(prefix='rbd task cancel', task_id=tasks[0]['id'])[0] == 0
image.close()
"#;

/// Opens the first image in the trash, has its entry say that it is being removed, and waits until the rest
/// is gone: what the entry says then. Source: TrashImageState.
const IS_BEING_REMOVED: &str = r#"
import os, rados, rbd, struct, time
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('images')
trash = lambda: sorted(entry['id'] for entry in rbd.RBD().trash_list(io))
first = trash()[0]; image = rbd.Image(io, image_id=first)
name = struct.pack('<I', len(first)) + first.encode()
io.execute('rbd_trash', 'rbd', 'trash_state_set', name + bytes([2, 0]))
until = time.time() + 150
while len(trash()) > 1 and time.time() < until:
    time.sleep(0.2)
assert trash() == [first]
print(io.execute('rbd_trash', 'rbd', 'trash_get', name)[1][-1])
image.close()
"#;

/// Takes the list of children out of an image's header, beside their number: it forgets no child then.
const LOSES_CHILDREN: &str = r#"
import os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('images')
with rados.ReadOpCtx() as op:
    found, _ = io.get_omap_vals(op, '', 'snap_children_', 10)
    io.operate_read_op(op, sys.argv[1])
    (key, value), = list(found)
with rados.WriteOpCtx() as op:
    io.remove_omap_keys(op, (key,))
    io.operate_write_op(op, sys.argv[1])
print(key, value.hex())
"#;

/// Puts it back.
const HAS_CHILDREN: &str = r#"
import os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('images')
with rados.WriteOpCtx() as op:
    io.set_omap(op, (sys.argv[2],), (bytes.fromhex(sys.argv[3]),))
    io.operate_write_op(op, sys.argv[1])
"#;

/// Has an image removed, and cancels that when it has come some way.
const ENDS_HALFWAY: &str = r#"
import json, os, rados, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
ask = lambda **command: r.mgr_command(json.dumps(command), b'')
assert ask(**json.loads(sys.argv[1]))[0] == 0
tasks = json.loads(ask(prefix='rbd task list')[1])
while tasks[0].get('progress', 0) == 0:
    tasks = json.loads(ask(prefix='rbd task list')[1])
assert ask(prefix='rbd task cancel', task_id=tasks[0]['id'])[0] == 0
while tasks:
    tasks = json.loads(ask(prefix='rbd task list')[1])
"#;

/// Puts an entry for an image into the trash that the directory has as well, as if a user had moved it there.
const PUTS_INTO_THE_TRASH: &str = r#"
import os, rados, struct, sys
r = rados.Rados(conffile=os.environ['CEPH_CONF']); r.connect()
io = r.open_ioctx('images')
text = lambda t: struct.pack('<I', len(t)) + t.encode()
spec = b'\0' + text('used') + bytes(16) + b'\0'
io.execute('rbd_trash', 'rbd', 'trash_add', text(sys.argv[1]) + struct.pack('<BBI', 2, 1, len(spec)) + spec)
"#;

fn with_pool() -> Cluster {
    let c = Cluster::start(&[]);
    c.managed();
    c.ceph("osd pool create images 8");
    c.ceph("osd pool application enable images rbd");
    c
}

fn no_tasks(c: &Cluster) {
    until("no tasks", || answer(c, "rbd task list").as_array().is_some_and(Vec::is_empty));
}

/// As Ceph's module keeps it while the task waits, and as librbd finds the image when it is done.
#[test]
fn images_are_flattened_and_removed_in_the_background() {
    let c = with_pool();
    c.ok("rbd", &["create", "images/parent", "--size", "32M"]);
    c.ok("rbd", &["bench", "images/parent", "--io-type", "write", "--io-total", "4M", "--io-size", "256K"]);
    c.ok("rbd", &["snap", "create", "images/parent@s"]);
    c.ok("rbd", &["snap", "protect", "images/parent@s"]);
    c.ok("rbd", &["clone", "images/parent@s", "images/child"]);
    let sum = |image: &str| c.ok("sh", &["-c", &format!("rbd export --no-progress {image} - | md5sum")]);
    let before = sum("images/child");
    let task: Value = serde_json::from_str(&c.ceph("rbd task add flatten images/child")).expect("JSON");
    assert_eq!(task["message"], "Flattening image images/child");
    no_tasks(&c);
    let info = c.ok("rbd", &["info", "images/child"]);
    assert!(!info.contains("parent:"), "{info}");
    assert_eq!(sum("images/child"), before);
    c.ok("rbd", &["snap", "unprotect", "images/parent@s"]);
    let (code, said) = c.fails("ceph", &["rbd", "task", "add", "remove", "images/parent"]);
    assert_eq!(code, 16, "{said}");

    // What is open elsewhere is tried again; when it is cancelled, nothing is kept of it.
    c.ok("rbd", &["create", "images/open", "--size", "8M"]);
    let out = c.python(KEEPS_OPEN, &[]);
    assert!(out.status.success(), "{}", text(&out));
    let waited: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let why = waited["retry_message"].as_str().unwrap_or_default();
    assert!(why.starts_with("[errno 16] RBD image is busy"), "{waited}");
    assert_eq!((&waited["sequence"], &waited["retry_attempts"]), (&json!(2), &json!(1)));
    assert_eq!(c.ok("rados", &["-p", "images", "listomapkeys", "rbd_task"]), "");

    c.ok("rbd", &["trash", "mv", "images/open"]);
    let id = c.ok("rbd", &["trash", "ls", "images"]).split_whitespace().next().expect("an id").to_owned();
    c.ceph(&format!("rbd task add trash remove images/{id}"));
    c.ceph("rbd task add remove images/child");
    no_tasks(&c);
    assert_eq!(c.ok("rbd", &["trash", "ls", "images"]), "");
    assert_eq!(c.ok("rbd", &["ls", "images"]), "parent\n");
    let over = answer(&c, "progress json");
    let failed = over["completed"].as_array().into_iter().flatten().filter(|e| e["failed"] == true).count();
    assert_eq!(failed, 1, "{over}");
}

/// A task outlives its manager, and the client of the one that lost its place is shut out.
#[test]
fn the_next_manager_goes_on_with_tasks() {
    let c = with_pool();
    c.ok("rbd", &["create", "images/late", "--size", "8M"]);
    let key = "0000000000000005";
    let info: Value =
        serde_json::from_str(&c.ok("rbd", &["info", "images/late", "--format", "json"])).expect("JSON");
    let refs = json!({
        "action": "remove", "pool_name": "images", "pool_namespace": "", "image_name": "late",
        "image_id": info["id"],
    });
    let task = json!({ "sequence": 5, "id": "t", "message": "Removing image images/late", "refs": refs });
    // Nothing is taken from the pool before the monitors know the client that looks after images, and the
    // manager may learn of the pool later than the monitors say that it is there.
    until("a client of the manager's", || {
        answer(&c, "mgr dump")["active_clients"][0]["name"] == "rbd_support"
    });
    let client = answer(&c, "mgr dump")["active_clients"][0].clone();
    c.ok("rados", &["-p", "images", "setomapval", "rbd_task", key, &task.to_string()]);
    c.ceph("mgr fail");
    until("the end of the image", || c.ok("rbd", &["ls", "images"]).is_empty());
    until("the end of its task", || c.ok("rados", &["-p", "images", "listomapkeys", "rbd_task"]).is_empty());
    let nonce = client["addrvec"][0]["nonce"].to_string();
    let blocked = c.ceph("osd blocklist ls");
    assert!(blocked.contains(&format!("/{nonce}")), "{client}: {blocked}");
}

/// An image in the trash whose parent cannot be opened keeps its header: its data would never be found.
#[test]
fn an_image_in_the_trash_without_its_parent_stays() {
    let c = with_pool();
    c.ok("rbd", &["create", "images/parent", "--size", "8M"]);
    c.ok("rbd", &["snap", "create", "images/parent@s"]);
    c.ok("rbd", &["snap", "protect", "images/parent@s"]);
    c.ok("rbd", &["clone", "images/parent@s", "images/child"]);
    let (parent, child) = (id_of(&c, "images/parent"), id_of(&c, "images/child"));
    c.ok("rbd", &["trash", "mv", "images/child"]);
    c.ok("rados", &["-p", "images", "rm", &format!("rbd_header.{parent}")]);
    c.ceph(&format!("rbd task add trash remove images/{child}"));
    no_tasks(&c);
    c.ok("rados", &["-p", "images", "stat", &format!("rbd_header.{child}")]);
    assert!(c.ok("rbd", &["trash", "ls", "images"]).contains(&child));
}

/// Whoever else is removing an image may have removed data: it is not made restorable.
#[test]
fn a_purge_passes_over_what_is_being_removed() {
    let c = with_pool();
    for image in ["a", "b"] {
        c.ok("rbd", &["create", &format!("images/{image}"), "--size", "8M"]);
        c.ok("rbd", &["trash", "mv", &format!("images/{image}")]);
    }
    c.ok("rbd", &["trash", "purge", "schedule", "add", "1m"]);
    let out = c.python(IS_BEING_REMOVED, &[]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(text(&out).trim(), "2");
}

fn id_of(c: &Cluster, image: &str) -> String {
    let info: Value = serde_json::from_str(&c.ok("rbd", &["info", image, "--format", "json"])).expect("JSON");
    info["id"].as_str().expect("an id").to_owned()
}

/// Whatever ends a removal halfway, nobody gets an image without its data; another removal goes on with it.
#[test]
fn what_is_removed_halfway_is_not_restored() {
    let c = with_pool();
    // Without an object map every object is looked for: it takes a while.
    let make = |image: &str| {
        c.ok("rbd", &["create", image, "--size", "100G", "--image-feature", "layering"]);
        c.ok("rbd", &["bench", image, "--io-type", "write", "--io-total", "1M", "--io-size", "256K"]);
        id_of(&c, image)
    };
    let halfway = |command: Value| {
        let out = c.python(ENDS_HALFWAY, &[&command.to_string()]);
        assert!(out.status.success(), "{}", text(&out));
    };
    let (a, b) = (make("images/a"), make("images/b"));
    c.ok("rbd", &["trash", "mv", "images/a"]);
    halfway(json!({ "prefix": "rbd task add trash remove", "image_id_spec": format!("images/{a}") }));
    let (code, said) = c.fails("rbd", &["trash", "restore", "--pool", "images", &a]);
    assert_eq!(code, 16, "{said}");
    // What goes on with it does not begin anew.
    let left = c.ok("rbd", &["info", "--pool", "images", "--image-id", &a, "--format", "json"]);
    let left: Value = serde_json::from_str(&left).expect("JSON");
    assert!(left["size"].as_u64().is_some_and(|size| (1 << 22..100 << 30).contains(&size)), "{left}");
    halfway(json!({ "prefix": "rbd task add remove", "image_spec": "images/b" }));
    // librbd lists what is removed halfway, so that somebody goes on with it; by its name nobody opens it.
    assert_eq!(c.ok("rbd", &["ls", "images"]), "b\n");
    assert_eq!(c.fails("rbd", &["info", "images/b"]).0, 2);
    assert_eq!(c.ok("rados", &["-p", "images", "listomapkeys", "rbd_directory"]), "");
    let (code, said) = c.fails("rbd", &["trash", "restore", "--pool", "images", &b]);
    assert_ne!(code, 0, "{said}");
    // Both end when somebody wants it, by whatever they are called.
    c.ceph(&format!("rbd task add trash remove images/{a}"));
    c.ok(&binary().display().to_string(), &["rbd", "rm", "images/b"]);
    no_tasks(&c);
    assert_eq!(c.ok("rbd", &["trash", "ls", "--all", "--pool", "images"]), "");
    let left = c.ok("rados", &["-p", "images", "ls"]);
    assert!(!left.contains("rbd_data") && !left.contains("rbd_header"), "{left}");
}

/// A flatten that ends before the parent has forgotten its child leaves a child that needs no parent, and
/// another one ends it.
#[test]
fn a_flatten_that_is_broken_off_is_ended_by_another() {
    let c = with_pool();
    let bench = |image: &str| {
        c.ok("rbd", &["bench", image, "--io-type", "write", "--io-total", "1M", "--io-size", "256K"])
    };
    c.ok("rbd", &["create", "images/parent", "--size", "8M"]);
    bench("images/parent");
    c.ok("rbd", &["snap", "create", "images/parent@s"]);
    let sum = |image: &str| c.ok("sh", &["-c", &format!("rbd export --no-progress {image} - | md5sum")]);
    let (before, header) = (sum("images/parent"), format!("rbd_header.{}", id_of(&c, "images/parent")));
    for (child, ends) in [("images/flat", "flatten"), ("images/gone", "remove")] {
        c.ok("rbd", &["clone", "--rbd-default-clone-format", "2", "images/parent@s", child]);
        let lost = c.python(LOSES_CHILDREN, &[&header]);
        assert!(lost.status.success(), "{}", text(&lost));
        c.ceph(&format!("rbd task add flatten {child}"));
        let tasks = || answer(&c, "rbd task list");
        until("a failure", || tasks()[0]["retry_message"].is_string());
        c.ceph(&format!("rbd task cancel {}", tasks()[0]["id"].as_str().expect("an id")));
        no_tasks(&c);
        assert!(!c.ok("rbd", &["info", child]).contains("parent:"), "{child}");
        let said = text(&lost);
        let (key, value) = said.trim().split_once(' ').expect("key and value");
        let out = c.python(HAS_CHILDREN, &[&header, key, value]);
        assert!(out.status.success(), "{}", text(&out));
        assert_eq!(sum(child), before);
        assert!(
            c.ok("rbd", &["children", "images/parent@s"]).contains(child),
            "the parent keeps what is shared"
        );
        c.ceph(&format!("rbd task add {ends} {child}"));
        no_tasks(&c);
        assert_eq!(c.ok("rbd", &["children", "images/parent@s"]), "");
    }
    assert_eq!(c.ok("rbd", &["image-meta", "ls", "images/flat", "--format", "json"]), "");
    c.ok("rbd", &["snap", "rm", "images/parent@s"]);
    c.ok("rbd", &["rm", "--no-progress", "images/parent"]);
    assert_eq!(sum("images/flat"), before);
}

/// What the trash names and the directory too is in use.
#[test]
fn an_image_with_a_name_is_not_removed_from_the_trash() {
    let c = with_pool();
    c.ok("rbd", &["create", "images/used", "--size", "8M"]);
    let id = id_of(&c, "images/used");
    let out = c.python(PUTS_INTO_THE_TRASH, &[&id]);
    assert!(out.status.success(), "{}", text(&out));
    assert!(c.ok("rbd", &["trash", "ls", "images"]).contains(&id));
    c.ceph(&format!("rbd task add trash remove images/{id}"));
    until("a refusal", || answer(&c, "rbd task list")[0]["retry_message"].is_string());
    let tasks = answer(&c, "rbd task list");
    let why = tasks[0]["retry_message"].as_str().unwrap_or_default();
    assert!(why.contains("[errno 16]") && why.contains("the image is used"), "{why}");
    c.ceph(&format!("rbd task cancel {}", tasks[0]["id"].as_str().expect("an id")));
    no_tasks(&c);
    assert_eq!(c.ok("rbd", &["ls", "images"]), "used\n");
    c.ok("rbd", &["bench", "images/used", "--io-type", "write", "--io-total", "256K", "--io-size", "256K"]);
}

#[test]
fn rbd_shows_how_much_images_are_used_and_empties_trash_on_time() {
    let c = with_pool();
    c.ok("rbd", &["create", "images/used", "--size", "64M"]);
    c.ceph("config set mgr mgr_stats_period 1");
    let bench = "bench images/used --io-type write --io-total 1G --io-size 64K --io-threads 1";
    let mut writer = std::process::Command::new("rbd")
        .args(bench.split(' '))
        .env("CEPH_CONF", c.data().join("ceph.conf"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("rbd runs");
    let shown = c.ok("rbd", &["perf", "image", "iostat", "images", "--iterations", "1", "--format", "json"]);
    let _ = writer.kill();
    let _ = writer.wait();
    assert!(shown.contains("\"image\":\"used\"") && shown.contains("\"write_bytes\""), "{shown}");
    let counted = answer(&c, "rbd perf image counters images write_bytes");
    let bytes = counted["counters"][0]["0/used"][2].as_u64().expect("a sum");
    assert!(bytes > 0 && bytes % (64 << 10) == 0, "{counted}");

    c.ok("rbd", &["trash", "purge", "schedule", "add", "--pool", "images", "1d", "14:00"]);
    c.ok("rbd", &["trash", "purge", "schedule", "add", "1m"]);
    let all = c.ok("rbd", &["trash", "purge", "schedule", "ls", "-R"]);
    assert!(all.contains("every 1d starting at 14:00:00") && all.contains("every 1m"), "{all}");
    let status = answer(&c, "rbd trash purge schedule status");
    assert!(status["scheduled"].is_array(), "{status}");
    c.ok("rbd", &["trash", "purge", "schedule", "rm", "--pool", "images"]);
    assert_eq!(c.ok("rados", &["-p", "images", "listomapkeys", "rbd_trash_purge_schedule"]), "");
}
