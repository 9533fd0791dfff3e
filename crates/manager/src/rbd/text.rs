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

/// JSON as Python's `json.dumps` writes it: a blank behind each comma and colon.
pub(crate) fn python(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let member = |(k, v): (&String, &Value)| format!("{}: {}", Value::from(k.as_str()), python(v));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// An answer of the module: what it gives, and a newline behind. Source: DaemonServer::_handle_command.
pub(crate) fn answer(text: String) -> Reply {
    Reply::text(text + "\n")
}

/// The same with a line for each member, of objects in the order of their names.
pub(crate) fn python_sorted(value: &Value) -> String {
    admin::json_text(admin::Format::JsonPretty, &sorted(value)).trim_end().to_owned()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut all: Vec<_> = members.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(all.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
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
    }
}
