//! When an OSD writes what it was sent, and on which thread. A turn of the reactor ends when every connection
//! that was readable has been read; what all of them brought is then written together. The log is written by
//! the thread of the sockets itself while the device answers soon.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use store::{Commit, CommitDone, Device, DeviceError};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// When half of the commits take longer than this, commits are given to a thread: nothing is read from
/// sockets while their own thread waits for the device.
const SOON: Duration = Duration::from_millis(2);
/// A device that once takes so long is not waited for until it has been quick again for a while.
const STUCK: Duration = Duration::from_millis(50);
/// What a commit is thought to take before the device is known.
const GUESS: Duration = Duration::from_micros(200);
/// A commit that writes more bytes than this is given to the thread in any case.
const FEW_BYTES: u64 = 256 << 10;
/// Above so many transactions a commit (in 256ths, on average) more come while one is put off. With fewer the
/// other members' answers are all that comes, and a write on its own would take twice as long.
const GATHERS: u64 = 333;
/// A commit with more counts as one with so many: the average has to come down soon when there is less to do.
const MOST: u64 = 64;

/// Has a function called at the end of the reactor's turn.
#[derive(Debug)]
pub struct Bell {
    wake: Arc<Notify>,
    rung: bool,
    only_thread: bool,
}

/// Whether one thread carries all connections of the runtime that this is called in.
fn is_only_thread() -> bool {
    Handle::current().metrics().num_workers() == 1
}

impl Bell {
    /// `end` is called at the end of each turn in which the bell was rung, until it returns false. Must be
    /// called within the runtime that carries the connections.
    pub fn new(mut end: impl FnMut() -> bool + Send + 'static) -> Self {
        let wake = Arc::new(Notify::new());
        let heard = Arc::clone(&wake);
        tokio::spawn(async move {
            loop {
                heard.notified().await;
                behind_all_that_are_ready().await;
                if !end() {
                    return;
                }
            }
        });
        Self { wake, rung: false, only_thread: is_only_thread() }
    }

    /// Whether waiting for the turn's end gathers anything: of several threads another one would wake up and
    /// take it over.
    pub fn is_worth_it(&self) -> bool {
        self.only_thread
    }

    pub fn ring(&mut self) {
        if !std::mem::replace(&mut self.rung, true) {
            self.wake.notify_one();
        }
    }

    /// The end of the turn has come.
    pub fn heard(&mut self) {
        self.rung = false;
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // The task finds that there is nobody to call.
        self.wake.notify_one();
    }
}

/// Lets every task that is ready now run first. One that wakes itself goes to the end of the queue, without a
/// look at the sockets that tokio's `yield_now` has.
async fn behind_all_that_are_ready() {
    let mut woken = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut woken, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// A commit's outcome, and how long the device took.
pub type Outcome = (Result<CommitDone, DeviceError>, Duration);

/// What became of a commit.
pub enum Executed {
    Now(Outcome),
    /// The device's thread reports it.
    Later,
    /// That thread is gone.
    Never,
}

/// Executes commits: on the calling thread, or on the device's.
pub struct Committer {
    device: Arc<dyn Device>,
    thread: mpsc::Sender<Commit>,
    /// The only thread of the sockets serves one daemon: handing over would cost two switches and cold
    /// caches, and nobody else waits for it.
    alone: bool,
    /// About half of the last commits took longer than this. On a busy machine some take long because this
    /// thread had to wait for a core, and would have elsewhere too: an average would say that the device is
    /// slow.
    typical: Duration,
    /// Transactions a commit, in 256ths, on average over the last 16 or so.
    gathered: u64,
}

impl Committer {
    /// `only_daemon`: nobody else is served by this process.
    pub fn new(device: Arc<dyn Device>, thread: mpsc::Sender<Commit>, only_daemon: bool) -> Self {
        Self { device, thread, alone: only_daemon && is_only_thread(), typical: GUESS, gathered: 256 }
    }

    /// Whether a commit that nobody waits for yet should wait for more.
    pub fn gathers(&self) -> bool {
        self.gathered > GATHERS
    }

    /// Executes the commit now, or hands it over; `txns` is the number of transactions in it.
    pub fn execute(&mut self, commit: Commit, txns: u64) -> Executed {
        self.note_size(txns);
        let (log, direct) = commit.bytes();
        if self.is_soon_done(log + direct) {
            return Executed::Now(timed(commit, self.device.as_ref()));
        }
        match self.thread.send(commit) {
            Ok(()) => Executed::Later,
            Err(_) => Executed::Never,
        }
    }

    fn is_soon_done(&self, bytes: u64) -> bool {
        self.alone && self.typical < SOON && bytes <= FEW_BYTES
    }

    fn note_size(&mut self, txns: u64) {
        self.gathered = (self.gathered * 15 + txns.min(MOST) * 256) / 16;
    }

    /// What a commit took, wherever it ran.
    pub fn note(&mut self, took: Duration) {
        self.typical = match took {
            t if t >= STUCK => t.min(Duration::from_secs(1)),
            t if t > self.typical => self.typical * 9 / 8,
            _ => self.typical * 7 / 8,
        }
        .max(Duration::from_micros(10));
    }
}

pub fn timed(commit: Commit, device: &dyn Device) -> Outcome {
    let begin = Instant::now();
    let done = commit.execute(device);
    (done, begin.elapsed())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn committer(only_daemon: bool) -> Committer {
        let dir = tempfile::tempdir().expect("a folder");
        let device = runtime::FileDevice::create(&dir.path().join("block"), 8192).expect("a file");
        Committer::new(Arc::new(device), mpsc::channel().0, only_daemon)
    }

    #[tokio::test]
    async fn a_turn_ends_behind_everything_that_was_ready_and_once() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let order = Arc::clone(&order);
            move || order.lock().expect("no panic").push(what)
        };
        let ends = note("end");
        let mut bell = Bell::new(move || {
            ends();
            true
        });
        tokio::task::yield_now().await;
        bell.ring();
        bell.ring();
        let tasks: Vec<_> = (0..3).map(|_| note("task")).collect();
        for task in tasks {
            tokio::spawn(async move { task() });
        }
        while order.lock().expect("no panic").len() < 4 {
            tokio::task::yield_now().await;
        }
        bell.heard();
        bell.ring();
        while order.lock().expect("no panic").len() < 5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*order.lock().expect("no panic"), ["task", "task", "task", "end", "end"]);
    }

    #[tokio::test]
    async fn a_slow_device_and_long_writes_get_a_thread() {
        let mut committer = committer(true);
        assert!(committer.is_soon_done(8192));
        assert!(!committer.is_soon_done(FEW_BYTES + 1));
        for _ in 0..100 {
            committer.note(Duration::from_micros(300));
            committer.note(Duration::from_micros(300));
            committer.note(Duration::from_millis(9));
        }
        assert!(committer.is_soon_done(8192), "two of three answer at once");
        for _ in 0..100 {
            committer.note(Duration::from_millis(9));
        }
        assert!(!committer.is_soon_done(8192));
        for _ in 0..100 {
            committer.note(Duration::from_micros(300));
        }
        assert!(committer.is_soon_done(8192));
        committer.note(Duration::from_secs(30));
        for _ in 0..10 {
            assert!(!committer.is_soon_done(8192), "it was stuck a moment ago");
            committer.note(Duration::from_micros(300));
        }
        for _ in 0..50 {
            committer.note(Duration::from_micros(300));
        }
        assert!(committer.is_soon_done(8192), "it answers at once again");
    }

    #[tokio::test]
    async fn commits_are_put_off_while_more_comes() {
        let mut committer = committer(true);
        assert!(!committer.gathers(), "nothing is known yet");
        (0..100).for_each(|_| committer.note_size(1));
        assert!(!committer.gathers(), "one by one");
        (0..100).for_each(|i| committer.note_size(1 + i % 2));
        assert!(committer.gathers(), "every other one has two");
        committer.note_size(10_000);
        (0..100).for_each(|_| committer.note_size(1));
        assert!(!committer.gathers(), "one by one again");
    }

    #[tokio::test]
    async fn a_thread_that_serves_other_daemons_too_waits_for_no_device() {
        assert!(!committer(false).is_soon_done(8192));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn with_several_threads_nobody_waits_for_the_device() {
        assert!(!committer(true).is_soon_done(8192));
    }
}
