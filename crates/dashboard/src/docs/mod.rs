//! The documents of the API, made of what the manager and the monitors answer; nothing here does IO.

pub mod figures;
pub mod health;
pub mod images;
pub mod log;
pub mod osds;
pub mod pools;
pub mod services;

use serde_json::Value;

/// A list of a document; an empty one where there is none.
fn list<'a>(of: &'a Value, at: &str) -> &'a [Value] {
    of.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text of a document; an empty one where there is none.
fn text<'a>(of: &'a Value, at: &str) -> &'a str {
    of.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn number(of: &Value, at: &str) -> f64 {
    of.pointer(at).and_then(Value::as_f64).unwrap_or_default()
}

fn integer(of: &Value, at: &str) -> i64 {
    of.pointer(at).and_then(Value::as_i64).unwrap_or_default()
}

/// The part of an object that has these fields.
fn part(of: &Value, fields: &[&str]) -> Value {
    let kept = fields.iter().filter_map(|f| Some(((*f).to_owned(), of.get(*f)?.clone())));
    Value::Object(kept.collect())
}

/// Puts a field into an object.
fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
}
