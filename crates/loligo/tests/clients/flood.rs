//! What a hostile client with an ordinary key does to real daemons: each flood in turn, while another client
//! writes.

mod attacks;
mod peer;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rados::{Config, Find, Method, WriteOp};
use runtime::Clock;
use runtime::session::SharedAuth;
use tokio::runtime::{Builder, Runtime};
use types::{AuthName, EntityType};

use crate::cluster::{Cluster, asked, until};
use attacks::{Flood, LARGE, LARGE_BYTES, Target};
use watch::{Bystander, Latency, Memory, resident};

/// What each OSD tries to stay within.
const TARGET_BYTES: u64 = 256 << 20;
/// Two requests of the largest kind.
const REQUESTS_BYTES: u64 = 512 << 20;

/// How often a flood is tried that does not come through, each time for longer: on a busy machine a login
/// alone may take seconds. And how often one that does, before the other client's writes are called slow.
const ROUNDS: usize = 8;
/// How much slower the writes of another client may be than before the flood, and what is quick in any case.
/// That is held against an optimised build on a machine of its own, in the soak: with other work there,
/// daemons that have much to do get no processor, and idle ones do.
const TIMES_SLOWER: u32 = 10;
const QUICK: Duration = Duration::from_millis(100);

/// No write takes so long, however busy the machine is.
const SLOWEST: Duration = Duration::from_secs(30);

/// Seconds of each flood, as the soak says.
fn named_length() -> Option<Duration> {
    let named = std::env::var("LOLIGO_FLOOD_SECONDS").ok();
    named.and_then(|s| s.parse().ok()).map(Duration::from_secs)
}

/// The floods that are run: all, or those that `LOLIGO_FLOODS` names, as `Unread,Notifies`.
fn named_floods() -> Vec<Flood> {
    let named = std::env::var("LOLIGO_FLOODS").unwrap_or_default();
    let is_named = |flood: &Flood| named.is_empty() || named.split(',').any(|n| n == format!("{flood:?}"));
    Flood::ALL.into_iter().filter(is_named).collect()
}

fn is_soak() -> bool {
    named_length().is_some()
}

fn length() -> Duration {
    named_length().unwrap_or(Duration::from_secs(3))
}

fn client(c: &Cluster, name: &str) -> Config {
    let keyring = c.dir.path().join(name);
    let find = Find {
        conf: Some(c.data().join("ceph.conf")),
        name: Some(AuthName::new(EntityType::Client, name)),
        keyring: Some(keyring),
        ..Find::default()
    };
    Config::find(&find).expect("a configuration")
}

fn key(c: &Cluster, name: &str) {
    let entity = format!("client.{name}");
    let caps = ["mon", "allow r", "osd", "allow rw pool=p"];
    let key = c.ok("ceph", &[&["auth", "get-or-create", &entity], &caps[..]].concat());
    std::fs::write(c.dir.path().join(name), key).expect("written");
}

/// The hostile client, with what it has prepared.
async fn prepare(c: &Cluster) -> Arc<Target> {
    let config = client(c, "evil");
    let auth = SharedAuth::new(
        Method::Cephx,
        config.name.clone(),
        config.key.clone().expect("a key"),
        EntityType::Client,
    );
    let mon = *config.monitors.first().expect("a monitor");
    let cluster = rados::Cluster::connect(config).await.expect("connected");
    let pool = cluster.pool("p").await.expect("the pool");
    for name in LARGE {
        let entry = |nr: u32| (Bytes::copy_from_slice(&nr.to_be_bytes()), Bytes::from(vec![1; 2_048]));
        let op = WriteOp::new().write_full(vec![7; LARGE_BYTES]).omap_set((0..1_000).map(entry).collect());
        pool.write_op(name, op).await.expect("written");
    }
    let target = Target {
        clock: Clock::start(),
        auth,
        mon,
        map: cluster.map(),
        pool: pool.pool_id(),
        fsid: cluster.fsid(),
        done: AtomicU64::new(0),
    };
    target.to_mon().await.expect("a login");
    Arc::new(target)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// What daemons may have resident: OSDs their target and a fifth, others what they had; and two requests of
/// the largest kind.
fn bound(daemon: &str, quiet: u64) -> u64 {
    let usual = if daemon.starts_with("osd.") { TARGET_BYTES.max(quiet) } else { quiet };
    usual + usual / 5 + REQUESTS_BYTES
}

/// What they may have a minute after: a fifth more than before, and caches within the target.
fn settled(daemon: &str, quiet: u64) -> u64 {
    let least = if daemon.starts_with("osd.") { TARGET_BYTES } else { 64 << 20 };
    let usual = least.max(quiet);
    usual + usual / 5
}

#[test]
fn floods_of_a_hostile_client_fill_no_daemon_and_stop_no_other() {
    let c = Cluster::start(&["--processes", "--osds", "3"]);
    c.loligo(&["down"]);
    let conf = c.data().join("ceph.conf");
    let text = std::fs::read_to_string(&conf).expect("ceph.conf");
    std::fs::write(&conf, format!("{text}\n[osd]\nosd_memory_target = {TARGET_BYTES}\n")).expect("written");
    c.up(&["--processes"]);
    c.pool("p", 8);
    key(&c, "evil");
    key(&c, "honest");
    let pids = c.pids();
    // Each on a thread of its own: the hostile client's work is not what the other waits for.
    let (honest, hostile) = (one_thread(), one_thread());
    honest.block_on(floods(&c, &pids, &hostile));
    hostile.shutdown_background();
    assert_eq!(c.pids(), pids, "nobody died");
}

/// Waits until OSDs have nothing left of clients that are gone: it would be called slow, and would have no
/// end.
fn released(c: &Cluster) {
    let left = |osd: u32| {
        let pools = asked(&c.data().join(format!("ceph-osd.{osd}.asok")), "dump_mempools");
        pools["mempool"]["by_pool"]["client_ops"]["items"].as_u64()
    };
    // The other client's goes on.
    until("what is left of clients that are gone", || (0..3).all(|osd| left(osd).is_some_and(|n| n <= 1)));
}

fn one_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn floods(c: &Cluster, pids: &[(String, u32)], hostile: &Runtime) {
    let target = prepare(c).await;
    let cluster = rados::Cluster::connect(client(c, "honest")).await.expect("connected");
    let bystander = Bystander::start(cluster.pool("p").await.expect("the pool"));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let quiet: Vec<u64> = pids.iter().map(|(_, pid)| resident(*pid)).collect();
    let memory = Memory::of(pids.iter().map(|(_, pid)| *pid).collect());
    let report = |what: &str, l: Latency, most: &[u64]| {
        let most: Vec<String> =
            pids.iter().zip(most).map(|((name, _), bytes)| format!("{name} {}", mib(*bytes))).collect();
        println!(
            "{what}: {} writes, p50 {:?}, p99 {:?}, longest {:?}; MiB: {}",
            l.writes,
            l.p50,
            l.p99,
            l.longest,
            most.join(", ")
        );
    };
    report("quiet", bystander.take(), &quiet);
    let floods = named_floods();
    assert!(!floods.is_empty(), "LOLIGO_FLOODS names none");
    for flood in floods {
        let mut fared = Vec::new();
        let mut lasts = length();
        loop {
            bystander.take();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(bystander.writes(SLOWEST).await, "before {flood:?}: nothing is written");
            let before = bystander.take();
            flood.run(hostile.handle(), &target, lasts).await;
            assert!(bystander.writes(SLOWEST).await, "{flood:?}: nothing is written");
            let (latency, most) = (bystander.take(), memory.take());
            let done = target.done.swap(0, Ordering::Relaxed);
            report(&format!("{flood:?} ({done} attempts; before {:?})", before.p99), latency, &most);
            assert!(latency.longest < SLOWEST, "{flood:?}: {latency:?}");
            for ((name, _), (most, quiet)) in pids.iter().zip(most.iter().zip(&quiet)) {
                assert!(*most <= bound(name, *quiet), "{flood:?}: {name} had {} MiB resident", mib(*most));
            }
            if flood == Flood::UnknownMaps {
                released(c);
            }
            let is_quick = !is_soak() || latency.p99 <= QUICK.max(before.p99 * TIMES_SLOWER);
            if done > 0 && is_quick {
                break;
            }
            fared.push((done, before.p99, latency));
            assert!(fared.len() < ROUNDS, "{flood:?}; attempts, 99th percentile before, in it: {fared:?}");
            if done == 0 {
                // A daemon that is busy with the flood before may let nobody in for a while.
                lasts += length();
            }
        }
    }
    let began = Instant::now();
    for ((name, pid), quiet) in pids.iter().zip(&quiet) {
        while resident(*pid) > settled(name, *quiet) {
            let limit = Duration::from_secs(60);
            assert!(began.elapsed() < limit, "{name} keeps {} MiB", mib(resident(*pid)));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    println!("settled after {:?}", began.elapsed());
    c.healthy();
    assert_eq!(bystander.end().await, Vec::<String>::new());
}
