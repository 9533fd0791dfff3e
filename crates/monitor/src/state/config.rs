//! The config database: option values by section and mask, and what applies to one daemon or client.

use std::collections::{BTreeMap, VecDeque};

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AuthName, EntityType, Utime};

/// Change sets kept for `config log`.
const HISTORY_KEPT: usize = 200;

/// Limits a value to daemons at a place or on a device class. Source: OptionMask in src/mon/ConfigMap.h.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mask {
    /// CRUSH type and bucket name (`host`, `foo`).
    pub location: Option<(String, String)>,
    pub device_class: Option<String>,
}

impl Mask {
    pub fn is_empty(&self) -> bool {
        self.location.is_none() && self.device_class.is_none()
    }

    /// As `config dump` shows it: `host:foo/class:ssd`.
    pub fn text(&self) -> String {
        let location = self.location.as_ref().map(|(t, v)| format!("{t}:{v}"));
        let class = self.device_class.as_ref().map(|c| format!("class:{c}"));
        let parts: Vec<String> = location.into_iter().chain(class).collect();
        parts.join("/")
    }
}

/// One value: the section is `global`, a type (`osd`) or an entity or a prefix of one (`osd.3`, `client.rgw`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigEntry {
    pub section: String,
    pub mask: Mask,
    pub name: String,
    pub value: String,
}

/// Splits `osd/class:ssd` into section and mask; `None` when the section is no entity type.
/// Source: ConfigMap::parse_mask.
pub fn parse_who(who: &str) -> Option<(String, Mask)> {
    let mut section = String::new();
    let mut mask = Mask::default();
    for part in who.split('/') {
        if let Some((kind, value)) = part.split_once(':') {
            match kind {
                "class" => mask.device_class = Some(value.to_owned()),
                _ => mask.location = Some((kind.to_owned(), value.to_owned())),
            }
            continue;
        }
        if part != "global" {
            EntityType::parse(part.split_once('.').map_or(part, |(t, _)| t))?;
        }
        part.clone_into(&mut section);
    }
    Some((section, mask))
}

/// What is known of the asker when its options are looked up.
#[derive(Debug, Clone, Default)]
pub struct EntityView<'a> {
    pub name: Option<&'a AuthName>,
    /// CRUSH type to bucket name.
    pub location: BTreeMap<String, String>,
    pub device_class: String,
    /// CRUSH type names to numbers: smaller is more precise.
    pub type_ids: BTreeMap<String, i32>,
}

/// The database. Keys are `who/name` as typed: the section with its mask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigDb {
    pub version: u64,
    /// Section text with mask (`global`, `osd/class:ssd`), then option, then value.
    entries: BTreeMap<String, BTreeMap<String, String>>,
    pub history: VecDeque<ConfigChange>,
}

/// Options set or removed together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigChange {
    /// Filled in when applied.
    pub version: u64,
    pub stamp: Utime,
    /// What made it; empty for a command.
    pub name: String,
    /// `who/option` to its old and new value.
    pub diff: BTreeMap<String, (Option<String>, Option<String>)>,
}
codec::wire_struct!(ConfigChange(1, 1) { version, stamp, name, diff });

impl ConfigDb {
    pub fn get(&self, who: &str, name: &str) -> Option<&String> {
        self.entries.get(who)?.get(name)
    }

    /// Every value: `global` first, then each type, followed by its entities.
    pub fn iter(&self) -> impl Iterator<Item = ConfigEntry> + '_ {
        let mut all: Vec<((usize, bool, String), String, ConfigEntry)> = Vec::new();
        for (who, options) in &self.entries {
            let Some((section, mask)) = parse_who(who) else { continue };
            let section = if section.is_empty() { "global".to_owned() } else { section };
            let order = (type_order(&section), section.contains('.'), section.clone());
            for (name, value) in options {
                let entry = ConfigEntry {
                    section: section.clone(),
                    mask: mask.clone(),
                    name: name.clone(),
                    value: value.clone(),
                };
                all.push((order.clone(), format!("{name} {who}/{name}"), entry));
            }
        }
        all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        all.into_iter().map(|(_, _, e)| e)
    }

    /// The values that apply to an entity, with the section each comes from.
    ///
    /// Source: ConfigMap::generate_entity_map.
    pub fn resolve(&self, who: &EntityView<'_>) -> BTreeMap<String, ConfigEntry> {
        let sections = sections_of(who.name);
        let mut best: BTreeMap<String, (usize, i32, ConfigEntry)> = BTreeMap::new();
        for entry in self.iter() {
            let Some(depth) = sections.iter().position(|s| *s == entry.section) else { continue };
            if !matches(&entry.mask, who) {
                continue;
            }
            let precision = precision(&entry.mask, who);
            let better = match best.get(&entry.name) {
                Some((d, p, _)) => depth > *d || (depth == *d && precision <= *p),
                None => true,
            };
            if better {
                best.insert(entry.name.clone(), (depth, precision, entry));
            }
        }
        best.into_iter().map(|(name, (_, _, e))| (name, e)).collect()
    }

    /// Whether the option is set for anybody; most are not.
    pub fn is_set(&self, name: &str) -> bool {
        self.entries.values().any(|options| options.contains_key(name))
    }

    /// One option's value of [`ConfigDb::resolve`].
    pub fn resolve_one(&self, who: &EntityView<'_>, name: &str) -> Option<String> {
        let set = self.entries.iter().filter_map(|(section, options)| {
            let value = options.get(name)?.clone();
            Some((section.clone(), BTreeMap::from([(name.to_owned(), value)])))
        });
        let entries: BTreeMap<_, _> = set.collect();
        if entries.is_empty() {
            return None;
        }
        Self { entries, ..Self::default() }.resolve(who).remove(name).map(|e| e.value)
    }

    pub(crate) fn apply(&mut self, change: &ConfigChange) {
        for (key, (_, new)) in &change.diff {
            let Some((who, name)) = split_key(key) else { continue };
            match new {
                Some(v) => {
                    self.entries.entry(who.to_owned()).or_default().insert(name.to_owned(), v.clone());
                }
                None => {
                    if let Some(options) = self.entries.get_mut(who) {
                        options.remove(name);
                    }
                    self.entries.retain(|_, options| !options.is_empty());
                }
            }
        }
        self.version += 1;
        self.history.push_back(ConfigChange { version: self.version, ..change.clone() });
        while self.history.len() > HISTORY_KEPT {
            self.history.pop_front();
        }
    }
}

/// `who/name` in its parts. Options of the manager's modules have slashes in their names (`mgr/balancer/mode`).
/// Source: ConfigMap::parse_key.
pub(crate) fn split_key(key: &str) -> Option<(&str, &str)> {
    match key.find("/mgr/") {
        Some(at) => Some((key.get(..at)?, key.get(at + 1..)?)),
        None => key.rsplit_once('/'),
    }
}

/// From the widest section to the narrowest: `global`, `client`, `client.a`, `client.a.b`.
fn sections_of(name: Option<&AuthName>) -> Vec<String> {
    let mut out = vec!["global".to_owned()];
    let Some(name) = name else { return out };
    let mut so_far = String::new();
    for part in name.to_string().split('.') {
        if !so_far.is_empty() {
            so_far.push('.');
        }
        so_far.push_str(part);
        out.push(so_far.clone());
    }
    out
}

/// The order in which sections are listed. Source: "config dump" in ConfigMonitor::preprocess_command.
fn type_order(section: &str) -> usize {
    let kind = section.split_once('.').map_or(section, |(kind, _)| kind);
    ["global", "mon", "mgr", "osd", "mds", "client"].iter().position(|k| *k == kind).unwrap_or(usize::MAX)
}

fn matches(mask: &Mask, who: &EntityView<'_>) -> bool {
    let class_fits = mask.device_class.as_ref().is_none_or(|c| *c == who.device_class);
    let place_fits = mask.location.as_ref().is_none_or(|(t, v)| who.location.get(t) == Some(v));
    class_fits && place_fits
}

/// Smaller is more precise.
fn precision(mask: &Mask, who: &EntityView<'_>) -> i32 {
    let types = i32::try_from(who.type_ids.len()).unwrap_or(i32::MAX - 1);
    if let Some(id) = mask.location.as_ref().and_then(|(t, _)| who.type_ids.get(t)) {
        return *id;
    }
    if mask.device_class.is_some() { types } else { types + 1 }
}

impl Encode for ConfigDb {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        self.entries.encode(w);
        self.history.encode(w);
    }
}
impl Decode for ConfigDb {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, entries: Decode::decode(r)?, history: Decode::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db(values: &[(&str, &str, &str)]) -> ConfigDb {
        let mut db = ConfigDb::default();
        for (who, name, value) in values {
            let diff = [(format!("{who}/{name}"), (None, Some((*value).to_owned())))].into();
            db.apply(&ConfigChange { diff, ..ConfigChange::default() });
        }
        db
    }

    fn check(db: &ConfigDb, name: &str, class: &str, want: &[(&str, &str)]) {
        let name = AuthName::parse(name);
        let view = EntityView {
            name: name.as_ref(),
            device_class: class.to_owned(),
            location: [("host".to_owned(), "h1".to_owned()), ("rack".to_owned(), "r1".to_owned())].into(),
            type_ids: [("host".to_owned(), 1), ("rack".to_owned(), 3)].into(),
        };
        let got: Vec<(String, String)> = db.resolve(&view).into_iter().map(|(k, e)| (k, e.value)).collect();
        let want: Vec<(String, String)> = want.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn narrower_sections_win_then_more_precise_masks() {
        let db = db(&[
            ("global", "a", "1"),
            ("osd", "a", "2"),
            ("osd.3", "a", "3"),
            ("osd/class:ssd", "b", "ssd"),
            ("osd/host:h1", "b", "host"),
            ("osd/rack:r1", "b", "rack"),
            ("client.rgw", "c", "gw"),
        ]);
        check(&db, "osd.3", "ssd", &[("a", "3"), ("b", "host")]);
        check(&db, "osd.4", "hdd", &[("a", "2"), ("b", "host")]);
        check(&db, "client.rgw.x", "", &[("a", "1"), ("c", "gw")]);
        check(&db, "mds.x", "", &[("a", "1")]);
    }

    #[test]
    fn sections_must_name_a_type() {
        assert!(parse_who("nonsense").is_none());
        assert_eq!(
            parse_who("osd/host:a/class:ssd").map(|(s, m)| (s, m.text())),
            Some(("osd".into(), "host:a/class:ssd".into()))
        );
    }

    #[test]
    fn options_of_modules_have_slashes_in_their_names() {
        let mut db = db(&[("mgr", "mgr/balancer/mode", "none"), ("mgr.x", "mgr/balancer/mode", "upmap")]);
        check(&db, "mgr.x", "", &[("mgr/balancer/mode", "upmap")]);
        check(&db, "mgr.y", "", &[("mgr/balancer/mode", "none")]);
        let diff = [("mgr/mgr/balancer/mode".to_owned(), (None, None))].into();
        db.apply(&ConfigChange { diff, ..ConfigChange::default() });
        check(&db, "mgr.y", "", &[]);
    }

    #[test]
    fn removing_leaves_nothing_behind() {
        let mut db = db(&[("osd", "a", "2")]);
        let diff = [("osd/a".to_owned(), (Some("2".to_owned()), None))].into();
        db.apply(&ConfigChange { diff, ..ConfigChange::default() });
        assert_eq!((db.iter().count(), db.version, db.history.len()), (0, 2, 2));
    }
}
