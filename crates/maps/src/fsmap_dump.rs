//! How the map of all file systems is shown: as JSON, as text, and in the few words of `ceph status`.
//!
//! Source: FSMap::dump, print, print_summary in src/mds/FSMap.cc. The words for `ceph status` are 16.2.15's.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde_json::{Map, Value, json};

use crate::fsmap::{Filesystem, FsMap, MirrorInfo};
use crate::json::{array, object};
use crate::mdsmap::{FsId, MdsInfo, MdsState, Rank};
use crate::mdsmap_dump::{compat_json, list_text};

impl MirrorInfo {
    fn dump(&self) -> Value {
        let peers = self.peers.iter().map(|(uuid, p)| {
            let remote = json!({
                "client_name": p.client_name,
                "cluster_name": p.cluster_name,
                "fs_name": p.fs_name,
            });
            (uuid.as_str(), json!({ "remote": remote }))
        });
        json!({ "peers": object(peers) })
    }
}
impl Display for MirrorInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peers = self.peers.iter().map(|(uuid, p)| {
            let (client, cluster, fs) = (&p.client_name, &p.cluster_name, &p.fs_name);
            let remote = format!("{{client_name={client}, cluster_name={cluster}, fs_name={fs}}}");
            format!("{{uuid={uuid}, remote_cluster={remote}}}")
        });
        write!(f, "[peers={}]", list_text(peers))
    }
}

impl Filesystem {
    /// `ceph fs get --format json`.
    pub fn dump(&self) -> Value {
        let mut value = Map::new();
        value.insert("mdsmap".to_owned(), self.map.dump());
        value.insert("id".to_owned(), self.fscid.into());
        if self.mirror.mirrored {
            value.insert("mirror_info".to_owned(), self.mirror.dump());
        }
        Value::Object(value)
    }

    /// `ceph fs get`.
    pub fn print(&self) -> String {
        let mut out = format!("Filesystem '{}' ({})\n{}", self.map.fs_name, self.fscid, self.map.print());
        if self.mirror.mirrored {
            let _ = writeln!(out, "{}", self.mirror);
        }
        out
    }
}

/// A daemon's state, with a mark when it is silent.
fn state_text(info: &MdsInfo) -> String {
    let laggy = if info.is_laggy() { "(laggy or crashed)" } else { "" };
    format!("{}{laggy}", info.state.name())
}

impl FsMap {
    /// `ceph fs dump --format json`.
    pub fn dump(&self) -> Value {
        let standbys = self.standbys.values().map(|(info, epoch)| {
            let mut value = info.dump();
            if let Value::Object(fields) = &mut value {
                fields.insert("epoch".to_owned(), epoch.0.into());
            }
            value
        });
        json!({
            "epoch": self.epoch.0,
            "default_fscid": self.legacy_client_fscid,
            "compat": compat_json(&self.compat),
            "feature_flags": {
                "enable_multiple": self.enable_multiple,
                "ever_enabled_multiple": self.ever_enabled_multiple,
            },
            "standbys": array(standbys),
            "filesystems": array(self.filesystems.values().map(Filesystem::dump)),
        })
    }

    /// `ceph fs dump`.
    pub fn print(&self) -> String {
        let mut out = format!("e{}\n", self.epoch);
        let flags = (u8::from(self.enable_multiple), u8::from(self.ever_enabled_multiple));
        let _ = writeln!(out, "enable_multiple, ever_enabled_multiple: {},{}", flags.0, flags.1);
        let _ = writeln!(out, "default compat: {}", self.compat);
        let _ = writeln!(out, "legacy client fscid: {}\n ", self.legacy_client_fscid);
        if self.filesystems.is_empty() {
            out.push_str("No filesystems configured\n");
        }
        for fs in self.filesystems.values() {
            let _ = write!(out, "{} \n \n", fs.print());
        }
        if !self.standbys.is_empty() {
            out.push_str("Standby daemons:\n \n");
        }
        for (info, _) in self.standbys.values() {
            let _ = writeln!(out, "{info}");
        }
        out
    }

    /// Every daemon with a rank or a rank to follow, by number, and its file system.
    fn ranked(&self) -> BTreeMap<u64, (FsId, &MdsInfo)> {
        let of_fs = |fs: &'_ Filesystem| fs.fscid;
        self.filesystems
            .values()
            .flat_map(|fs| fs.map.info.iter().map(move |(gid, info)| (*gid, (of_fs(fs), info))))
            .collect()
    }

    fn lost(&self) -> (usize, usize) {
        let each = self.filesystems.values();
        each.fold((0, 0), |(f, d), fs| (f + fs.map.failed.len(), d + fs.map.damaged.len()))
    }

    /// The `fsmap` part of `ceph status --format json`.
    pub fn dump_summary(&self) -> Value {
        let mut out = Map::new();
        out.insert("epoch".to_owned(), self.epoch.0.into());
        // One after the other, without a section of their own: of several the last one's are seen.
        for fs in self.filesystems.values() {
            out.insert("id".to_owned(), fs.fscid.into());
            out.insert("up".to_owned(), fs.map.up.len().into());
            out.insert("in".to_owned(), fs.map.r#in.len().into());
            out.insert("max".to_owned(), fs.map.max_mds.into());
        }
        let ranked = self.ranked();
        let by_rank = ranked.iter().map(|(gid, (fscid, info))| {
            json!({
                "filesystem_id": fscid,
                "rank": info.rank,
                "name": info.name,
                "status": state_text(info),
                "gid": gid,
            })
        });
        out.insert("by_rank".to_owned(), array(by_rank));
        out.insert(MdsState::STANDBY.name().to_owned(), self.standbys.len().into());
        let (failed, damaged) = self.lost();
        if failed > 0 {
            out.insert("failed".to_owned(), failed.into());
        }
        if damaged > 0 {
            out.insert("damaged".to_owned(), damaged.into());
        }
        Value::Object(out)
    }

    /// `ceph mds stat`.
    pub fn summary(&self) -> String {
        let mut out = self.summary_of_file_systems();
        let mut by_state: BTreeMap<MdsState, usize> = [(MdsState::STANDBY, self.standbys.len())].into();
        let mut by_rank: BTreeMap<(FsId, Rank), &MdsInfo> = BTreeMap::new();
        for (fscid, info) in self.ranked().into_values() {
            *by_state.entry(info.state).or_default() += 1;
            if !info.follows() {
                by_rank.insert((fscid, info.rank), info);
            }
        }
        if (1..5).contains(&by_rank.len()) {
            let shown = by_rank.iter().map(|((fscid, rank), info)| {
                let count = by_state.entry(info.state).or_default();
                *count = count.saturating_sub(1);
                let name = self.filesystems.get(fscid).map_or("", |fs| fs.map.fs_name.as_str());
                let place =
                    if self.filesystems.len() > 1 { format!("{name}:{rank}") } else { rank.to_string() };
                format!("{place}={}={}", info.name, state_text(info))
            });
            let mut shown: Vec<String> = shown.collect();
            if self.filesystems.len() > 1 {
                shown.sort();
            }
            let _ = write!(out, " {{{}}}", shown.join(","));
        }
        for (state, count) in by_state.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(out, " {count} {}", state.name());
        }
        match self.lost() {
            (0, 0) => {}
            (failed, 0) => drop(write!(out, ", {failed} failed")),
            (0, damaged) => drop(write!(out, ", {damaged} damaged")),
            (failed, damaged) => drop(write!(out, ", {failed} failed, {damaged} damaged")),
        }
        out
    }

    fn summary_of_file_systems(&self) -> String {
        let ranks = |fs: &Filesystem| {
            let (name, map) = (&fs.map.fs_name, &fs.map);
            format!("{name}:{}/{}", map.up.len(), map.r#in.len())
        };
        let degraded = || self.filesystems.values().filter(|fs| fs.map.is_degraded());
        if self.filesystems.len() <= 3 {
            let each = self.filesystems.values().map(|fs| match fs.map.is_degraded() {
                true => ranks(fs),
                false => format!("{}:{}", fs.map.fs_name, fs.map.r#in.len()),
            });
            return each.collect::<Vec<_>>().join(" ");
        }
        let out = format!("{} fs", self.filesystems.len());
        match degraded().count() {
            0 => out,
            n if n <= 3 => out + &format!(" (degraded: {})", degraded().map(ranks).collect::<String>()),
            n => out + &format!(" (degraded: {n} fs)"),
        }
    }

    /// The line of metadata servers in `ceph status`.
    pub fn daemons_summary(&self) -> String {
        let sum = |count: &dyn Fn(&Filesystem) -> usize| self.filesystems.values().map(count).sum::<usize>();
        let (up, r#in) = (sum(&|fs| fs.map.up.len()), sum(&|fs| fs.map.r#in.len()));
        let followers = sum(&|fs| fs.map.count_of(MdsState::STANDBY_REPLAY));
        let mut out = format!("{up}/{in} daemons up");
        for (count, open, what) in [
            (self.lost().0, " (", " failed)"),
            (self.standbys.len(), ", ", " standby"),
            (followers, ", ", " hot standby"),
        ] {
            if count > 0 {
                let _ = write!(out, "{open}{count}{what}");
            }
        }
        out
    }

    /// The line of file systems in `ceph status`; none without file systems.
    pub fn volumes_summary(&self) -> Option<String> {
        if self.filesystems.is_empty() {
            return None;
        }
        let (mut healthy, mut recovering, mut failed, mut stopped, mut damaged) = (0, 0, 0, 0, 0);
        for map in self.filesystems.values().map(|fs| &fs.map) {
            damaged += usize::from(!map.damaged.is_empty());
            if !map.failed.is_empty() {
                failed += 1;
            } else if map.is_degraded() {
                recovering += 1;
            } else if map.max_mds == 0 {
                stopped += 1;
            } else {
                healthy += 1;
            }
        }
        let mut out = format!("{healthy}/{} healthy", self.filesystems.len());
        for (count, what) in [
            (recovering, ", N recovering"),
            (failed, ", N failed"),
            (stopped, ", N stopped"),
            (damaged, "; N damaged"),
        ] {
            if count > 0 {
                out += &what.replace('N', &count.to_string());
            }
        }
        Some(out)
    }
}
