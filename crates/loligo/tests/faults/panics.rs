//! Daemons of one process that panic or cannot start: each is away alone and comes back, while the others go on serving.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::cluster::{Cluster, Writer, until};

/// Every event of an OSD that comes about by itself or can be brought about.
const OSD_EVENTS: &[&str] = &[
    "tick",
    "message",
    "committed",
    "osd-commit",
    "osd-checkpoint",
    "checkpointed",
    "authenticate",
    "connected",
    "gone",
    "admin",
    "ready",
];

fn plant(c: &Cluster, daemon: &str, event: &str) {
    let (file, fresh) = (c.dir.path().join("panics").join(daemon), c.dir.path().join("fresh"));
    std::fs::write(&fresh, event).and_then(|()| std::fs::rename(&fresh, &file)).expect("planted");
}

/// Asks a daemon over its socket, for an event; it may panic instead of an answer.
fn ask(c: &Cluster, daemon: &str) {
    let Ok(mut stream) = UnixStream::connect(c.data().join(format!("ceph-{daemon}.asok"))) else { return };
    let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(5)));
    let _ = stream.write_all(b"{\"prefix\": \"version\"}\0");
    let _ = stream.read(&mut [0; 64]);
}

/// A panic at the event, then the next life.
async fn panics_and_comes_back(c: &Cluster, daemon: &str, event: &str) {
    let before = c.failure(daemon)["times"].as_u64().unwrap_or_default();
    plant(c, daemon, event);
    comes_back(c, daemon, event, before).await;
}

async fn comes_back(c: &Cluster, daemon: &str, event: &str, before: u64) {
    until(&format!("{daemon}'s return from a panic at {event}"), async || {
        let failure = c.failure(daemon);
        if failure["times"].as_u64().unwrap_or_default() > before && failure["now"] == "runs" {
            return true;
        }
        if c.dir.path().join("panics").join(daemon).exists() {
            match event {
                "admin" => ask(c, daemon),
                // A client that comes and goes.
                "authenticate" | "connected" | "gone" => {
                    let client = c.client().await;
                    let io = client
                        .pool("p")
                        .await
                        .expect("the pool")
                        .with_timeout(Some(std::time::Duration::from_secs(5)));
                    for n in 0..16 {
                        let _ = io.stat(&format!("w{n}")).await;
                    }
                }
                _ => {}
            }
        }
        false
    })
    .await;
    // A later failure may stand in the record: the next life finds the device in use until the last handle is gone.
    let log = std::fs::read_to_string(c.data().join("loligo.log")).expect("a log");
    let is_why =
        |line: &str| line.contains(&format!("{daemon} stopped: it panicked at ")) && line.contains(event);
    assert!(log.lines().any(is_why), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_one_daemon_and_the_others_go_on_serving() {
    let args = ["--osds", "3", "--mons", "3", "--osd-size", "2G"];
    let c = Cluster::start(&args, |dir| {
        std::fs::create_dir(dir.join("panics")).expect("a folder");
        let panics = dir.join("panics").display().to_string();
        vec![("LOLIGO_PANICS", panics), ("LOLIGO_PAUSE_MS", "50".to_owned())]
    });
    let process = c.pid("loligo").expect("one process");
    let client = c.client().await;
    let io = c.pool(&client, 1).await;
    let writer = Writer::start(&io, 4);
    for event in OSD_EVENTS {
        let served = writer.count();
        if *event == "ready" {
            // A session of its own, to another OSD that comes back.
            let before = c.failure("osd.1")["times"].as_u64().unwrap_or_default();
            plant(&c, "osd.1", event);
            panics_and_comes_back(&c, "osd.2", "tick").await;
            comes_back(&c, "osd.1", event, before).await;
        } else {
            panics_and_comes_back(&c, "osd.1", event).await;
        }
        until("more writes", async || writer.count() > served + 20 || writer.is_done()).await;
    }
    for daemon in ["mgr.x", "mon.b", "mon.a"] {
        let served = writer.count();
        panics_and_comes_back(&c, daemon, "input").await;
        until("more writes", async || writer.count() > served + 20 || writer.is_done()).await;
    }
    writer.stop();
    assert_eq!(c.pid("loligo"), Some(process), "it is the same process");
    for (name, content) in writer.acked() {
        assert!(io.read(&name, 0, 1 << 20).await.expect("read") == content[..], "{name}");
    }
    until("a healthy cluster", async || {
        let status = c.status();
        let daemons = status["daemons"].as_object().cloned().unwrap_or_default();
        daemons.len() == 7 && daemons.values().all(|pid| pid.as_u64() == Some(process.into()))
    })
    .await;
    let failures = &c.status()["failures"];
    assert!(failures["osd.1"]["times"].as_u64().is_some_and(|n| n >= OSD_EVENTS.len() as u64), "{failures}");
}

/// As after a start without its disk mounted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_osd_without_its_disk_is_away_alone_until_up_is_called_again() {
    let c = Cluster::start(&["--osds", "3", "--osd-size", "64M"], |_| Vec::new());
    let run = |args: &[&str]| {
        let out = c.command(args).output().expect("loligo runs");
        (out.status.success(), crate::cluster::text(&out))
    };
    let up = ["up", "--detach", "--timeout", "240"];
    assert!(run(&["down"]).0);
    let (block, aside) = (c.data().join("osd.1/block"), c.data().join("aside"));
    std::fs::rename(&block, &aside).expect("unmounted");
    let (ok, said) = run(&up);
    assert!(ok && said.contains("osd.1 stopped: there is no "), "{said}");
    let status = c.status();
    assert!(status["daemons"]["osd.1"].is_null() && !status["daemons"]["osd.0"].is_null(), "{status}");
    let io = c.pool(&c.client().await, 1).await;
    io.write_full("a", "served").await.expect("the others serve");
    std::fs::rename(&aside, &block).expect("mounted");
    let (ok, said) = run(&up);
    assert!(ok && !said.contains("osd.1 stopped"), "{said}");
    assert_eq!(c.status()["failures"]["osd.1"]["now"], "runs");
    // The same after a power failure, which no OSD tells the monitors of.
    let pid = c.pid("loligo").and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).expect("it runs");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
    until("its end", async || {
        !std::path::Path::new(&format!("/proc/{}/fd/0", pid.as_raw_nonzero())).exists()
    })
    .await;
    std::fs::rename(&block, &aside).expect("unmounted");
    let (ok, said) = run(&up);
    assert!(ok && said.contains("osd.1 stopped: there is no "), "{said}");
    let (client, stat) = (c.client().await, r#"{"prefix": "osd stat", "format": "json"}"#);
    let answer = client.mon_command(stat, bytes::Bytes::new()).await.expect("the map");
    let stat: serde_json::Value = serde_json::from_slice(&answer.output).expect("JSON");
    assert_eq!(stat["num_up_osds"], 2, "{stat}");
}
