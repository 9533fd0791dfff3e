//! Cost of the store on a file: CPU per operation for 4 KiB random overwrites in commits of 32, and for reads.
//!
//! `cargo run --profile ship -p store --example store_bench -- [file] [gigabytes] [writes]`

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use store::{
    Device, DeviceError, DeviceOp, FormatOptions, ObjectKey, Options, Space, Store, StoreError, Txn,
};
use testkit::Rng;
use types::{Fsid, HObject, PgId, PoolId, SnapId, SpgId};

const OBJECT_BYTES: u64 = 4 << 20;
const BATCH: u64 = 32;
const PGS: u64 = 64;

struct FileDevice {
    file: File,
    len: u64,
}

impl Device for FileDevice {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        self.file.read_exact_at(buf, offset).map_err(|e| failed(DeviceOp::Read, offset, len, &e))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        self.file.write_all_at(data, offset).map_err(|e| failed(DeviceOp::Write, offset, len, &e))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|e| failed(DeviceOp::Flush, 0, 0, &e))
    }

    fn len(&self) -> u64 {
        self.len
    }
}

fn failed(op: DeviceOp, offset: u64, len: u64, e: &std::io::Error) -> DeviceError {
    DeviceError::Io { op, offset, len, errno: e.raw_os_error().unwrap_or(5) }
}

/// User and system CPU time of this thread in microseconds, from the kernel's accounting.
fn cpu_us() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) * 10_000.0;
    (ticks(11), ticks(12))
}

/// Where the time of a phase went.
#[derive(Default)]
struct Spent {
    submit_us: f64,
    commit_us: f64,
    checkpoint_us: f64,
}

fn object(i: u64) -> ObjectKey {
    let object = HObject {
        pool: PoolId(3),
        hash: (i as u32).wrapping_mul(0x9e37_79b1),
        name: format!("rbd_data.10226b8b4567.{i:016x}").into(),
        snap: SnapId::HEAD,
        ..HObject::min()
    };
    ObjectKey::replicated(object)
}

/// A client's write as a placement group makes it: data, object info, snapset, log entry, log trim, info.
fn write_txn(seq: u64, o: u64, offset: u64, data: Bytes) -> Txn {
    let pg = Space::Pg(SpgId::replicated(PgId::new(PoolId(3), (o % PGS) as u32)));
    let key = object(o);
    let mut t = Txn::new();
    t.write(&key, offset, data);
    t.set_attr(&key, &b"_"[..], vec![7; 260]).set_attr(&key, &b"snapset"[..], vec![8; 35]);
    t.set(pg, format!("log.{seq:020}"), vec![9; 180]).set(pg, &b"info"[..], vec![1; 160]);
    if seq > 3000 {
        t.unset(pg, format!("log.{:020}", seq - 3000));
    }
    t
}

fn drive(store: &mut Store, device: &dyn Device, spent: &mut Spent) -> Result<(), StoreError> {
    let start = Instant::now();
    if let Some(job) = store.take_commit() {
        let done = job.execute(device);
        store.committed(done)?;
    }
    let middle = Instant::now();
    while store.checkpoint_due() {
        let Some(job) = store.take_checkpoint() else { break };
        let done = job.execute(device);
        store.checkpointed(done)?;
    }
    spent.commit_us += (middle - start).as_secs_f64() * 1e6;
    spent.checkpoint_us += middle.elapsed().as_secs_f64() * 1e6;
    Ok(())
}

fn report(what: &str, n: u64, start: Instant, cpu: (f64, f64), spent: &Spent) {
    let now = cpu_us();
    let per = |us: f64| us / n as f64;
    println!(
        "{what}: {:.1} us wall, {:.2} us user + {:.2} us system CPU per op; wall: submit {:.2}, commit {:.2}, checkpoint {:.2}",
        per(start.elapsed().as_secs_f64() * 1e6),
        per(now.0 - cpu.0),
        per(now.1 - cpu.1),
        per(spent.submit_us),
        per(spent.commit_us),
        per(spent.checkpoint_us),
    );
}

fn reopen(device: &Arc<FileDevice>, options: Options) -> Result<(), StoreError> {
    let start = Instant::now();
    let store = Store::open(device.clone(), options)?;
    println!(
        "open with {} KiB of log: {:.0} ms",
        store.counters().log_used_bytes >> 10,
        start.elapsed().as_secs_f64() * 1e3
    );
    drop(store);
    let start = Instant::now();
    let report = store::fsck(device.as_ref(), false)?;
    println!("fsck: {:.0} ms, {} findings", start.elapsed().as_secs_f64() * 1e3, report.findings.len());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "store_bench.img".into());
    let gigabytes: u64 = args.next().map_or(Ok(1), |a| a.parse())?;
    let writes: u64 = args.next().map_or(Ok(100_000), |a| a.parse())?;
    let len = (gigabytes * 4) << 30;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.set_len(len)?;
    let device = Arc::new(FileDevice { file, len });
    let fsid = Fsid([1; 16]);
    let start = Instant::now();
    Store::format(device.as_ref(), FormatOptions { fsid, osd_uuid: fsid, log_bytes: None })?;
    println!("format: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let options = Options::default();
    let mut store = Store::open(device.clone(), options)?;
    let objects = (gigabytes << 30) / OBJECT_BYTES;
    let mut rng = Rng::new(1);

    let (start, cpu, mut spent) = (Instant::now(), cpu_us(), Spent::default());
    let large = Bytes::from(rng.bytes(OBJECT_BYTES as usize));
    for o in 0..objects {
        store.submit(write_txn(o, o, 0, large.clone()))?;
        drive(&mut store, device.as_ref(), &mut spent)?;
    }
    report("4 MiB write", objects, start, cpu, &spent);

    let (start, cpu, mut spent) = (Instant::now(), cpu_us(), Spent::default());
    for i in 0..writes {
        let data = large.slice((i as usize % 1000) * 4096..(i as usize % 1000 + 1) * 4096);
        let (o, block) = (rng.below(objects), rng.below(OBJECT_BYTES / 4096));
        let txn = write_txn(1000 + i, o, block * 4096, data);
        let before = Instant::now();
        store.submit(txn)?;
        spent.submit_us += before.elapsed().as_secs_f64() * 1e6;
        if i % BATCH == BATCH - 1 {
            drive(&mut store, device.as_ref(), &mut spent)?;
        }
    }
    drive(&mut store, device.as_ref(), &mut spent)?;
    report("4 KiB random overwrite", writes, start, cpu, &spent);
    let c = store.counters();
    println!("{c:?}");
    let client = (writes * 4096 + objects * OBJECT_BYTES) as f64;
    let device_bytes = (c.log_bytes + c.direct_bytes + c.checkpoint_bytes) as f64;
    println!("device bytes per client byte: {:.2}", device_bytes / client);

    let (start, cpu) = (Instant::now(), cpu_us());
    for _ in 0..writes {
        store.read(&object(rng.below(objects)), rng.below(OBJECT_BYTES / 4096) * 4096, 4096)?;
    }
    report("4 KiB random read", writes, start, cpu, &Spent::default());
    let (start, cpu) = (Instant::now(), cpu_us());
    for o in 0..objects {
        store.read(&object(o), 0, OBJECT_BYTES)?;
    }
    report("4 MiB read", objects, start, cpu, &Spent::default());
    drop(store);
    reopen(&device, options)?;
    std::fs::remove_file(&path)?;
    Ok(())
}
