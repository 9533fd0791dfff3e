//! Pools, lists of objects, snapshots, locks, commands.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use rados::{Cluster, Errno, Error, LockKind, LockRequest, PgId, ReadOp, SnapContext, SnapId, WriteOp};
use serde_json::{Value, json};

use crate::setup::{Bed, Server, make_pool, with_pool};

const LIMIT: Duration = Duration::from_secs(180);

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.expect_err("an error").errno()
}

#[test]
fn every_object_is_listed_once() {
    with_pool("list", LIMIT, |Bed { pool, .. }| async move {
        let names: BTreeSet<String> = (0..300).map(|i| format!("object-{i}")).collect();
        let pending: Vec<_> =
            names.iter().map(|n| pool.submit_write(n, WriteOp::new().write(0, "x"))).collect();
        for p in pending {
            p.await.expect("written");
        }
        let keyed = pool.with_namespace("other").with_locator("key");
        keyed.write("placed", 0, "x").await.expect("written");

        let mut seen = Vec::new();
        let mut list = pool.objects();
        while let Some(o) = list.next().await.expect("a page") {
            assert!(o.nspace.is_empty() && o.key.is_empty());
            seen.push(o.name);
        }
        assert_eq!(seen.len(), names.len());
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);

        let mut all = pool.objects().all_namespaces();
        let mut others = Vec::new();
        while let Some(o) = all.next().await.expect("a page") {
            others.extend((!o.nspace.is_empty()).then_some((o.nspace, o.name, o.key)));
        }
        assert_eq!(others, [("other".to_owned(), "placed".to_owned(), "key".to_owned())]);

        // Slices divide the pool.
        let mut sliced = Vec::new();
        for n in 0..7 {
            let (begin, end) = pool.slice(n, 7);
            let mut list = pool.objects_between(begin, end);
            while let Some(o) = list.next().await.expect("a page") {
                sliced.push(o.name);
            }
        }
        assert_eq!(sliced.len(), names.len());
        assert_eq!(sliced.into_iter().collect::<BTreeSet<_>>(), names);
    });
}

#[test]
fn pool_snapshots() {
    with_pool("poolsnap", LIMIT, |Bed { pool, .. }| async move {
        pool.write_full("o", "before").await.expect("write");
        pool.create_snap("one").await.expect("snap");
        assert_eq!(errno(pool.create_snap("one").await), Errno::EEXIST);
        assert_eq!(errno(pool.create_self_managed_snap().await), Errno::EINVAL);
        pool.write_full("o", "after it").await.expect("write");
        let snap = pool.snap_by_name("one").expect("the snapshot in the map");
        assert_eq!(pool.at_snap(snap).read("o", 0, 100).await.expect("read"), "before");
        assert_eq!(errno(pool.at_snap(snap).write_full("o", "x").await), Errno::EROFS);
        assert_eq!(pool.read("o", 0, 100).await.expect("read"), "after it");
        let snaps = pool.list_snaps("o").await.expect("clones");
        assert_eq!(snaps.clones.len(), 2);
        pool.rollback("o", snap).await.expect("rollback");
        assert_eq!(pool.read("o", 0, 100).await.expect("read"), "before");
        pool.remove_snap("one").await.expect("removed");
        assert_eq!(errno(pool.remove_snap("one").await), Errno::ENOENT);
        assert_eq!(pool.snaps(), []);
    });
}

#[test]
fn self_managed_snapshots() {
    with_pool("ownsnap", LIMIT, |Bed { pool, .. }| async move {
        pool.write_full("o", "first").await.expect("write");
        let one = pool.create_self_managed_snap().await.expect("snap");
        let two = pool.create_self_managed_snap().await.expect("snap");
        assert!(two > one);
        let at = |snaps: &[SnapId]| {
            let ids: Vec<u64> = snaps.iter().map(|s| s.0).collect();
            pool.with_snap_context(SnapContext { seq: ids[0], snaps: ids }).expect("in order")
        };
        at(&[one]).write_full("o", "second").await.expect("write");
        at(&[two, one]).write_full("o", "third").await.expect("write");
        for (snap, want) in [(one, "first"), (two, "second"), (SnapId::HEAD, "third")] {
            assert_eq!(pool.at_snap(snap).read("o", 0, 100).await.expect("read"), want);
        }
        let snaps = pool.list_snaps("o").await.expect("clones");
        assert_eq!(snaps.clones.iter().map(|c| c.clone).collect::<Vec<_>>(), [one, two, SnapId::HEAD]);
        at(&[two, one]).rollback("o", one).await.expect("rollback");
        assert_eq!(pool.read("o", 0, 100).await.expect("read"), "first");
        pool.remove_self_managed_snap(one).await.expect("removed");
        assert_eq!(errno(pool.create_snap("x").await), Errno::EINVAL);
    });
}

#[test]
fn locks() {
    with_pool("lock", LIMIT, |Bed { pool, server, .. }| async move {
        let other = Cluster::connect(server.config()).await.expect("another client");
        let theirs = other.pool_by_id(pool.pool_id()).await.expect("the pool");
        let mine = LockRequest { description: "me", ..LockRequest::exclusive("l", "c1") };
        pool.lock("o", &mine).await.expect("locked");
        assert_eq!(errno(pool.lock("o", &mine).await), Errno::EEXIST);
        pool.lock("o", &LockRequest { may_renew: true, ..mine.clone() }).await.expect("renewed");
        assert_eq!(errno(theirs.lock("o", &LockRequest::exclusive("l", "c2")).await), Errno::EBUSY);
        let info = theirs.lock_info("o", "l").await.expect("info");
        assert_eq!((info.kind, info.holders.len()), (Some(LockKind::Exclusive), 1));
        let holder = &info.holders[0];
        assert_eq!((holder.client.num as u64, holder.cookie.as_str()), (pool.cluster().global_id(), "c1"));
        assert_eq!(holder.description, "me");
        assert_eq!(theirs.list_locks("o").await.expect("names"), ["l"]);
        theirs.break_lock("o", "l", holder.client, "c1").await.expect("broken");
        assert_eq!(errno(pool.unlock("o", "l", "c1").await), Errno::ENOENT);
        for (client, cookie) in [(&pool, "a"), (&theirs, "b")] {
            client.lock("o", &LockRequest::shared("s", cookie, "tag")).await.expect("shared");
        }
        assert_eq!(pool.lock_info("o", "s").await.expect("info").holders.len(), 2);
        theirs.unlock("o", "s", "b").await.expect("released");
        assert_eq!(pool.lock_info("o", "s").await.expect("info").tag, "tag");
    });
}

#[test]
fn pools_come_and_go() {
    with_pool("pools", LIMIT, |Bed { cluster, pool, .. }| async move {
        assert_eq!(errno(cluster.pool("no such pool").await), Errno::ENOENT);
        let name = format!("{}-second", pool.pool_name().expect("its name"));
        let second = cluster.create_pool(&name).await.expect("made");
        assert_eq!(errno(cluster.create_pool(&name).await), Errno::EEXIST);
        second.enable_application("rados", false).await.expect("enabled");
        second.set_application_metadata("rados", "owner", "tests").await.expect("set");
        let metadata = second.application_metadata("rados").expect("metadata");
        assert_eq!(metadata.get("owner").map(String::as_str), Some("tests"));
        second.remove_application_metadata("rados", "owner").await.expect("removed");
        assert_eq!(second.applications(), ["rados"]);
        assert!(cluster.pools().iter().any(|(id, n)| *id == second.pool_id() && *n == name));
        second.write("o", 0, "x").await.expect("write");
        let stats = cluster.pool_stats(&[&name]).await.expect("statistics");
        assert!(stats.contains_key(&name), "{stats:?}");
        // As soon as the manager has heard from the OSDs; LIMIT ends it.
        while cluster.stat(None).await.expect("statistics").kib == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let allow =
            json!({"prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": "true"});
        cluster.mon_command(&allow.to_string(), Bytes::new()).await.expect("allowed");
        cluster.delete_pool(&name).await.expect("removed");
        assert_eq!(errno(cluster.pool(&name).await), Errno::ENOENT);
        // What is aimed at a pool that is gone ends.
        assert_eq!(errno(second.read("o", 0, 1).await), Errno::ENOENT);
        assert_eq!(errno(second.watch("o", None).await), Errno::ENOENT);
    });
}

#[test]
fn commands_reach_every_kind_of_daemon() {
    with_pool("commands", LIMIT, |Bed { cluster, pool, .. }| async move {
        let json = |output: Bytes| serde_json::from_slice::<Value>(&output).expect("JSON");
        let dump = r#"{"prefix": "osd dump", "format": "json"}"#;
        let out = cluster.mon_command(dump, Bytes::new()).await.expect("a monitor's command");
        assert_eq!(json(out.output)["fsid"], json!(cluster.fsid().to_string()));
        let unknown = cluster.mon_command(r#"{"prefix": "no such command"}"#, Bytes::new()).await;
        assert!(matches!(&unknown, Err(Error::Command { errno: Errno::EINVAL, .. })), "{unknown:?}");
        let version = r#"{"prefix": "version", "format": "json"}"#;
        let out = cluster.osd_command(0, version, Bytes::new()).await.expect("an OSD's command");
        assert!(json(out.output)["version"].is_string());
        assert_eq!(errno(cluster.osd_command(999, version, Bytes::new()).await), Errno::ENOENT);
        let out = cluster.mgr_command(r#"{"prefix": "pg dump_pools_json"}"#, Bytes::new()).await;
        assert!(!out.expect("a manager's command").output.is_empty());
        let pg = PgId::new(pool.pool_id(), 0);
        let query = json!({"prefix": "pg", "cmd": "query", "pgid": pg.to_string()}).to_string();
        let out = cluster.pg_command(pg, &query, Bytes::new()).await.expect("a PG's command");
        assert!(json(out.output)["state"].is_string());
    });
}

#[test]
fn a_wrong_key_and_a_dead_address_are_told() {
    let server = Server::get();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut config = server.config();
        config.name = rados::AuthName::new(rados::EntityType::Client, "nobody");
        let refused = Cluster::connect(config).await.expect_err("nobody is not let in");
        assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
        let mut config = server.config();
        config.monitors = rados::parse_mon_host("127.0.0.1:1").expect("an address");
        config.connect_timeout = Duration::from_secs(1);
        let lost = Cluster::connect(config).await.expect_err("nobody listens");
        assert!(matches!(lost, Error::Unreachable { .. }), "{lost:?}");
    });
}

#[test]
fn a_dropped_cluster_ends_what_waits_on_it() {
    let server = Server::get();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let cluster = Cluster::connect(server.config()).await.expect("connected");
        let pool = make_pool(&cluster, &format!("rados-test-drop-{}", std::process::id())).await;
        // Nobody acknowledges: the notify waits for as long as it may.
        pool.create("o", false).await.expect("made");
        let watch = pool.watch("o", None).await.expect("watched");
        let pending = pool.submit_read("o", ReadOp::new().stat());
        let config = pool.cluster().clone();
        drop((cluster, config, watch, pool));
        let ended = pending.await;
        assert!(matches!(ended, Ok(_) | Err(Error::ShutDown)), "{ended:?}");
        let again = Cluster::connect(server.config()).await.expect("connected");
        let allow =
            json!({"prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": "true"});
        again.mon_command(&allow.to_string(), Bytes::new()).await.expect("allowed");
        again.delete_pool(&format!("rados-test-drop-{}", std::process::id())).await.expect("removed");
    });
}
