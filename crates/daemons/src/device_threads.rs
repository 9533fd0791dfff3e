//! The threads of an OSD's device: those that carry out one kind of job in order, and those that read for
//! requests which wait.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use runtime::contained;
use store::{Device, ReadPlan};
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

/// The same, with jobs that `next` gives until it fails, and events that `report` brings to the owner.
fn spawn_thread<J: Send + 'static>(
    name: &str,
    device: &Arc<dyn Device>,
    shell: &Arc<Shell>,
    next: impl Fn() -> Result<J, mpsc::RecvError> + Send + 'static,
    run: impl Fn(J, &dyn Device) -> Event + Send + 'static,
    report: impl Fn(Arc<Shell>, Event) + Send + 'static,
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
                Ok(event) => report(shell, event),
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
    ) -> Result<()> {
        let is_long = plan.asked() > SHORT;
        let reads = if is_long { &mut self.long } else { &mut self.short };
        let reads = match reads {
            Some(reads) => reads,
            None => reads.insert(start(is_long, device, shell)?),
        };
        // Where no thread is left, a panic in one of them has ended the OSD.
        let _ = reads.send((id, plan));
        Ok(())
    }
}

fn start(is_long: bool, device: &Arc<dyn Device>, shell: &Arc<Shell>) -> Result<Reads> {
    let (jobs, work) = mpsc::channel();
    let work = Arc::new(Mutex::new(work));
    let sockets = Handle::current();
    for _ in 0..READERS {
        let work = Arc::clone(&work);
        let next = move || work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let run = |(id, plan): (u64, Box<ReadPlan>), device: &dyn Device| Event::Read {
            id,
            result: plan.execute(device),
        };
        if is_long {
            let lower = std::sync::Once::new();
            let next = move || {
                lower.call_once(lower_priority);
                next()
            };
            // The core must not run on such a thread: all would wait with it for a processor.
            let sockets = sockets.clone();
            let report = move |shell: Arc<Shell>, event| {
                sockets.spawn(async move { shell.submit(event) });
            };
            spawn_thread("osd-read-long", device, shell, next, run, report)?;
        } else {
            spawn_thread("osd-read", device, shell, next, run, submit)?;
        }
    }
    Ok(jobs)
}

/// Of the thread that calls this.
fn lower_priority() {
    if let Err(e) = rustix::process::nice(LONG_NICE) {
        tracing::warn!("long reads keep the usual priority: {e}");
    }
}
