//! The OSD map as plain text: `osdmaptool --print`, `osd dump`, `osd stat`.
//!
//! Source: OSDMap::print, print_pools, print_osd, print_summary, print_oneline_summary in src/osd/OSDMap.cc.

use std::fmt::Write as _;

use types::Utime;

use crate::addrs::{in_memory_order, plain_text};
use crate::flags::{MAX_PRIMARY_AFFINITY, map_flags, osd_state};
use crate::json::stream_float;
use crate::timespan::timespan_text;
use crate::{OsdMap, Release};

fn list(osds: impl IntoIterator<Item = i32>) -> String {
    let texts: Vec<String> = osds.into_iter().map(|o| o.to_string()).collect();
    format!("[{}]", texts.join(","))
}

impl OsdMap {
    /// What `osdmaptool --print` prints. `ceph osd dump` shows the same without the empty lines.
    pub fn print(&self) -> String {
        let mut out = String::new();
        self.print_head(&mut out);
        out.push('\n');
        self.print_pools(&mut out);
        out.push('\n');
        let _ = writeln!(out, "max_osd {}", self.max_osd());
        for (id, _) in self.existing_osds() {
            self.print_osd(id.0, &mut out);
        }
        out.push('\n');
        self.print_placement(&mut out);
        for (addr, until) in in_memory_order(&self.blocklist) {
            let _ = writeln!(out, "blocklist {addr} expires {until}");
        }
        for (addr, until) in in_memory_order(&self.range_blocklist) {
            let _ = writeln!(out, "range blocklist {addr} expires {until}");
        }
        out
    }

    /// What `ceph osd dump` prints.
    pub fn print_for_cli(&self) -> String {
        let text = self.print();
        let lines = text.lines().filter(|l| !l.is_empty());
        lines.fold(String::new(), |all, line| all + line + "\n")
    }

    fn print_head(&self, out: &mut String) {
        let _ = write!(
            out,
            "epoch {}\nfsid {}\ncreated {}\nmodified {}\nflags {}\ncrush_version {}\n",
            self.epoch,
            self.fsid,
            self.created,
            self.modified,
            self.flags_text(),
            self.crush_version
        );
        let ratios = [
            ("full", self.full_ratio),
            ("backfillfull", self.backfillfull_ratio),
            ("nearfull", self.nearfull_ratio),
        ];
        for (name, ratio) in ratios {
            let _ = writeln!(out, "{name}_ratio {}", stream_float(ratio.into()));
        }
        if self.require_min_compat_client != Release::UNKNOWN {
            let _ = writeln!(out, "require_min_compat_client {}", self.require_min_compat_client);
        }
        let _ = writeln!(out, "min_compat_client {}", self.min_compat_client());
        if self.require_osd_release > Release::UNKNOWN {
            let _ = writeln!(out, "require_osd_release {}", self.require_osd_release);
        }
        let _ = writeln!(out, "stretch_mode_enabled {}", self.stretch.enabled);
        if self.stretch.enabled {
            let s = &self.stretch;
            let _ = writeln!(
                out,
                "stretch_bucket_count {}\ndegraded_stretch_mode {}\nrecovering_stretch_mode {}\nstretch_mode_bucket {}",
                s.bucket_count, s.degraded, s.recovering, s.bucket_type
            );
        }
        if !self.cluster_snapshot_now().is_empty() {
            let _ = writeln!(out, "cluster_snapshot {}", self.cluster_snapshot_now());
        }
    }

    /// The lines of `osd pool ls detail`.
    pub fn print_pools(&self, out: &mut String) {
        for (id, pool) in &self.pools {
            let name = self.pool_name(*id).unwrap_or("<unknown>");
            pool.print(id.0, name, self.removed_snaps_queue.get(id), out);
        }
    }

    /// The line of one OSD; nothing for a number outside the map.
    pub fn print_osd(&self, id: i32, out: &mut String) {
        let Some(o) = self.osd(id) else { return };
        let up = if o.is_up() { "up  " } else { "down" };
        let is_in = if self.is_in(id) { "in " } else { "out" };
        let _ = write!(out, "osd.{id} {up} {is_in} weight {}", stream_float(self.weight_f32(id).into()));
        if self.primary_affinity(id) != MAX_PRIMARY_AFFINITY {
            let _ = write!(out, " primary_affinity {}", stream_float(self.primary_affinity_f32(id).into()));
        }
        let states: Vec<&str> = osd_state::name_set(o.state).into_iter().collect();
        let _ = write!(
            out,
            " {} {} {} {}",
            o.info,
            plain_text(&o.client_addrs),
            plain_text(&o.cluster_addrs),
            states.join(",")
        );
        if !o.uuid.is_zero() {
            let _ = write!(out, " {}", o.uuid);
        }
        out.push('\n');
    }

    fn print_placement(&self, out: &mut String) {
        for (pg, osds) in &self.pg_upmap {
            let _ = writeln!(out, "pg_upmap {pg} {}", list(osds.iter().copied()));
        }
        for (pg, items) in &self.pg_upmap_items {
            let _ = writeln!(
                out,
                "pg_upmap_items {pg} {}",
                list(items.iter().flat_map(|(from, to)| [*from, *to]))
            );
        }
        for (pg, osds) in &self.pg_temp {
            let _ = writeln!(out, "pg_temp {pg} {}", list(osds.iter().copied()));
        }
        for (pg, osd) in &self.primary_temp {
            let _ = writeln!(out, "primary_temp {pg} {osd}");
        }
    }

    /// `3 osds: 3 up (since 5m), 3 in (since 5m)` and, when any is set, a line of flags behind `prefix`. With `epoch`
    /// as `osd stat` shows it, else as `status` does.
    pub fn summary(&self, now: Utime, prefix: &str, epoch: bool) -> String {
        let n = self.counts();
        let since = |stamp: Utime| {
            if stamp.is_zero() {
                String::new()
            } else {
                format!(" (since {})", timespan_text(now.since(stamp)))
            }
        };
        let (up, is_in) = (since(self.last_up_change), since(self.last_in_change));
        let mut out = format!("{} osds: {} up{up}, {} in{is_in}", n.total, n.up, n.r#in);
        if epoch {
            let _ = write!(out, "; epoch: e{}", self.epoch);
        }
        if !self.pg_temp.is_empty() {
            let _ = write!(out, "; {} remapped pgs", self.pg_temp.len());
        }
        out.push('\n');
        let flags = self.flags & !map_flags::SEMIHIDDEN;
        if flags != 0 {
            let _ = writeln!(out, "{prefix}flags {}", map_flags::to_text(flags));
        }
        out
    }

    /// `e54: 2 total, 2 up, 2 in`, as the cluster log shows it.
    pub fn oneline_summary(&self) -> String {
        let n = self.counts();
        format!("e{}: {} total, {} up, {} in", self.epoch, n.total, n.up, n.r#in)
    }
}
