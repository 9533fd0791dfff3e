//! Keeps an OSD on the memory node of its network and its disk, and reports the node in its metadata.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use admin::options::Values;
use runtime::{HostFiles, NumaWish};
use types::OsdId;

/// What decides on an OSD's place on its host.
#[derive(Debug, Clone)]
pub(crate) struct NumaOf {
    pub osd: OsdId,
    pub front: IpAddr,
    pub back: IpAddr,
    pub block: PathBuf,
    /// Options of the configuration file.
    pub local: BTreeMap<String, String>,
    /// Other daemons are not moved with it.
    pub only_daemon: bool,
    pub host: HostFiles,
}

impl NumaOf {
    /// Finds the place and stays there; what to tell of it. `given`: the monitors' options. Once, and not
    /// before they are known: a thread that was bound is not told apart from one that the operator bound.
    pub fn settle(&self, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut values = Values::new(format!("osd.{}", self.osd), &self.local);
        values.set_from_mon(given);
        let auto = values.get("osd_numa_auto_affinity").as_deref() == Some("true");
        let wish = NumaWish { node: values.int("osd_numa_node"), auto };
        let mut place = self.host.numa_place(self.front, self.back, &self.block, wish);
        if !self.only_daemon {
            place.stay_nowhere();
        } else if let Err(error) = place.apply() {
            tracing::warn!("the processors of the memory node cannot be chosen: {error}");
            place.stay_nowhere();
        }
        place.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitors_options_count_and_only_a_daemon_alone_moves() {
        let dir = tempfile::tempdir().expect("a folder");
        let node = dir.path().join("devices/system/node/node0");
        std::fs::create_dir_all(&node).expect("made");
        let here = std::fs::read_to_string("/proc/self/status").expect("read");
        let here = here.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("said").trim();
        std::fs::write(node.join("cpulist"), here).expect("written");
        let ip = IpAddr::from([127, 0, 0, 1]);
        let host = HostFiles { sys: dir.path().into(), ..HostFiles::default() };
        let block = dir.path().join("block");
        let mut of = NumaOf {
            osd: OsdId(3),
            front: ip,
            back: ip,
            block,
            local: BTreeMap::new(),
            only_daemon: true,
            host,
        };
        let asked = BTreeMap::from([("osd_numa_node".to_owned(), "0".to_owned())]);
        let known = |of: &NumaOf, given: &BTreeMap<_, _>| of.settle(given).remove("numa_node_cpus");
        assert_eq!(known(&of, &BTreeMap::new()), None);
        assert_eq!(known(&of, &asked).as_deref(), Some(here));
        let nowhere = BTreeMap::from([("osd_numa_node".to_owned(), "9".to_owned())]);
        assert_eq!(known(&of, &nowhere), None, "there is no such node");
        of.local = asked.clone();
        let never = BTreeMap::from([("osd_numa_node".to_owned(), "-1".to_owned())]);
        assert_eq!(known(&of, &BTreeMap::new()).as_deref(), Some(here), "the configuration file counts");
        assert_eq!(known(&of, &never), Some(here.to_owned()), "above what the monitors say");
        of.only_daemon = false;
        assert_eq!(known(&of, &asked), None);
        assert_eq!(of.settle(&asked).get("network_numa_unknown_ifaces").map(String::as_str), Some("lo"));
    }
}
