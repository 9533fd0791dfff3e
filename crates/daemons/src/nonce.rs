//! What tells a daemon's address from that of an earlier process at the same port.

use std::fs;

/// The nonce of the OSD `id` in the process `pid` of this machine: this process or a child of it.
///
/// The pid alone comes again, in a container at each start (there it is 1) and after a reboot: an OSD that
/// takes its old address over unnoticed would be taken for the old process, and nobody would ask what it has
/// lost. So the time at which the process started and the machine's boot count too.
pub fn nonce(pid: u32, id: i32) -> u32 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    mix(&format!("{} {} {pid} {id}", boot.trim(), started(&stat).unwrap_or_default()))
}

/// The nonce of an OSD that this process has been so many times before.
pub fn of_life(pid: u32, id: i32, life: u32) -> u32 {
    match life {
        0 => nonce(pid, id),
        _ => mix(&format!("{} {life}", nonce(pid, id))),
    }
}

/// Field 22 of /proc/PID/stat, in clock ticks since the boot; the name before it may hold anything, also
/// blanks.
fn started(stat: &str) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)
}

/// FNV-1a, folded; never 0, which means "any process".
fn mix(text: &str) -> u32 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    ((hash >> 32) as u32 ^ hash as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat =
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 98765 1000 200 18446744073709551615";
        assert_eq!(started(stat), Some("98765"));
        assert_eq!(started("nonsense"), None);
        let own = fs::read_to_string("/proc/self/stat").expect("Linux");
        assert!(started(&own).is_some_and(|t| t.parse::<u64>().is_ok_and(|t| t > 0)), "{own}");
    }

    #[test]
    fn daemons_processes_and_lives_differ() {
        let pid = std::process::id();
        assert_eq!(nonce(pid, 0), nonce(pid, 0));
        assert_ne!(nonce(pid, 0), nonce(pid, 1));
        assert_ne!(nonce(pid, 0), nonce(1, 0));
        assert_eq!(of_life(pid, 0, 0), nonce(pid, 0));
        assert_ne!(of_life(pid, 0, 1), nonce(pid, 0));
        assert_ne!(of_life(pid, 0, 1), of_life(pid, 0, 2));
        assert_ne!(mix("boot 98765 1 0"), mix("boot 98766 1 0"), "the same pid at another time");
    }
}
