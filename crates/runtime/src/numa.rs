//! On which memory node a daemon's network interfaces and its disk are, and the processors of one node: found
//! out from the kernel's folders, so that a daemon stays near both.
//!
//! Source: OSD::set_numa_affinity in src/osd/OSD.cc, src/common/numa.cc, get_iface_numa_node in
//! src/common/pick_address.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The kernel's folders.
#[derive(Debug, Clone)]
pub struct HostFiles {
    pub sys: PathBuf,
    pub proc: PathBuf,
    /// Where udev keeps what it knows of devices.
    pub udev: PathBuf,
    pub dev: PathBuf,
}

impl Default for HostFiles {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), udev: "/run/udev/data".into(), dev: "/dev".into() }
    }
}

/// What was asked for. Source: osd_numa_node (negative: none), osd_numa_auto_affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumaWish {
    pub node: i64,
    pub auto: bool,
}

/// Where a daemon is, and where it should stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumaPlace {
    /// The node to stay on, and its processors.
    pub affinity: Option<(i64, BTreeSet<usize>)>,
    /// What `ceph osd metadata` and `ceph osd numa-status` show.
    pub metadata: BTreeMap<String, String>,
}

impl HostFiles {
    /// Finds the place of a daemon that listens at `front` and `back` and stores in `block`, a device or a
    /// file.
    pub fn numa_place(&self, front: IpAddr, back: IpAddr, block: &Path, wish: NumaWish) -> NumaPlace {
        let disk = std::fs::metadata(block).ok().and_then(|meta| {
            let number = if meta.rdev() != 0 { meta.rdev() } else { meta.dev() };
            self.disk(rustix::fs::major(number), rustix::fs::minor(number))
        });
        self.place([front, back].map(|ip| self.interface(ip)), disk.as_deref(), wish)
    }

    fn place(&self, interfaces: [Option<String>; 2], disk: Option<&str>, wish: NumaWish) -> NumaPlace {
        let mut out = NumaPlace::default();
        let mut put = |key: &str, value: String| {
            out.metadata.insert(key.to_owned(), value);
        };
        let (mut nodes, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for (key, interface) in ["front_iface", "back_iface"].into_iter().zip(&interfaces) {
            let node = interface.as_deref().and_then(|name| self.interface_node(name));
            match node {
                Some(node) => _ = nodes.insert(node),
                None => _ = unknown.insert(interface.as_deref().unwrap_or(key)),
            }
            put(key, interface.clone().unwrap_or_default());
        }
        if !unknown.is_empty() {
            put("network_numa_unknown_ifaces", list(&unknown));
        }
        if !nodes.is_empty() {
            put("network_numa_nodes", list(&nodes));
        }
        let one = |nodes: &BTreeSet<i64>| nodes.first().copied().filter(|n| *n >= 0 && nodes.len() == 1);
        let network = one(&nodes).filter(|_| unknown.is_empty());
        if let Some(node) = network {
            put("network_numa_node", node.to_string());
        }
        let storage = disk.and_then(|name| self.disk_node(name));
        match (disk, storage) {
            (_, Some(node)) => {
                put("objectstore_numa_nodes", node.to_string());
                put("objectstore_numa_node", node.to_string());
            }
            (Some(name), None) => put("objectstore_numa_unknown_devices", name.to_owned()),
            (None, None) => {}
        }
        let found = network.filter(|node| wish.auto && storage == Some(*node));
        let wanted = if wish.node >= 0 { Some(wish.node) } else { found };
        out.affinity = wanted.and_then(|node| Some((node, self.processors(node)?)));
        if let Some((node, processors)) = &out.affinity {
            out.metadata.insert("numa_node".to_owned(), node.to_string());
            out.metadata.insert("numa_node_cpus".to_owned(), ranges(processors));
        }
        out
    }

    fn number(&self, at: impl AsRef<Path>) -> Option<i64> {
        std::fs::read_to_string(self.sys.join(at)).ok()?.trim().parse().ok()
    }

    /// The interface that has an address.
    fn interface(&self, ip: IpAddr) -> Option<String> {
        let read = |name: &str| std::fs::read_to_string(self.proc.join("net").join(name)).ok();
        match ip {
            _ if ip.is_loopback() => Some("lo".to_owned()),
            IpAddr::V4(ip) => interface_of_route(&read("route")?, ip),
            IpAddr::V6(ip) => interface_of_inet6(&read("if_inet6")?, ip),
        }
    }

    /// -1: the hardware does not say; -2: the parts of a bond are on different nodes.
    fn interface_node(&self, name: &str) -> Option<i64> {
        let name = name.split(':').next().unwrap_or(name);
        let folder = Path::new("class/net").join(name);
        if let Some(node) = self.number(folder.join("device/numa_node")) {
            return Some(node);
        }
        let parts = std::fs::read_to_string(self.sys.join(folder).join("bonding/slaves")).ok()?;
        let nodes: Option<BTreeSet<i64>> =
            parts.split_whitespace().map(|part| self.interface_node(part)).collect();
        let nodes = nodes?;
        Some(if nodes.len() > 1 { -2 } else { nodes.first().copied().unwrap_or(-1) })
    }

    /// The name of a whole disk by the number of it or of a part of it.
    pub(crate) fn disk(&self, major: u32, minor: u32) -> Option<String> {
        let folder = self.sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
        let whole = if folder.join("partition").exists() { folder.parent()? } else { &folder };
        Some(whole.file_name()?.to_string_lossy().into_owned())
    }

    fn disk_node(&self, name: &str) -> Option<i64> {
        let device = Path::new("class/block").join(name).join("device");
        // The controller of the disk knows; some disks are their own.
        let node =
            self.number(device.join("device/numa_node")).or_else(|| self.number(device.join("numa_node")));
        node.filter(|n| *n >= 0)
    }

    fn processors(&self, node: i64) -> Option<BTreeSet<usize>> {
        let at = self.sys.join(format!("devices/system/node/node{node}/cpulist"));
        parse_ranges(&std::fs::read_to_string(at).ok()?).filter(|found| !found.is_empty())
    }
}

impl NumaPlace {
    /// Binds every thread of this process; those that they start later are bound with them. The operator's
    /// choice (`taskset`, `CPUAffinity=`) counts: of the node's processors only those are taken that the
    /// calling thread may use, and told of; where there is none of them, nothing is bound.
    pub fn apply(&mut self) -> std::io::Result<()> {
        let Some((_, processors)) = &mut self.affinity else { return Ok(()) };
        let allowed = sched_getaffinity(None)?;
        processors.retain(|p| *p < CpuSet::MAX_CPU && allowed.is_set(*p));
        if processors.is_empty() {
            self.stay_nowhere();
            return Ok(());
        }
        let mut set = CpuSet::new();
        processors.iter().for_each(|p| set.set(*p));
        self.metadata.insert("numa_node_cpus".to_owned(), ranges(processors));
        // Twice, for threads that are being started meanwhile.
        for _ in 0..2 {
            for task in std::fs::read_dir("/proc/self/task")? {
                let id = task?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
                match id.map(|id| sched_setaffinity(Some(id), &set)) {
                    None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => {}
                    Some(Err(e)) => return Err(e.into()),
                }
            }
        }
        Ok(())
    }

    /// Nothing is bound, and nobody is told that it is.
    pub fn stay_nowhere(&mut self) {
        self.affinity = None;
        self.metadata.retain(|key, _| !matches!(key.as_str(), "numa_node" | "numa_node_cpus"));
    }
}

/// The interface of the narrowest network that an address belongs to without a gateway; `None` when two have
/// it.
fn interface_of_route(table: &str, ip: Ipv4Addr) -> Option<String> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let mut best: Option<(u32, &str)> = None;
    let mut is_double = false;
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[name, to, gateway, _, _, _, _, mask, ..] = fields.as_slice() else { continue };
        let (Some(to), Some(0), Some(mask)) = (hex(to), hex(gateway), hex(mask)) else { continue };
        if u32::from(ip) & mask != to || best.is_some_and(|(m, _)| m > mask) {
            continue;
        }
        is_double = best.is_some_and(|(m, other)| m == mask && other != name);
        best = Some((mask, name));
    }
    best.filter(|_| !is_double).map(|(_, name)| name.to_owned())
}

fn interface_of_inet6(table: &str, ip: Ipv6Addr) -> Option<String> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, _, _, _, name] = fields.as_slice() else { return None };
        (u128::from_str_radix(address, 16).ok()? == u128::from(ip)).then(|| name.to_owned())
    };
    table.lines().find_map(line)
}

fn list(all: &BTreeSet<impl ToString>) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// `0-3,8`; `None` when it is not that.
fn parse_ranges(text: &str) -> Option<BTreeSet<usize>> {
    let mut out = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More processors than a kernel knows are an error.
        out.extend((first <= last && last < 65_536).then_some(first..=last)?);
    }
    Some(out)
}

fn ranges(all: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for n in all {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with two nodes: eth0 and nvme0n1 on the second, eth1 on the first, a bond over both, a disk
    /// that does not say.
    fn host(dir: &Path) -> HostFiles {
        let sys = dir.join("sys");
        let write = |at: &str, text: &str| {
            let at = sys.join(at);
            std::fs::create_dir_all(at.parent().expect("a folder")).expect("made");
            std::fs::write(at, text).expect("written");
        };
        write("class/net/eth0/device/numa_node", "1\n");
        write("class/net/eth1/device/numa_node", "0\n");
        write("class/net/bond0/bonding/slaves", "eth0 eth1\n");
        write("class/net/bond1/bonding/slaves", "eth0\n");
        write("class/net/lo/mtu", "65536\n");
        write("devices/pci/nvme0n1/nvme0n1p2/partition", "2\n");
        write("class/block/nvme0n1/device/device/numa_node", "1\n");
        write("class/block/vda/device/numa_node", "-1\n");
        write("devices/system/node/node0/cpulist", "0-3,8\n");
        write("devices/system/node/node1/cpulist", "4-7\n");
        std::fs::create_dir_all(sys.join("dev/block")).expect("made");
        let disk = sys.join("devices/pci/nvme0n1");
        std::os::unix::fs::symlink(disk.join("nvme0n1p2"), sys.join("dev/block/259:2")).expect("linked");
        std::os::unix::fs::symlink(disk, sys.join("dev/block/259:0")).expect("linked");
        let proc = dir.join("proc");
        std::fs::create_dir_all(proc.join("net")).expect("made");
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth1 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n\
                     eth0 0000000A 00000000 0001 0 0 0 0000FFFF 0 0 0\n\
                     eth1 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
                     eth0 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
                     eth1 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        std::fs::write(proc.join("net/route"), route).expect("written");
        let inet6 = "fd000000000000000000000000000007 02 40 00 80 eth1\n";
        std::fs::write(proc.join("net/if_inet6"), inet6).expect("written");
        HostFiles { sys, proc, ..HostFiles::default() }
    }

    const AUTO: NumaWish = NumaWish { node: -1, auto: true };

    fn check(
        host: &HostFiles,
        nets: [&str; 2],
        disk: &str,
        wish: NumaWish,
        expected: &[(&str, &str)],
    ) -> NumaPlace {
        let nets = nets.map(|n| (!n.is_empty()).then(|| n.to_owned()));
        let place = host.place(nets.clone(), (!disk.is_empty()).then_some(disk), wish);
        let mut metadata = place.metadata.clone();
        metadata.retain(|key, _| !key.ends_with("face"));
        let expected = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(metadata, expected, "{nets:?} {disk}");
        place
    }

    #[test]
    fn a_daemon_stays_where_its_network_and_its_disk_are() {
        let dir = tempfile::tempdir().expect("a folder");
        let host = host(dir.path());
        let network = [("network_numa_node", "1"), ("network_numa_nodes", "1")];
        let storage = [("objectstore_numa_node", "1"), ("objectstore_numa_nodes", "1")];
        let bound = [("numa_node", "1"), ("numa_node_cpus", "4-7")];
        let all = [network, storage, bound].concat();
        let place = check(&host, ["eth0", "bond1"], "nvme0n1", AUTO, &all);
        assert_eq!(place.affinity, Some((1, (4..8).collect())));
        check(
            &host,
            ["eth0", "eth0:1"],
            "nvme0n1",
            NumaWish { auto: false, ..AUTO },
            &[network, storage].concat(),
        );
        let apart = [("network_numa_nodes", "0,1")];
        check(&host, ["eth0", "eth1"], "nvme0n1", AUTO, &[&apart[..], &storage].concat());
        let unknown = [("objectstore_numa_unknown_devices", "vda")];
        check(&host, ["eth0", "eth0"], "vda", AUTO, &[&network[..], &unknown].concat());
        let nothing =
            [("network_numa_unknown_ifaces", "front_iface,lo"), ("objectstore_numa_unknown_devices", "vda")];
        check(&host, ["", "lo"], "vda", AUTO, &nothing);
        check(&host, ["bond0", "bond0"], "", AUTO, &[("network_numa_nodes", "-2")]);
    }

    #[test]
    fn a_node_that_was_asked_for_wins() {
        let dir = tempfile::tempdir().expect("a folder");
        let host = host(dir.path());
        let unknown = ("network_numa_unknown_ifaces", "lo");
        let bound = [unknown, ("numa_node", "0"), ("numa_node_cpus", "0-3,8")];
        check(&host, ["lo", "lo"], "", NumaWish { node: 0, auto: true }, &bound);
        let place = check(&host, ["lo", "lo"], "", NumaWish { node: 7, auto: true }, &[unknown]);
        assert_eq!(place.affinity, None, "there is no such node");
    }

    #[test]
    fn interfaces_and_disks_have_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let host = host(dir.path());
        let of = |ip: &str| host.interface(ip.parse().expect("an address"));
        assert_eq!(of("127.0.0.1").as_deref(), Some("lo"));
        assert_eq!(of("10.0.9.9").as_deref(), Some("eth0"));
        assert_eq!(of("10.0.2.9").as_deref(), Some("eth1"), "the narrower network");
        assert_eq!(of("192.168.0.3"), None, "it may be either");
        assert_eq!(of("172.16.0.1"), None);
        assert_eq!((of("fd00::7").as_deref(), of("fd00::8")), (Some("eth1"), None));
        assert_eq!(host.disk(259, 2).as_deref(), Some("nvme0n1"));
        assert_eq!((host.disk(259, 0).as_deref(), host.disk(1, 1)), (Some("nvme0n1"), None));
    }

    #[test]
    fn lists_of_processors_are_read_and_written() {
        for text in ["0", "0-3,8", "0,2,4-5"] {
            assert_eq!(ranges(&parse_ranges(text).expect("a list")), text);
        }
        assert_eq!(parse_ranges("\n"), Some(BTreeSet::new()));
        for bad in ["x", "3-1", "1-", "0-99999999"] {
            assert_eq!(parse_ranges(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_process_can_be_bound_to_where_it_may_run() {
        let allowed = sched_getaffinity(None).expect("known");
        let here: BTreeSet<usize> = (0..CpuSet::MAX_CPU).filter(|p| allowed.is_set(*p)).collect();
        let place = |processors: BTreeSet<usize>| {
            let told = [("front_iface", "lo".to_owned()), ("numa_node", "0".to_owned())];
            let cpus = ("numa_node_cpus", ranges(&processors));
            let metadata = told.into_iter().chain([cpus]).map(|(k, v)| (k.to_owned(), v)).collect();
            NumaPlace { affinity: Some((0, processors)), metadata }
        };
        // The node has more processors than this process was given.
        let mut wide = place((0..CpuSet::MAX_CPU).collect());
        wide.apply().expect("bound");
        assert_eq!(sched_getaffinity(None).expect("known"), allowed);
        assert_eq!(wide, place(here));
        // None of the node's processors is among those.
        let mut apart = place([CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU + 7].into());
        apart.apply().expect("nothing to do");
        assert_eq!(sched_getaffinity(None).expect("known"), allowed);
        assert_eq!(apart.affinity, None);
        assert_eq!(apart.metadata.into_keys().collect::<Vec<_>>(), ["front_iface"]);
    }
}
