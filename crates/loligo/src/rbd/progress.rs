//! How far long work is: a percentage on a terminal's standard error, as Ceph's `rbd` shows it.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing was shown yet.
const NONE: u64 = u64::MAX;

pub struct Progress {
    what: &'static str,
    is_shown: bool,
    percent: AtomicU64,
    is_done: Cell<bool>,
}

impl Progress {
    pub fn new(what: &'static str, may_show: bool) -> Self {
        let is_shown = may_show && std::io::stderr().is_terminal();
        Self { what, is_shown, percent: AtomicU64::new(NONE), is_done: Cell::new(false) }
    }

    /// What the work calls with how much is done of how much.
    pub fn reporter(&self) -> impl Fn(u64, u64) + Sync + use<'_> {
        let (what, is_shown, percent) = (self.what, self.is_shown, &self.percent);
        move |done, all| {
            let now = u64::try_from(u128::from(done) * 100 / u128::from(all.max(1))).unwrap_or(100).min(100);
            if is_shown && percent.swap(now, Ordering::Relaxed) != now {
                let _ = write!(std::io::stderr(), "\r{what}: {now}% complete...");
            }
        }
    }

    /// The work succeeded.
    pub fn finish(&self) {
        self.is_done.set(true);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.percent.load(Ordering::Relaxed) == NONE {
            return;
        }
        let _ = if self.is_done.get() {
            writeln!(std::io::stderr(), "\r{}: 100% complete...done.", self.what)
        } else {
            writeln!(std::io::stderr(), "failed.")
        };
    }
}
