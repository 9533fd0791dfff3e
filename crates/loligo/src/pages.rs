//! Whether an OSD's heap lies on large pages: a twentieth less CPU for each small write, some 24 MiB more resident memory.
//!
//! Large pages only bring that when they stay whole: by itself the allocator gives memory back in pieces of 64 KiB, which
//! makes small pages of the rest. It is told not to by its environment, which it reads when the process begins; so an OSD that
//! was begun without begins once more, with the same pid, before it has done anything.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::create::memory_target_or_usual;
use crate::place::Place;

/// How mimalloc is told to give back nothing smaller than a large page.
const WHOLE: (&str, &str) = ("MIMALLOC_ALLOW_THP", "2");

/// From this `osd_memory_target` on memory is not scarce.
const LARGE_FROM: u64 = 512 << 20;

/// Nor is it on a machine with so much, when nobody set a target.
const PLENTY: u64 = 8 << 30;

/// Before anything is allocated: small pages for every daemon but an OSD that was begun for large ones.
pub fn choose_at_start(is_osd: bool) {
    choose(is_osd && stay_whole());
}

/// Has the kernel give this process large pages, or small ones only.
pub fn choose(large: bool) {
    // An old kernel that does not know the call gives what it gives.
    let _ = rustix::thread::disable_transparent_huge_pages(!large);
}

/// Whether the allocator was told to leave large pages whole; else they cost memory and bring nothing.
pub fn stay_whole() -> bool {
    std::env::var(WHOLE.0).is_ok_and(|value| value == WHOLE.1)
}

/// Whether this OSD is to have large pages: as its target says, and where it has none as the machine's memory does.
pub fn are_wanted(place: &Place) -> bool {
    let target = place.options.contains_key("osd_memory_target");
    fits(target.then(|| memory_target_or_usual(&place.options)), machine_memory())
}

fn fits(target: Option<u64>, machine: u64) -> bool {
    target.map_or(machine >= PLENTY, |target| target >= LARGE_FROM)
}

/// Bytes that this process may have: the machine's, or its control group's.
fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = info.totalram.saturating_mul(u64::from(info.mem_unit));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
    // "max" is no number.
    group.ok().and_then(|text| text.trim().parse().ok()).map_or(all, |limit: u64| limit.min(all))
}

/// Begins the process of an OSD anew when it is to have large pages and was not begun for them. An allocator that was told
/// anything by its environment is left as it is.
pub fn begin_anew_if_wanted(place: &Place) {
    if std::env::var_os(WHOLE.0).is_some() || !are_wanted(place) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| program.clone().into_os_string());
    // It only returns when that did not work: small pages do as well.
    let error = Command::new(program).arg0(name).args(args).env(WHOLE.0, WHOLE.1).exec();
    tracing::debug!("small pages: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_decides_and_without_one_the_machine() {
        assert!(!fits(None, 1 << 30) && !fits(None, PLENTY - 1) && fits(None, PLENTY));
        assert!(!fits(Some(64 << 20), 1 << 40) && !fits(Some(LARGE_FROM - 1), 1 << 40));
        assert!(fits(Some(LARGE_FROM), 1 << 30));
        assert!(machine_memory() >= 64 << 20, "bytes, not pages: {}", machine_memory());
    }
}
