//! The threads of an OSD's device: those that carry out one kind of job in order, and those that read for
//! requests which wait.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, Once, PoisonError};

use anyhow::Result;
use runtime::contained;
use store::{Device, PlanRead, ReadPlan, StoreError};
use tokio::runtime::Handle;

use crate::ear::Domain as _;
use crate::osd::{Event, Shell};

/// A thread of the device: executes jobs in order and reports each to the owner.
pub(crate) fn spawn_worker<J: Send + 'static>(
    name: &str,
    device: &Arc<dyn Device>,
    shell: &Arc<Shell>,
    run: impl Fn(J, &dyn Device) -> Event + Send + 'static,
) -> Result<Sender<J>> {
    let (jobs, work) = mpsc::channel::<J>();
    spawn_thread(name, device, shell, move || work.recv(), run, submit)?;
    Ok(jobs)
}

/// The core may run on the thread that reports.
fn submit(shell: Arc<Shell>, event: Event) {
    shell.submit(event);
}

/// The same, with jobs that `next` gives until it fails, and results that `report` brings to the owner.
fn spawn_thread<J: Send + 'static, R: 'static>(
    name: &str,
    device: &Arc<dyn Device>,
    shell: &Arc<Shell>,
    next: impl Fn() -> Result<J, mpsc::RecvError> + Send + 'static,
    run: impl Fn(J, &dyn Device) -> R + Send + 'static,
    report: impl Fn(Arc<Shell>, R) + Send + 'static,
) -> Result<()> {
    #[cfg(feature = "test-medium")]
    let (plant, thread) = (shell.plant.clone(), name.to_owned());
    let (device, shell) = (Arc::clone(device), Arc::downgrade(shell));
    std::thread::Builder::new().name(name.into()).spawn(move || {
        while let Ok(job) = next() {
            let done = contained(|| {
                #[cfg(feature = "test-medium")]
                plant.strike(&thread);
                run(job, device.as_ref())
            });
            let Some(shell) = shell.upgrade() else { return };
            match done {
                Ok(result) => report(shell, result),
                Err(how) => return shell.panicked(how),
            }
        }
    })?;
    Ok(())
}

type Reads = Sender<(u64, Box<ReadPlan>)>;

/// Threads that read for requests which wait. They take what comes next as they get free, so that one that
/// the device keeps waiting holds up nothing else.
///
/// Long reads have threads of their own, below all others in priority: copying and checking their bytes
/// takes what the processors have, and short requests would wait behind it for one.
#[derive(Default)]
pub(crate) struct Readers {
    short: Option<Reads>,
    long: Option<Reads>,
}

/// A device reads more in a second when it is asked for several things at a time. The core hands out more
/// reads than this at a time (`pg/src/osd/device_reads.rs`); those wait in the channel.
const READERS: usize = 8;
/// Bytes of the longest read that has a thread at the usual priority.
const SHORT: u64 = 128 << 10;
/// Added to the niceness of threads for long reads: each gets about a tenth of what another thread gets that
/// wants a processor at the same time.
const LONG_NICE: i32 = 10;

impl Readers {
    /// Has a thread read for the core.
    pub fn ask(
        &mut self,
        (id, plan): (u64, Box<ReadPlan>),
        device: &Arc<dyn Device>,
        shell: &Arc<Shell>,
        sockets: &Handle,
    ) -> Result<()> {
        let is_long = plan.asked() > SHORT;
        let reads = if is_long { &mut self.long } else { &mut self.short };
        let reads = match reads {
            Some(reads) => reads,
            None if is_long => reads.insert(start_long(device, shell, sockets)?),
            None => reads.insert(start_short(device, shell)?),
        };
        // Where no thread is left, a panic in one of them has ended the OSD.
        let _ = reads.send((id, plan));
        Ok(())
    }
}

/// Reads that threads of the same kind take as they get free.
type Jobs = Mutex<mpsc::Receiver<(u64, Box<ReadPlan>)>>;

fn next_of(work: &Jobs) -> Result<(u64, Box<ReadPlan>), mpsc::RecvError> {
    work.lock().unwrap_or_else(PoisonError::into_inner).recv()
}

fn start_short(device: &Arc<dyn Device>, shell: &Arc<Shell>) -> Result<Reads> {
    let (jobs, work) = mpsc::channel();
    let work = Arc::new(Mutex::new(work));
    for _ in 0..READERS {
        let work = Arc::clone(&work);
        let run = |(id, plan): (u64, Box<ReadPlan>), device: &dyn Device| Event::Read {
            id,
            result: plan.execute(device),
        };
        spawn_thread("osd-read", device, shell, move || next_of(&work), run, submit)?;
    }
    Ok(jobs)
}

/// `sockets` runs what the core does with the results: were it run by these threads, all would wait with the
/// core for a processor. So would all who frame a message while such a thread had the table of known
/// checksums.
fn start_long(device: &Arc<dyn Device>, shell: &Arc<Shell>, sockets: &Handle) -> Result<Reads> {
    let (jobs, work) = mpsc::channel();
    let work = Arc::new(Mutex::new(work));
    for _ in 0..READERS {
        let work = Arc::clone(&work);
        let lower = Once::new();
        let next = move || {
            lower.call_once(lower_priority);
            next_of(&work)
        };
        let run = |(id, plan): (u64, Box<ReadPlan>), device: &dyn Device| (id, plan.read(device));
        let sockets = sockets.clone();
        let report = move |shell: Arc<Shell>, (id, read): (u64, Result<PlanRead, StoreError>)| {
            sockets.spawn(async move {
                let result = read.map(PlanRead::into_bytes);
                shell.submit(Event::Read { id, result });
            });
        };
        spawn_thread("osd-read-long", device, shell, next, run, report)?;
    }
    Ok(jobs)
}

/// Of the thread that calls this.
fn lower_priority() {
    if let Err(e) = rustix::process::nice(LONG_NICE) {
        tracing::warn!("long reads keep the usual priority: {e}");
    }
}
