//! How a file system's map of metadata servers is shown: as JSON and as text.
//!
//! Source: MDSMap::dump, MDSMap::print, MDSMap::mds_info_t::dump in src/mds/MDSMap.cc.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

use serde_json::{Value, json};
use types::{CompatSet, FeatureBits, FeatureSet};

use crate::addrs::{addrvec_json, legacy_text};
use crate::json::{array, object};
use crate::mdsmap::{CLIENT_FEATURES, MdsInfo, MdsMap, NO_FS};

/// As Ceph shows sets: with commas, and nothing around them.
pub fn list_text<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

/// `compat`, `ro_compat`, `incompat`, each with its features.
pub fn compat_json(set: &CompatSet) -> Value {
    let features = |set: &FeatureSet| {
        object(set.0.iter().map(|(n, name)| (format!("feature_{n}"), Value::from(name.as_str()))))
    };
    json!({
        "compat": features(&set.compat),
        "ro_compat": features(&set.ro_compat),
        "incompat": features(&set.incompat),
    })
}

fn named_features(bits: &FeatureBits) -> impl Iterator<Item = (usize, &'static str)> {
    CLIENT_FEATURES.into_iter().enumerate().filter(|(bit, _)| bits.contains(*bit))
}

fn features_json(bits: &FeatureBits) -> Value {
    object(named_features(bits).map(|(bit, name)| (format!("feature_{bit}"), Value::from(name))))
}

/// `{8=mimic,9=reply_encoding}`.
fn features_text(bits: &FeatureBits) -> String {
    format!("{{{}}}", list_text(named_features(bits).map(|(bit, name)| format!("{bit}={name}"))))
}

impl MdsInfo {
    pub fn dump(&self) -> Value {
        let mut value = json!({
            "gid": self.gid,
            "name": self.name,
            "rank": self.rank,
            "incarnation": self.inc,
            "state": self.state.name(),
            "state_seq": self.state_seq,
            "addr": legacy_text(&self.addrs),
            "addrs": addrvec_json(&self.addrs),
            "join_fscid": self.join_fscid,
        });
        let tail = json!({
            "export_targets": self.export_targets,
            "features": self.features,
            "flags": self.flags,
            "compat": compat_json(&self.compat),
        });
        if let (Value::Object(value), Value::Object(tail)) = (&mut value, tail) {
            if self.is_laggy() {
                value.insert("laggy_since".to_owned(), self.laggy_since.to_string().into());
            }
            value.extend(tail);
        }
        value
    }
}
impl Display for MdsInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.name();
        write!(f, "[mds.{}{{{}:{}}} state {state} seq {}", self.name, self.rank, self.gid, self.state_seq)?;
        if self.is_laggy() {
            write!(f, " laggy since {}", self.laggy_since)?;
        }
        if !self.export_targets.is_empty() {
            write!(f, " export targets {}", list_text(&self.export_targets))?;
        }
        if self.is_frozen() {
            f.write_str(" frozen")?;
        }
        if self.join_fscid != NO_FS {
            write!(f, " join_fscid={}", self.join_fscid)?;
        }
        write!(f, " addr {} compat {}]", self.addrs, self.compat.masks())
    }
}

impl MdsMap {
    pub fn dump(&self) -> Value {
        json!({
            "epoch": self.epoch.0,
            "flags": self.flags,
            "ever_allowed_features": self.ever_allowed_features,
            "explicitly_allowed_features": self.explicitly_allowed_features,
            "created": self.created.to_string(),
            "modified": self.modified.to_string(),
            "tableserver": self.tableserver,
            "root": self.root,
            "session_timeout": self.session_timeout,
            "session_autoclose": self.session_autoclose,
            "required_client_features": features_json(&self.required_client_features),
            "max_file_size": self.max_file_size,
            "last_failure": self.last_failure.0,
            "last_failure_osd_epoch": self.last_failure_osd_epoch.0,
            "compat": compat_json(&self.compat),
            "max_mds": self.max_mds,
            "in": self.r#in,
            "up": object(self.up.iter().map(|(rank, gid)| (format!("mds_{rank}"), Value::from(*gid)))),
            "failed": self.failed,
            "damaged": self.damaged,
            "stopped": self.stopped,
            "info": object(self.info.iter().map(|(gid, i)| (format!("gid_{gid}"), i.dump()))),
            "data_pools": array(self.data_pools.iter().copied()),
            "metadata_pool": self.metadata_pool,
            "enabled": self.enabled,
            "fs_name": self.fs_name,
            "balancer": self.balancer,
            "standby_count_wanted": self.standby_count_wanted.max(0),
        })
    }

    pub fn print(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: &dyn Display| {
            let _ = writeln!(out, "{name}\t{value}");
        };
        let set = |ranks: &BTreeSet<i32>| list_text(ranks);
        line("fs_name", &self.fs_name);
        line("epoch", &self.epoch.0);
        line("flags", &format_args!("{:x}", self.flags));
        line("created", &self.created);
        line("modified", &self.modified);
        line("tableserver", &self.tableserver);
        line("root", &self.root);
        line("session_timeout", &self.session_timeout);
        line("session_autoclose", &self.session_autoclose);
        line("max_file_size", &self.max_file_size);
        line("required_client_features", &features_text(&self.required_client_features));
        line("last_failure", &self.last_failure.0);
        line("last_failure_osd_epoch", &self.last_failure_osd_epoch.0);
        line("compat", &self.compat);
        line("max_mds", &self.max_mds);
        line("in", &set(&self.r#in));
        let up = list_text(self.up.iter().map(|(rank, gid)| format!("{rank}={gid}")));
        line("up", &format_args!("{{{up}}}"));
        line("failed", &set(&self.failed));
        line("damaged", &set(&self.damaged));
        line("stopped", &set(&self.stopped));
        line("data_pools", &format_args!("[{}]", list_text(&self.data_pools)));
        line("metadata_pool", &self.metadata_pool);
        line("inline_data", &if self.inline_data { "enabled" } else { "disabled" });
        line("balancer", &self.balancer);
        line("standby_count_wanted", &self.standby_count_wanted.max(0));
        // By rank; of one rank the newest holder's followers, which have no incarnation, come last.
        let mut daemons: Vec<&MdsInfo> = self.info.values().collect();
        daemons.sort_by_key(|i| (i.rank, i.inc.wrapping_sub(1) as u32, i.gid));
        daemons.iter().for_each(|i| {
            let _ = writeln!(out, "{i}");
        });
        out
    }
}
