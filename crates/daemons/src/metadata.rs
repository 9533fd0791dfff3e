//! What a daemon says of its host: shown by `ceph osd metadata` and its like.
//!
//! Source: collect_sys_info in src/common/util.cc.

use std::collections::BTreeMap;
use std::fs;

/// Host name, architecture, kernel, distribution, CPU and memory.
pub fn host() -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()) {
            out.insert(key.to_owned(), value);
        }
    };
    put("arch", Some(std::env::consts::ARCH.to_owned()));
    put("hostname", fs::read_to_string("/proc/sys/kernel/hostname").ok());
    put("kernel_version", fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    put("kernel_description", fs::read_to_string("/proc/sys/kernel/version").ok());
    put("os", Some("Linux".to_owned()));
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let line = release.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned())
    };
    put("distro", field("ID"));
    put("distro_description", field("PRETTY_NAME"));
    put("distro_version", field("VERSION_ID"));
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    put(
        "cpu",
        cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':')).map(|(_, v)| v.to_owned()),
    );
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb = |name: &str| {
        let line = memory.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches(" kB").to_owned())
    };
    put("mem_total_kb", kb("MemTotal"));
    put("mem_swap_kb", kb("SwapTotal"));
    put("ceph_release", Some("pacific".to_owned()));
    put("ceph_version", Some(version_text()));
    put("ceph_version_short", Some("16.2.15".to_owned()));
    // Monitors take a daemon without this key for one of Ceph's.
    put("loligo", Some(env!("CARGO_PKG_VERSION").to_owned()));
    out
}

/// The release of Ceph that Loligo answers as, and Loligo's own: `ceph versions` counts this text, and
/// clients compare it.
pub fn version_text() -> String {
    format!("ceph version 16.2.15 (loligo {}) pacific (stable)", env!("CARGO_PKG_VERSION"))
}
