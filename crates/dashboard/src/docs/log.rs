//! `/api/logs/all`: the cluster's log and the audit log, the newest line first.
//!
//! Source: src/pybind/mgr/dashboard/controllers/logs.py.

use serde_json::{Value, json};

/// Lines of each.
pub const LINES: usize = 500;

/// Of what `log last` answers for the two channels.
pub fn logs(cluster: &Value, audit: &Value) -> Value {
    let newest_first = |lines: &Value| {
        let mut lines = lines.as_array().cloned().unwrap_or_default();
        lines.reverse();
        lines
    };
    json!({ "clog": newest_first(cluster), "audit_log": newest_first(audit) })
}
