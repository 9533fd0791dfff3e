//! The disks below daemons: which these are, and how long each is expected to live. The monitors keep what is
//! said of a disk; where it is follows from what daemons say of themselves.
//!
//! Invariants:
//! 1. What is known of a disk is what the monitors have said that they keep.
//! 2. At most `LIMIT` disks are known.
//!
//! Source: DeviceState in src/mgr/DaemonState.cc, Mgr::load_all_metadata in src/mgr/Mgr.cc.

use std::collections::{BTreeMap, BTreeSet};

use maps::timespan_text;
use serde_json::{Map, Value, json};
use types::Utime;

use crate::mon_commands::MonRequest;
use crate::times;

/// Under this prefix of the config-key store, as Ceph's manager has it.
pub const KEYS: &str = "device/";
const LIMIT: usize = 16_384;
/// Bytes of an id.
pub const MAX_ID_BYTES: usize = 256;
/// Bytes of what the monitors tell of daemons of one kind.
const METADATA_BYTES: usize = 64 << 20;

const MIN: &str = "life_expectancy_min";
const MAX: &str = "life_expectancy_max";
const STAMP: &str = "life_expectancy_stamp";
const WEAR: &str = "wear_level";

/// Where a disk is: a host, its name there, and its path.
pub type Location = (String, String, String);

/// One disk.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// What the monitors keep.
    pub kept: BTreeMap<String, String>,
    pub locations: BTreeSet<Location>,
    /// `osd.3`.
    pub daemons: BTreeSet<String>,
}

/// A disk of which something else is to be kept.
pub type Change = (String, BTreeMap<String, String>);

/// All of them, by their ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Devices(BTreeMap<String, Device>);

impl Devices {
    pub fn all(&self) -> impl Iterator<Item = (&String, &Device)> {
        self.0.iter()
    }

    pub fn get(&self, id: &str) -> Option<&Device> {
        self.0.get(id)
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= LIMIT
    }

    /// Starts over from what the monitors answered to `config-key dump`.
    pub fn load(&mut self, dump: &[u8]) {
        let Ok(Value::Object(entries)) = serde_json::from_slice(dump) else { return };
        self.0.values_mut().for_each(|device| device.kept.clear());
        self.forget_empty();
        for (key, text) in entries {
            let Some(id) = key.strip_prefix(KEYS).filter(|id| id.len() <= MAX_ID_BYTES) else { continue };
            let read = text.as_str().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
            let (Some(fields), false) = (read, self.is_full()) else { continue };
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let kept = fields.iter().map(|(name, value)| (name.clone(), text(value))).collect();
            self.0.entry(id.to_owned()).or_default().kept = kept;
        }
        // Nothing may be kept of one.
        self.forget_empty();
    }

    /// Takes the answer to `osd metadata` or `mon metadata`: where daemons of a kind have their disks.
    pub fn take_metadata(&mut self, kind: &str, json: &[u8]) {
        if json.len() > METADATA_BYTES {
            return;
        }
        let Ok(Value::Array(daemons)) = serde_json::from_slice(json) else { return };
        let prefix = format!("{kind}.");
        for device in self.0.values_mut() {
            device.daemons.retain(|name| !name.starts_with(&prefix));
            if device.daemons.is_empty() {
                device.locations.clear();
            }
        }
        for daemon in &daemons {
            let field = |name: &str| daemon.get(name).and_then(Value::as_str).unwrap_or_default();
            let name = match daemon.get("id") {
                Some(Value::Number(id)) => format!("{prefix}{id}"),
                _ => format!("{prefix}{}", field("name")),
            };
            let paths: BTreeMap<&str, &str> = pairs(field("device_paths")).collect();
            for (dev, id) in pairs(field("device_ids")) {
                if id.is_empty() || id.len() > MAX_ID_BYTES || self.is_full() {
                    continue;
                }
                let path = paths.get(dev).copied().unwrap_or_default();
                let device = self.0.entry(id.to_owned()).or_default();
                device.daemons.insert(name.clone());
                device.locations.insert((field("hostname").to_owned(), dev.to_owned(), path.to_owned()));
            }
        }
        self.forget_empty();
    }

    pub fn apply(&mut self, (id, kept): Change) {
        self.0.entry(id).or_default().kept = kept;
        self.forget_empty();
    }

    fn forget_empty(&mut self) {
        self.0.retain(|_, device| !device.kept.is_empty() || !device.daemons.is_empty());
    }
}

/// `sda=WD_1,sdb=WD_2`
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split([',', ';', ' ']).filter_map(|pair| pair.split_once('='))
}

/// Has the monitors keep a change.
pub(crate) fn request((id, kept): &Change) -> MonRequest {
    let (prefix, input) = match kept.is_empty() {
        true => ("config-key rm", String::new()),
        false => ("config-key set", json!(kept).to_string()),
    };
    let json = json!({ "prefix": prefix, "key": format!("{KEYS}{id}") }).to_string();
    MonRequest { json, input: input.into(), ..MonRequest::default() }
}

impl Device {
    fn time(&self, name: &str) -> Option<Utime> {
        times::parse(self.kept.get(name)?).filter(|at| !at.is_zero())
    }

    /// When it has failed for sure; `None` where that is not expected.
    pub fn expected_until(&self) -> Option<Utime> {
        self.time(MIN).and_then(|_| self.time(MAX))
    }

    /// What is kept of it when it is worn so much, in parts of 1, or does not tell.
    pub fn worn(&self, wear: Option<f64>) -> BTreeMap<String, String> {
        let mut kept = self.kept.clone();
        match wear {
            Some(wear) => drop(kept.insert(WEAR.to_owned(), (wear as f32).to_string())),
            None => drop(kept.remove(WEAR)),
        }
        kept
    }

    /// What is kept of it when it is expected to fail from one time to another.
    pub fn expecting(&self, from: Utime, to: Option<Utime>, now: Utime) -> BTreeMap<String, String> {
        let text = |at: Utime| if at.is_zero() { String::new() } else { at.to_string() };
        let mut kept = self.kept.clone();
        kept.insert(MIN.to_owned(), text(from));
        kept.insert(MAX.to_owned(), text(to.unwrap_or(Utime::ZERO)));
        kept.insert(STAMP.to_owned(), text(now));
        kept
    }

    /// The same when nothing is expected.
    pub fn expecting_nothing(&self) -> BTreeMap<String, String> {
        let mut kept = self.kept.clone();
        [MIN, MAX, STAMP].iter().for_each(|name| drop(kept.remove(*name)));
        kept
    }

    /// From now on: `4w to 6M`.
    pub fn life_expectancy(&self, now: Utime) -> String {
        let Some(from) = self.time(MIN) else { return String::new() };
        if now >= from {
            return "now".to_owned();
        }
        let earliest = timespan_text(from.since(now));
        match self.time(MAX).map(|to| timespan_text(to.since(now))) {
            None => format!(">{earliest}"),
            Some(latest) if latest == earliest => earliest,
            Some(latest) => format!("{earliest} to {latest}"),
        }
    }

    fn wear(&self) -> Option<f64> {
        // Ceph keeps it in 32 bits.
        let level: f32 = self.kept.get(WEAR)?.trim().parse().ok()?;
        (level.is_finite() && level >= 0.0).then(|| f64::from(level))
    }

    pub fn wear_text(&self) -> String {
        self.wear().map(|level| format!("{}%", (100.1 * level) as i64)).unwrap_or_default()
    }

    pub fn value(&self, id: &str) -> Value {
        let location = |(host, dev, path): &Location| json!({ "host": host, "dev": dev, "path": path });
        let locations: Vec<Value> = self.locations.iter().map(location).collect();
        let mut out = json!({ "devid": id, "location": locations, "daemons": self.daemons });
        let Some(fields) = out.as_object_mut() else { return out };
        if let Some(from) = self.time(MIN) {
            let time = |name: &str| self.time(name).unwrap_or(Utime::ZERO).to_string();
            fields.insert(MIN.to_owned(), from.to_string().into());
            fields.insert(MAX.to_owned(), time(MAX).into());
            fields.insert(STAMP.to_owned(), time(STAMP).into());
        }
        if let Some(level) = self.wear() {
            fields.insert(WEAR.to_owned(), level.into());
        }
        out
    }

    /// For `device info`.
    pub fn text(&self, id: &str) -> String {
        let mut out = format!("device {id}\n");
        for (host, dev, path) in &self.locations {
            out += &format!("attachment {host} {dev} {path}\n\n");
        }
        out += &self.daemons.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        out += "\n";
        if let Some(level) = self.wear() {
            out += &format!("wear_level {}\n", level as f32);
        }
        if let Some(from) = self.time(MIN) {
            let time = |name: &str| self.time(name).unwrap_or(Utime::ZERO);
            out += &format!("life_expectancy {from} to {} (as of {})\n", time(MAX), time(STAMP));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_where_their_daemons_say() {
        let mut devices = Devices::default();
        let osds = r#"[{"id":0,"hostname":"h","device_ids":"sda=WD_1,sdb=WD_2","device_paths":"sda=/p/1,sdb=/p/2"},
            {"id":1,"hostname":"h","device_ids":"sda=WD_1,vda=","device_paths":""},{"id":2},7]"#;
        devices.take_metadata("osd", osds.as_bytes());
        devices.take_metadata("mon", br#"[{"name":"a","hostname":"h","device_ids":"sda=WD_1"}]"#);
        let daemons =
            |d: &Devices, id: &str| d.get(id).map(|d| d.daemons.iter().cloned().collect::<Vec<_>>());
        assert_eq!(devices.all().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["WD_1", "WD_2"]);
        assert_eq!(daemons(&devices, "WD_1"), Some(["mon.a", "osd.0", "osd.1"].map(str::to_owned).to_vec()));
        let second = devices.get("WD_2").expect("known").value("WD_2");
        assert_eq!(
            second,
            json!({ "devid": "WD_2", "location": [{ "host": "h", "dev": "sdb", "path": "/p/2" }],
                "daemons": ["osd.0"] })
        );
        // An OSD that has gone; its disk goes unless something is kept of it.
        devices.take_metadata("osd", b"[]");
        assert_eq!(
            (daemons(&devices, "WD_1"), daemons(&devices, "WD_2")),
            (Some(vec!["mon.a".into()]), None)
        );
        for bad in ["", "{}", "[[]]"] {
            devices.take_metadata("osd", bad.as_bytes());
            devices.load(bad.as_bytes());
        }
        assert_eq!(devices.all().count(), 1);
    }

    #[test]
    fn what_is_kept_is_read_as_far_as_it_makes_sense() {
        let mut devices = Devices::default();
        let all = json!({
            "device/a": r#"{"wear_level":"0.25"}"#, "device/b": r#"{"a":7}"#, "device/c": "x", "other/d": "{}",
            "device/e": r#"{"life_expectancy_min":"soon","wear_level":"-1"}"#,
        });
        devices.load(all.to_string().as_bytes());
        assert_eq!(devices.all().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "b", "e"]);
        let of = |id: &str| devices.get(id).expect("known").clone();
        // As 16.2.15's manager shows it.
        assert_eq!(of("a").text("a"), "device a\n\nwear_level 0.25\n");
        assert_eq!((of("a").wear_text(), of("e").wear_text()), ("25%".to_owned(), String::new()));
        assert_eq!(
            (of("b").kept.get("a").cloned(), of("e").life_expectancy(Utime::ZERO)),
            (Some("7".into()), String::new())
        );
        let many: Map<String, Value> =
            (0..LIMIT + 9).map(|n| (format!("device/{n}"), json!(r#"{"a":"b"}"#))).collect();
        devices.load(Value::Object(many).to_string().as_bytes());
        assert_eq!(devices.all().count(), LIMIT);
    }
}
