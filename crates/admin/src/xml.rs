//! Answers as XML, made of the JSON that commands answer with.
//!
//! XML names what JSON does not: the whole, and each element of a list. Those names are Ceph's where it has them, from
//! the tables here; else the whole has the command's words, and an element the singular of its list. As in Ceph, names are
//! not checked: one with signs that XML does not allow makes an answer that strict readers refuse.
//!
//! Source: XMLFormatter in src/common/Formatter.cc; names from the XML and JSON answers of 16.2.15.

use serde_json::Value;

use crate::Reply;
use crate::json::general;

/// Commands and what their whole answer is called.
const ROOTS: &[(&str, &str)] = &[
    ("auth ls", "auth"),
    ("config dump", "config"),
    ("config get", "config"),
    ("config help", "option"),
    ("config log", "changesets"),
    ("config-key ls", "keys"),
    ("df", "stats"),
    ("fs dump", "fsmap"),
    ("fs ls", "filesystems"),
    ("health", "health"),
    ("log last", "tail"),
    ("mds stat", "mds_stat"),
    ("mgr dump", "mgrmap"),
    ("mgr metadata", "mgr_metadata"),
    ("mgr services", "services"),
    ("mgr stat", "stat"),
    ("mon dump", "monmap"),
    ("mon stat", "monmap"),
    ("node ls", "nodes"),
    ("osd blocklist ls", "blocklist"),
    ("osd crush class ls", "crush_classes"),
    ("osd crush dump", "crush_map"),
    ("osd crush rule dump", "rules"),
    ("osd crush rule ls", "rules"),
    ("osd crush show-tunables", "crush_map_tunables"),
    ("osd crush tree", "crush_tree"),
    ("osd crush weight-set ls", "weight_sets"),
    ("osd df", "df"),
    ("osd dump", "osdmap"),
    ("osd erasure-code-profile get", "profile"),
    ("osd erasure-code-profile ls", "erasure-code-profiles"),
    ("osd find", "osd_location"),
    ("osd getmaxosd", "getmaxosd"),
    ("osd ls", "osds"),
    ("osd metadata", "osd_metadata"),
    ("osd numa-status", "osds"),
    ("osd ok-to-stop", "ok_to_stop"),
    ("osd perf", "pg_info"),
    ("osd pool ls", "pools"),
    ("osd pool stats", "pool_stats"),
    ("osd stat", "osdmap"),
    ("osd tree", "tree"),
    ("osd utilization", "utilization"),
    ("osd versions", "ceph_version"),
    ("pg dump", "pg_info"),
    ("pg dump_stuck", "pg_info"),
    ("pg ls", "pg_info"),
    ("pg stat", "pg_info"),
    ("service dump", "service_map"),
    ("status", "status"),
    ("time-sync-status", "time_sync"),
    ("versions", "version"),
];

/// Lists and what their elements are called. A command's words stand for a list that is its whole answer.
const ELEMENTS: &[(&str, &str)] = &[
    ("acting", "osd"),
    ("active_clients", "client"),
    ("addrvec", "addr"),
    ("auth_dump", "auth_entities"),
    ("available_modules", "module"),
    ("avail_no_missing", "shard"),
    ("children", "child"),
    ("client", "group"),
    ("config dump", "option"),
    ("config log", "changeset"),
    ("config-key ls", "key"),
    ("detail", "detail_item"),
    ("enum_allowed", "value"),
    ("enum_values", "enum_value"),
    ("flags", "option"),
    ("fs ls", "filesystem"),
    ("mds", "group"),
    ("mgr", "group"),
    ("mgr metadata", "mgr"),
    ("mon", "group"),
    ("nodes", "item"),
    ("num_pg_by_state", "state"),
    ("object_location_counts", "entry"),
    ("ok_become_degraded", "pg"),
    ("osd", "group"),
    ("osd blocklist ls", "entry"),
    ("osd crush class ls", "class"),
    ("osd crush rule dump", "rule"),
    ("osd crush rule ls", "name"),
    ("osd erasure-code-profile ls", "profile"),
    ("osd ls", "osd"),
    ("osd metadata", "osd"),
    ("osd numa-status", "osd"),
    ("osd pool ls", "pool_name"),
    ("osd pool stats", "pool"),
    ("osd_perf_infos", "osd"),
    ("pg_stats", "pg_stat"),
    ("quorum", "mon"),
    ("see_also", "see_also"),
    ("stuck_pg_stats", "pg_stat"),
    ("up", "osd"),
];

/// Turns a command's answer into XML when that was asked for. What is no JSON stays as it is.
#[must_use]
pub fn convert(reply: Reply, format: Option<&str>, prefix: &str) -> Reply {
    let pretty = match format {
        Some("xml") => false,
        Some("xml-pretty") => true,
        _ => return reply,
    };
    let Ok(value) = serde_json::from_slice::<Value>(&reply.data) else { return reply };
    if !value.is_object() && !value.is_array() {
        return reply;
    }
    Reply { data: to_text(&value, prefix, pretty).into(), ..reply }
}

fn lookup(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(n, _)| *n == name).map(|(_, found)| *found)
}

fn to_text(value: &Value, prefix: &str, pretty: bool) -> String {
    let root = lookup(ROOTS, prefix).map_or_else(|| prefix.to_owned(), str::to_owned);
    let mut out = Writer { out: String::new(), pretty, depth: 0 };
    out.section(&root, value, prefix);
    out.out
}

struct Writer {
    out: String,
    pretty: bool,
    depth: usize,
}

impl Writer {
    fn indent(&mut self) {
        if self.pretty {
            self.out.extend(std::iter::repeat_n(' ', self.depth));
        }
    }

    fn end_line(&mut self) {
        if self.pretty {
            self.out.push('\n');
        }
    }

    /// `list` is the name by which the elements of a list are found in the table.
    fn section(&mut self, name: &str, value: &Value, list: &str) {
        let name = name.replace(' ', "_");
        self.indent();
        self.out += &format!("<{name}>");
        let scalar = match value {
            Value::Object(_) | Value::Array(_) => None,
            Value::Null => Some(String::new()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Number(n) => Some(match n.as_f64() {
                Some(f) if n.is_f64() => general(f, 17),
                _ => n.to_string(),
            }),
            Value::String(s) => Some(escaped(s)),
        };
        if let Some(text) = scalar {
            self.out += &text;
        } else {
            self.end_line();
            self.depth += 1;
            match value {
                Value::Object(fields) => fields.iter().for_each(|(k, v)| self.section(k, v, k)),
                Value::Array(elements) => {
                    let element = lookup(ELEMENTS, list).map_or_else(|| singular(list), str::to_owned);
                    elements.iter().for_each(|v| self.section(&element, v, &element));
                }
                _ => {}
            }
            self.depth -= 1;
            self.indent();
        }
        self.out += &format!("</{name}>");
        self.end_line();
    }
}

/// `rules` is a list of `rule`.
fn singular(list: &str) -> String {
    let name = list.rsplit(' ').next().unwrap_or(list);
    match name.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => {
            name.strip_suffix('s').filter(|s| !s.is_empty() && !s.ends_with('s')).unwrap_or("item").to_owned()
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            c if (c.is_ascii_control() && !matches!(c, '\n' | '\t')) || c == '\u{7f}' => {
                out += &format!("&#x{:02x};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(prefix: &str, value: Value, format: &str, want: &str) {
        let reply = convert(Reply::text(value.to_string()), Some(format), prefix);
        assert_eq!(String::from_utf8_lossy(&reply.data), want);
    }

    /// Pieces of answers of 16.2.15.
    #[test]
    fn names_are_cephs() {
        check("osd ls", json!([0, 1]), "xml", "<osds><osd>0</osd><osd>1</osd></osds>");
        check("osd pool ls", json!(["a&b"]), "xml", "<pools><pool_name>a&amp;b</pool_name></pools>");
        let tree = json!({ "nodes": [{ "id": -1, "children": [0] }], "stray": [] });
        let want = "<tree>\n <nodes>\n  <item>\n   <id>-1</id>\n   <children>\n    <child>0</child>\n   </children>\n  \
                    </item>\n </nodes>\n <stray>\n </stray>\n</tree>\n";
        check("osd tree", tree, "xml-pretty", want);
        let version = json!({ "mon": { "ceph version 16": 1 }, "ratio": 0.1, "on": true });
        let want = "<version><mon><ceph_version_16>1</ceph_version_16></mon><ratio>0.10000000000000001</ratio>\
                    <on>true</on></version>";
        check("versions", version, "xml", want);
        check("config show", json!({ "a": "" }), "xml", "<config_show><a></a></config_show>");
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for (text, format) in
            [("plain text\n", Some("xml")), ("{}", Some("json")), ("{}", None), ("7\n", Some("xml"))]
        {
            assert_eq!(convert(Reply::text(text), format, "status"), Reply::text(text));
        }
        assert_eq!(
            (singular("entries"), singular("pools"), singular("address")),
            ("entry".into(), "pool".into(), "item".into())
        );
    }
}
