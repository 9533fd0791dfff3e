//! What the monitors say of the cluster that no map tells a manager: health, the quorum, and what daemons
//! said of themselves when they began.
//!
//! Source: get_health, get_quorum_status and get_service_list in src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::BTreeMap;

use serde_json::Value;

/// Bytes of one answer; that of a thousand OSDs has three million.
const ANSWER_BYTES: usize = 64 << 20;
/// Metadata of a daemon. An option has the same name, and what reads options is found by their whole names.
pub(super) const JOURNAL: &str = concat!("osd", "_journal");

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    Health,
    Quorum,
    /// What daemons of this kind say of themselves.
    Metadata(&'static str),
}

impl Question {
    pub fn prefix(self) -> String {
        match self {
            Self::Health => "health".to_owned(),
            Self::Quorum => "quorum_status".to_owned(),
            Self::Metadata(kind) => format!("{kind} metadata"),
        }
    }
}

/// Kinds of daemons that tell the monitors of themselves.
pub(crate) const KINDS: [&str; 4] = ["mon", "mgr", "osd", "mds"];

/// A monitor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Mon {
    pub name: String,
    pub rank: String,
    /// Without its port.
    pub addr: String,
    pub in_quorum: bool,
}

/// What a daemon says of itself.
pub(super) type Fields = BTreeMap<String, String>;

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Facts {
    /// `HEALTH_OK`; empty before it is known.
    pub status: String,
    /// By code: severity, and the summary.
    pub checks: BTreeMap<String, (String, String)>,
    pub(super) mons: Vec<Mon>,
    /// By kind and id.
    daemons: BTreeMap<&'static str, BTreeMap<String, Fields>>,
}

/// Fields of daemons' metadata that are told; others are not kept.
const KEPT: [&str; 12] = [
    "hostname",
    "ceph_version",
    "front_iface",
    "back_iface",
    "osd_objectstore",
    "backend_filestore_dev_node",
    JOURNAL,
    "bluestore_bdev_dev_node",
    "bluefs_wal_dev_node",
    "bluefs_db_dev_node",
    "devices",
    "device_ids",
];

impl Facts {
    /// Takes an answer; false where it is none.
    pub fn take(&mut self, question: Question, result: i32, json: &[u8]) -> bool {
        if result != 0 || json.len() > ANSWER_BYTES {
            return false;
        }
        let Ok(value) = serde_json::from_slice::<Value>(json) else { return false };
        let taken = match question {
            Question::Health => self.take_health(&value),
            Question::Quorum => self.take_quorum(&value),
            Question::Metadata(kind) => self.take_metadata(kind, &value),
        };
        taken.is_some()
    }

    fn take_health(&mut self, value: &Value) -> Option<()> {
        let status = value.get("status")?.as_str()?;
        let check = |(code, check): (&String, &Value)| {
            let severity = check.get("severity")?.as_str()?.to_owned();
            let summary = check.pointer("/summary/message")?.as_str()?.to_owned();
            Some((code.clone(), (severity, summary)))
        };
        self.checks = value.get("checks")?.as_object()?.iter().filter_map(check).collect();
        status.clone_into(&mut self.status);
        Some(())
    }

    fn take_quorum(&mut self, value: &Value) -> Option<()> {
        let quorum = value.get("quorum")?.as_array()?;
        let mon = |mon: &Value| {
            let rank = mon.get("rank")?;
            Some(Mon {
                name: mon.get("name")?.as_str()?.to_owned(),
                rank: rank.to_string(),
                addr: without_port(mon.get("public_addr")?.as_str()?).to_owned(),
                in_quorum: quorum.contains(rank),
            })
        };
        self.mons = value.pointer("/monmap/mons")?.as_array()?.iter().filter_map(mon).collect();
        Some(())
    }

    fn take_metadata(&mut self, kind: &'static str, value: &Value) -> Option<()> {
        let daemon = |daemon: &Value| {
            let id = match daemon.get("id").filter(|id| id.is_number()) {
                Some(id) => id.to_string(),
                None => daemon.get("name")?.as_str()?.to_owned(),
            };
            let field = |name: &str| Some((name.to_owned(), daemon.get(name)?.as_str()?.to_owned()));
            Some((id, KEPT.into_iter().filter_map(field).collect()))
        };
        let daemons = value.as_array()?.iter().filter_map(daemon).collect();
        self.daemons.insert(kind, daemons);
        Some(())
    }

    /// What a daemon says of itself; `None` where it has said nothing.
    pub(super) fn of(&self, kind: &str, id: &str) -> Option<&Fields> {
        self.daemons.get(kind)?.get(id)
    }

    /// Managers that have told the monitors of themselves, with their hosts.
    pub fn managers(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.daemons.get("mgr").into_iter().flatten();
        all.map(|(id, fields)| (id.as_str(), text(Some(fields), "hostname")))
    }

    pub fn is_known(&self) -> bool {
        !self.status.is_empty()
    }

    /// 0 for good health, 1 for a warning, 2 for an error.
    pub(super) fn health(&self) -> Option<f64> {
        match self.status.as_str() {
            "HEALTH_OK" => Some(0.0),
            "HEALTH_WARN" => Some(1.0),
            "HEALTH_ERR" => Some(2.0),
            _ => None,
        }
    }
}

/// A field; empty where there is none.
pub(super) fn text<'a>(fields: Option<&'a Fields>, name: &str) -> &'a str {
    fields.and_then(|f| f.get(name)).map_or("", String::as_str)
}

/// `10.0.0.1` of `10.0.0.1:6789/0`.
pub(super) fn without_port(addr: &str) -> &str {
    addr.rsplit_once(':').map_or(addr, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(facts: &mut Facts, question: Question, json: &str) -> bool {
        facts.take(question, 0, json.as_bytes())
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let mut facts = Facts::default();
        assert!(!facts.is_known());
        let health = r#"{"status":"HEALTH_WARN","checks":{"A":{"severity":"HEALTH_WARN","summary":{"message":"m"}},
            "B":7},"mutes":[]}"#;
        assert!(take(&mut facts, Question::Health, health));
        assert_eq!((facts.health(), facts.checks.len()), (Some(1.0), 1));
        let quorum = r#"{"quorum":[1],"monmap":{"mons":[{"rank":0,"name":"a","public_addr":"10.0.0.1:6789/0"},
            {"rank":1,"name":"b","public_addr":"[::1]:6789/0"},{}]}}"#;
        assert!(take(&mut facts, Question::Quorum, quorum));
        let mons: Vec<_> =
            facts.mons.iter().map(|m| (m.name.as_str(), m.addr.as_str(), m.in_quorum)).collect();
        assert_eq!(mons, [("a", "10.0.0.1", false), ("b", "[::1]", true)]);
        let osds = r#"[{"id":0,"hostname":"h","cpu":"c"},{"id":1},{"name":"x","hostname":"i"},7]"#;
        assert!(take(&mut facts, Question::Metadata("osd"), osds));
        assert_eq!(text(facts.of("osd", "0"), "hostname"), "h");
        assert_eq!((text(facts.of("osd", "0"), "cpu"), facts.of("osd", "2")), ("", None));
        let before = facts.clone();
        for (question, bad) in [
            (Question::Health, "{}"),
            (Question::Health, r#"{"status":"HEALTH_OK"}"#),
            (Question::Quorum, r#"{"quorum":[]}"#),
            (Question::Metadata("osd"), "{}"),
            (Question::Metadata("mds"), "["),
        ] {
            assert!(!take(&mut facts, question, bad), "{bad}");
        }
        assert!(!facts.take(Question::Metadata("mds"), -11, b"[]"));
        assert_eq!(facts, before);
    }
}
