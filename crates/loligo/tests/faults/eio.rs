//! A device that fails a write-back under an OSD.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use store::{Options, Store};

use crate::cluster::{Cluster, Writer, until};

/// The objects of the pool's clients on the medium, as the next life of the OSD finds them.
fn objects(block: &Path) -> BTreeMap<String, Vec<u8>> {
    let device = runtime::FileDevice::open(block).expect("nobody has it any more");
    let mut store = Store::open(Arc::new(device), Options::default()).expect("a store");
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.list_all(after.as_ref(), 1_000).expect("listed");
        let Some(last) = page.last().cloned() else { return found };
        for key in page.iter().filter(|key| key.object.is_head()) {
            let content = store.read(key, 0, 1 << 20).expect("read").to_vec();
            found.insert(key.object.name.to_string(), content);
        }
        after = Some(last);
    }
}

/// Whichever thread's flush is told of the failure: the numbers of the flush that fails differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_osd_acknowledged_survives_a_failed_write_back_and_it_stops_and_says_why() {
    let c = Cluster::start(&["--processes", "--osds", "2", "--osd-size", "2G"], |_| {
        vec![("LOLIGO_TWIN", String::new())]
    });
    let client = c.client().await;
    // A write needs both OSDs, so osd.1 has acknowledged each that its client heard of.
    let io = c.pool(&client, 2).await;
    for fail_sync in ["150", "201", "333"] {
        let old = c.pid("osd.1").expect("osd.1 runs");
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(old as i32).expect("a pid"),
            rustix::process::Signal::KILL,
        )
        .expect("killed");
        until("the end of osd.1", async || !Path::new(&format!("/proc/{old}/fd/0")).exists()).await;
        let mut osd = c.daemon("osd", "1", ("LOLIGO_TWIN", &format!("fail-sync={fail_sync}")));
        let writer = Writer::start(&io, 8);
        until("the end of osd.1", async || osd.try_wait().expect("its state").is_some()).await;
        let acked = writer.acked();
        writer.stop();
        let status = osd.wait().expect("it ended");
        let mut said = String::new();
        osd.stderr.take().expect("its words").read_to_string(&mut said).expect("text");
        assert_eq!(status.code(), Some(1), "{said}");
        // The thread that is told second may find the device closed.
        let is_why = |line: &&str| line.contains("errno 5") || line.contains("the device is closed");
        let mut whys =
            said.lines().filter(|line| line.starts_with("loligo: osd.1 stopped: the device failed"));
        assert!(whys.any(|line| is_why(&line)), "{said}");
        assert_eq!(c.failure("osd.1")["now"], "stopped");
        assert!(acked.len() > 20, "only {} writes were acknowledged: {said}", acked.len());
        let mut found = objects(&c.data().join("osd.1/block"));
        for (name, content) in &acked {
            assert!(found.remove(name).as_ref() == Some(content), "{name} of {} is gone", acked.len());
        }
        let again =
            c.command(&["up", "--detach", "--processes", "--timeout", "240"]).output().expect("loligo runs");
        assert!(again.status.success(), "{}", crate::cluster::text(&again));
        for (name, content) in acked.iter().take(50) {
            assert!(io.read(name, 0, 1 << 20).await.expect("read") == content[..]);
        }
    }
}
