//! `loligo bench floor`: what a replicated write costs on this machine when nothing is done but what cannot be left out.
//!
//! A client, a primary and a replica, each a process, over TCP on loopback. The primary hands a write on, both append it to a
//! file with one flush for all that wait, and the client hears of it when it is durable on both. No placement, no checksums, no
//! authentication, no index: a cluster can come near to this and never below.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::args::{FloorBench, FloorRole};
use super::cpu::Processes;
use super::report::Histogram;

/// Bytes of the file that a node writes round and round, as a log is.
const RING: u64 = 64 << 20;
/// Bytes that a node takes from a socket at one time.
const BATCH: usize = 1 << 20;

pub fn run(args: &FloorBench) -> Result<()> {
    match &args.role {
        None => measure(args),
        Some(role) => node(args, *role),
    }
}

/// What write number `seq` holds: unlike any other write's.
fn fill(seq: u64, payload: &mut [u8]) {
    let mut word = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in payload.chunks_mut(8) {
        word = word.rotate_left(23).wrapping_mul(0xff51_afd7_ed55_8ccd);
        put(word, chunk);
    }
    put(seq, payload);
}

/// The number's first bytes, as many as there is room for.
fn put(number: u64, into: &mut [u8]) {
    into.iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to = byte);
}

fn slots(size: usize) -> u64 {
    (RING / size as u64).max(1)
}

// A node: primary or replica

/// What a node's threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Received and not yet in the file.
    waiting: Vec<u8>,
    ended: bool,
    /// Counts of writes that are durable here, and at the replica.
    durable: u64,
    acknowledged: u64,
    told: u64,
}

impl Shared {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the sender how many writes are durable everywhere, when that is news.
    fn tell(&self, to: &Mutex<TcpStream>, replica: bool) -> Result<()> {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.with(|s| {
            let done = if replica { s.durable.min(s.acknowledged) } else { s.durable };
            (done > s.told).then(|| {
                s.told = done;
                done
            })
        });
        news.map_or(Ok(()), |n| to.write_all(&n.to_le_bytes()).context("the sender is gone"))
    }
}

/// Listens, says where on standard output, and serves one connection.
fn node(args: &FloorBench, role: FloorRole) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let file = args.file.as_deref().context("a node needs --file")?;
    let log = ring(file)?;
    let replica = match role {
        FloorRole::Primary => Some(connect(args.port.context("a primary needs --port")?)?),
        FloorRole::Replica => None,
    };
    let (from, _) = listener.accept()?;
    from.set_nodelay(true)?;
    let (shared, back) = (Arc::new(Shared::default()), Arc::new(Mutex::new(from.try_clone()?)));
    let has_replica = replica.is_some();
    let mut threads = Vec::new();
    {
        let (shared, back, size) = (shared.clone(), back.clone(), args.size());
        threads.push(std::thread::spawn(move || write_log(&shared, &log, size, &back, has_replica)));
    }
    if let Some(replica) = &replica {
        let (shared, replica) = (shared.clone(), replica.try_clone()?);
        threads.push(std::thread::spawn(move || hear_replica(&shared, replica, &back)));
    }
    receive(&shared, from, replica, args.size())?;
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread of the node panicked"))??;
    }
    Ok(())
}

/// A file whose blocks are there, so that writing it again is no change of metadata.
fn ring(path: &Path) -> Result<File> {
    let options = OpenOptions::new().write(true).create(true).truncate(true).clone();
    let file = options.open(path).with_context(|| format!("cannot write {}", path.display()))?;
    let zeros = vec![0; BATCH];
    for at in (0..RING).step_by(BATCH) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot reach the other process")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whole writes, as they come: handed on first, then left to the log's thread.
fn receive(shared: &Shared, mut from: TcpStream, mut replica: Option<TcpStream>, size: usize) -> Result<()> {
    let (mut buffer, mut held) = (vec![0; BATCH.max(2 * size)], 0);
    loop {
        let n = from.read(buffer.get_mut(held..).unwrap_or_default())?;
        held += n;
        let whole = held - held % size;
        let writes = buffer.get(..whole).unwrap_or_default();
        if let Some(replica) = &mut replica {
            replica.write_all(writes)?;
        }
        shared.with(|s| {
            s.waiting.extend_from_slice(writes);
            s.ended |= n == 0;
        });
        shared.wake.notify_one();
        buffer.copy_within(whole..held, 0);
        held -= whole;
        if n == 0 {
            if let Some(replica) = &replica {
                replica.shutdown(std::net::Shutdown::Write)?;
            }
            return Ok(());
        }
    }
}

fn write_log(
    shared: &Shared,
    log: &File,
    size: usize,
    back: &Mutex<TcpStream>,
    has_replica: bool,
) -> Result<()> {
    let (mut batch, mut seq) = (Vec::new(), 0u64);
    loop {
        {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.waiting.is_empty() && !state.ended {
                state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut batch, &mut state.waiting);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let mut left = batch.as_slice();
        while !left.is_empty() {
            let slot = seq % slots(size);
            let fits = usize::try_from(slots(size) - slot)?.saturating_mul(size).min(left.len());
            let (now, later) = left.split_at(fits);
            log.write_all_at(now, slot * size as u64)?;
            seq += (fits / size) as u64;
            left = later;
        }
        log.sync_data()?;
        batch.clear();
        shared.with(|s| s.durable = seq);
        shared.tell(back, has_replica)?;
    }
}

fn hear_replica(shared: &Shared, mut replica: TcpStream, back: &Mutex<TcpStream>) -> Result<()> {
    while let Some(count) = last_count(&mut replica)? {
        shared.with(|s| s.acknowledged = count);
        shared.tell(back, true)?;
    }
    Ok(())
}

/// The newest of the counts that have come; `None` at the end.
fn last_count(from: &mut TcpStream) -> Result<Option<u64>> {
    let mut buffer = [0; 8 * 64];
    let mut held = from.read(&mut buffer)?;
    if held == 0 {
        return Ok(None);
    }
    while held % 8 != 0 {
        let n = from.read(buffer.get_mut(held..held.next_multiple_of(8)).unwrap_or_default())?;
        ensure!(n > 0, "the other process ended in the middle of a count");
        held += n;
    }
    let counts = buffer.get(..held).unwrap_or_default();
    Ok(counts.last_chunk().map(|last| u64::from_le_bytes(*last)))
}

// The client

/// A node's process, ended when it is dropped.
struct Node {
    child: Child,
    port: u16,
}

impl Node {
    fn start(args: &FloorBench, role: &str, file: &Path, port: Option<u16>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "floor", "--role", role, "--file"]).arg(file);
        command.args(["--block-size", &args.block_size.to_string()]).stdout(Stdio::piped());
        if let Some(port) = port {
            command.args(["--port", &port.to_string()]);
        }
        let mut child = command.spawn().context("cannot start a process")?;
        let mut line = String::new();
        let out = child.stdout.take().context("the process has no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let port = line.trim().parse().with_context(|| format!("the {role} does not start"));
        let mut node = Self { child, port: 0 };
        node.port = port?;
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Outcome {
    writes: u64,
    taken: Duration,
    latencies: Histogram,
    cpu_ns: u64,
}

fn measure(args: &FloorBench) -> Result<()> {
    let dir = tempdir(&args.dir)?;
    let (replica_file, primary_file) = (dir.0.join("replica"), dir.0.join("primary"));
    let replica = Node::start(args, "replica", &replica_file, None)?;
    let primary = Node::start(args, "primary", &primary_file, Some(replica.port))?;
    let nodes = Processes::these(&[primary.child.id(), replica.child.id()]);
    let outcome = load(args, primary.port, &nodes)?;
    drop((primary, replica));
    for file in [&primary_file, &replica_file] {
        check(file, args.size(), outcome.writes)?;
    }
    let per_op = |ns: u64| ns as f64 / outcome.writes.max(1) as f64 / 1e3;
    let rate = outcome.writes as f64 / outcome.taken.as_secs_f64();
    let (cpu, mean, p99) =
        (per_op(outcome.cpu_ns), outcome.latencies.mean_us(), outcome.latencies.quantile_us(0.99));
    if args.json {
        let figures = json!({
            "block_size": args.block_size, "depth": args.depth, "writes": outcome.writes, "ops_per_s": rate,
            "node_cpu_us_per_op": cpu, "mean_us": mean, "p99_us": p99,
        });
        say!("{figures}");
    } else {
        say!("The floor of a write on two nodes, {} bytes, {} in flight:", args.block_size, args.depth);
        say!("  CPU of both nodes per write  {cpu:>10.1} us");
        say!("  writes per second            {rate:>10.0}");
        say!("  latency mean, 99th           {mean:>10.0} {p99:>10.0} us");
    }
    Ok(())
}

/// Writes with so many in flight, for so long; then waits for the last.
fn load(args: &FloorBench, port: u16, nodes: &Processes) -> Result<Outcome> {
    let mut to = connect(port)?;
    let mut answers = to.try_clone()?;
    let (size, mut sent, mut done) = (args.size(), 0u64, 0u64);
    let (mut times, mut latencies) = (VecDeque::new(), Histogram::default());
    let (before, begin) = (nodes.cpu(), Instant::now());
    let limit = Duration::from_secs(args.seconds);
    let mut batch = Vec::new();
    loop {
        let room = args.depth as u64 - (sent - done);
        if begin.elapsed() < limit && room > 0 {
            batch.resize(room as usize * size, 0);
            for payload in batch.chunks_mut(size) {
                fill(sent, payload);
                sent += 1;
                times.push_back(Instant::now());
            }
            to.write_all(&batch)?;
        }
        if sent == done {
            break;
        }
        let count = last_count(&mut answers)?.context("the primary ended")?;
        ensure!(count <= sent && count >= done, "the primary acknowledged {count} of {sent} writes");
        for _ in done..count {
            let at = times.pop_front().context("more answers than writes")?;
            latencies.record(at.elapsed());
        }
        done = count;
    }
    Ok(Outcome { writes: done, taken: begin.elapsed(), latencies, cpu_ns: nodes.cpu() - before })
}

/// Compares what a node's file holds with the last writes; without that there is no figure.
fn check(path: &Path, size: usize, writes: u64) -> Result<()> {
    ensure!(writes > 0, "no figures: not one write was completed");
    let file = File::open(path)?;
    let (mut want, mut got) = (vec![0; size], vec![0; size]);
    for seq in writes.saturating_sub(slots(size))..writes {
        fill(seq, &mut want);
        file.read_exact_at(&mut got, seq % slots(size) * size as u64)?;
        if want != got {
            bail!("no figures: write {seq} is not in {}", path.display());
        }
    }
    Ok(())
}

/// A folder of this run, removed at its end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir(parent: &Path) -> Result<Scratch> {
    let dir = parent.join(format!("loligo-floor-{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| format!("cannot make a folder in {}", parent.display()))?;
    Ok(Scratch(dir))
}
