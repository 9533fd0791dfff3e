//! Names of pools and images as people write them, and errors and JSON as Ceph's module writes them.
//!
//! Source: src/pybind/mgr/rbd_support/common.py, src/pybind/rbd/rbd.pyx (16.2).

use monitor::command::Reply;
use serde_json::Value;
use types::Errno;

/// `[pool/[namespace/]]image`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub pool: String,
    pub namespace: String,
    pub image: String,
}

impl Spec {
    pub fn parse(text: &str, default_pool: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (default_pool, "", image),
            [pool, image] if !pool.is_empty() => (pool, "", image),
            [pool, namespace, image] if !pool.is_empty() && !namespace.is_empty() => (pool, namespace, image),
            _ => return None,
        };
        if image.is_empty() || image.contains('@') {
            return None;
        }
        Some(Self { pool: pool.to_owned(), namespace: namespace.to_owned(), image: image.to_owned() })
    }
}

/// A pool's name and a namespace, which may be left out; both are where the text is empty.
pub(crate) fn pool_key(text: &str) -> Option<Option<(String, String)>> {
    if text.is_empty() {
        return Some(None);
    }
    let (pool, namespace) = text.split_once('/').unwrap_or((text, ""));
    let is_whole =
        !pool.is_empty() && !namespace.contains('/') && (!namespace.is_empty() || !text.ends_with('/'));
    is_whole.then(|| Some((pool.to_owned(), namespace.to_owned())))
}

pub(crate) fn image_spec(pool: &str, namespace: &str, image: &str) -> String {
    match namespace {
        "" => format!("{pool}/{image}"),
        _ => format!("{pool}/{namespace}/{image}"),
    }
}

/// An error as librbd's Python binding words it.
pub(crate) fn error(errno: Errno, what: &str) -> String {
    let kind = match errno {
        Errno::EPERM => "RBD permission error",
        Errno::ENOENT => "RBD image not found",
        Errno::EIO => "RBD I/O error",
        Errno::EBUSY => "RBD image is busy",
        Errno::EEXIST => "RBD image already exists",
        Errno::EINVAL => "RBD invalid argument",
        Errno::ENOTEMPTY => "RBD image has snapshots",
        _ => return format!("[errno {}] RBD error ({what})", errno.0),
    };
    format!("[errno {}] {kind} ({what})", errno.0)
}

/// What is said of a pool that does not exist.
pub(crate) fn no_pool(name: &str) -> String {
    format!("[errno 2] RADOS object not found (error opening pool '{name}')")
}

/// JSON as Python's `json.dumps` writes it: a blank behind each comma and colon, no letters but ASCII's.
pub(crate) fn python(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member = |(k, v): (&String, &Value)| format!("{}: {}", string(k), python(v));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::String(text) => string(text),
        other => number(other.to_string()),
    }
}

fn string(text: &str) -> String {
    let mut units = [0; 2];
    let mut out = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            ' '..='~' => out.push(c),
            _ => c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
}

/// An exponent has a sign and two digits in Python.
fn number(text: String) -> String {
    let Some((digits, exponent)) =
        text.split_once('e').filter(|(digits, _)| digits.ends_with(char::is_numeric))
    else {
        return text;
    };
    let sign = if exponent.starts_with('-') { '-' } else { '+' };
    let exponent = exponent.trim_start_matches(['+', '-']);
    format!("{digits}e{sign}{exponent:0>2}")
}

/// An answer of the module: what it gives, and a newline behind. Source: DaemonServer::_handle_command.
pub(crate) fn answer(text: String) -> Reply {
    Reply::text(text + "\n")
}

/// The same JSON with a line for each member, of objects in the order of their names.
pub(crate) fn python_sorted(value: &Value) -> String {
    indented(value, 0)
}

fn indented(value: &Value, margin: usize) -> String {
    let inner = margin + 4;
    let lines = |open: char, lines: Vec<String>, close: char| {
        let between = format!(",\n{:inner$}", "");
        match lines.is_empty() {
            true => format!("{open}{close}"),
            false => format!("{open}\n{:inner$}{}\n{:margin$}{close}", "", lines.join(&between), ""),
        }
    };
    match value {
        Value::Object(members) => {
            let mut all: Vec<_> = members.iter().collect();
            all.sort_by(|a, b| a.0.cmp(b.0));
            let member = |(k, v): (&String, &Value)| format!("{}: {}", string(k), indented(v, inner));
            lines('{', all.into_iter().map(member).collect(), '}')
        }
        Value::Array(items) => lines('[', items.iter().map(|item| indented(item, inner)).collect(), ']'),
        other => python(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let parse =
            |text: &str| Spec::parse(text, "rbd").map(|s| image_spec(&s.pool, &s.namespace, &s.image));
        for (text, want) in
            [("a", Some("rbd/a")), ("p/a", Some("p/a")), ("p/n/a", Some("p/n/a")), ("", None), ("/a", None)]
        {
            assert_eq!(parse(text).as_deref(), want, "{text}");
        }
        for bad in ["p/", "p//a", "a@s", "a/b/c/d", "p/n/"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let key = |pool: &str, namespace: &str| Some(Some((pool.to_owned(), namespace.to_owned())));
        for (text, want) in [("", Some(None)), ("p", key("p", "")), ("p/n", key("p", "n"))] {
            assert_eq!(pool_key(text), want, "{text}");
        }
        for bad in ["/", "p/", "/n", "p/n/x"] {
            assert_eq!(pool_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn json_is_as_python_writes_it() {
        let value = serde_json::json!({ "b": [1, "a\"b"], "a": {}, "c": 0.0 });
        assert_eq!(python(&value), r#"{"b": [1, "a\"b"], "a": {}, "c": 0.0}"#);
        assert_eq!(python_sorted(&serde_json::json!([])), "[]");
        let lines =
            "{\n    \"a\": {},\n    \"b\": [\n        1,\n        \"a\\\"b\"\n    ],\n    \"c\": 0.0\n}";
        assert_eq!(python_sorted(&value), lines);
        for (value, want) in [
            (serde_json::json!(1e16), "1e+16"),
            (serde_json::json!(2.5e-7), "2.5e-07"),
            (serde_json::json!([true, null, 1e-100]), "[true, null, 1e-100]"),
            (serde_json::json!("\u{e4}\u{1f991}\n\u{7f}"), r#""\u00e4\ud83e\udd91\n\u007f""#),
        ] {
            assert_eq!(python(&value), want);
        }
    }
}
