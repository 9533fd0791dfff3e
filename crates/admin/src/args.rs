//! A command's arguments: JSON from a client, checked against a signature.
//!
//! The texts of refusals are those of Ceph where it has one. Source: cmdmap_from_json in
//! src/common/cmdparse.cc.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Param, ParamKind, Signature, described};

/// Longest command that is looked at, in bytes; bulk input travels beside it.
pub const MAX_COMMAND_BYTES: usize = 1 << 20;
/// How much of a bad command its refusal repeats.
const ECHO_BYTES: usize = 1_024;

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgValue {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    TextList(Vec<String>),
    IntList(Vec<i64>),
    FloatList(Vec<f64>),
}

/// Arguments by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Args(BTreeMap<String, ArgValue>);

/// Why a command was not even looked at; each is EINVAL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("no command specified")]
    Empty,
    #[error("command of {0} bytes is above the bound of {MAX_COMMAND_BYTES}")]
    TooLong(usize),
    #[error("unparseable JSON {0}")]
    NotJson(String),
    #[error("not JSON object {0}")]
    NotObject(String),
    #[error("JSON array/object not allowed {0}")]
    Nested(String),
    #[error("Can't handle arrays of multiple types")]
    MixedList,
    #[error("command prefix not found")]
    NoPrefix,
    #[error("command prefix must not be empty")]
    EmptyPrefix,
    #[error("command requires a prefix to be valid")]
    BlankPrefix,
    #[error("bad or missing field '{0}'")]
    BadField(String),
    #[error("{value} not in range {range} for '{name}'")]
    OutOfRange { name: String, value: String, range: String },
    #[error("{value} not in {choices} for '{name}'")]
    NotAChoice { name: String, value: String, choices: String },
}

impl Args {
    /// Reads the JSON of a command; gives its prefix and arguments.
    pub fn parse(cmd: &[String]) -> Result<(String, Self), CommandError> {
        let len: usize = cmd.iter().map(String::len).sum();
        if cmd.is_empty() {
            return Err(CommandError::Empty);
        }
        if len > MAX_COMMAND_BYTES {
            return Err(CommandError::TooLong(len));
        }
        let text = cmd.concat();
        // serde_json bounds its own recursion, and knows no NaN. What stands behind the object is not looked
        // at, as in Ceph: `rbd perf image iostat` sends a quotation mark there.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let value = values.next().and_then(Result::ok).ok_or_else(|| CommandError::NotJson(echo(&text)))?;
        let Value::Object(fields) = value else { return Err(CommandError::NotObject(echo(&text))) };
        let mut args = BTreeMap::new();
        for (name, value) in fields {
            args.insert(name, scalar_or_list(value, &text)?);
        }
        let prefix = match args.remove("prefix") {
            Some(ArgValue::Text(prefix)) => prefix,
            Some(_) => return Err(CommandError::BadField("prefix".to_owned())),
            None => return Err(CommandError::NoPrefix),
        };
        if prefix.is_empty() {
            return Err(CommandError::EmptyPrefix);
        }
        if prefix.split([';', ',', '=', ' ', '\t']).all(str::is_empty) {
            return Err(CommandError::BlankPrefix);
        }
        Ok((prefix, Self(args)))
    }

    /// Checks types, ranges, choices and presence. Arguments that the signature does not know are ignored, as
    /// in Ceph, and dropped: neither a capability check nor a handler sees them.
    pub fn check(&mut self, sig: &Signature) -> Result<(), CommandError> {
        let mut kept = BTreeMap::new();
        for param in &sig.params {
            match self.0.remove(param.name) {
                Some(value) => {
                    let value = convert(param, value)?;
                    check_bounds(param, &value)?;
                    kept.insert(param.name.to_owned(), value);
                }
                None if param.required && !param.repeated => {
                    return Err(CommandError::BadField(param.name.to_owned()));
                }
                None => {}
            }
        }
        // Every command takes it, no signature says so.
        if let Some((name, value)) = self.0.remove_entry("format") {
            kept.entry(name).or_insert(value);
        }
        self.0 = kept;
        Ok(())
    }

    /// Drops what a signature that is not ours (a manager's) does not name.
    pub fn keep_named(&mut self, sig: &str) {
        let names =
            |word: &str| described(word).into_iter().find(|(k, _)| *k == "name").map(|(_, v)| v.to_owned());
        let named: BTreeSet<String> = sig.split_whitespace().filter_map(names).collect();
        self.0.retain(|name, _| name == "format" || named.contains(name));
    }

    pub fn get(&self, name: &str) -> Option<&ArgValue> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            ArgValue::Text(s) => Some(s),
            _ => None,
        }
    }

    /// Text, empty when it is not there.
    pub fn text_or_empty(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            ArgValue::Int(v) => Some(*v),
            _ => None,
        }
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            ArgValue::Float(v) => Some(*v),
            ArgValue::Int(v) => Some(*v as f64),
            _ => None,
        }
    }

    /// False when it is not there.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(ArgValue::Bool(true)))
    }

    /// A list of words; one word counts as a list of one.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(ArgValue::TextList(v)) => v.clone(),
            Some(ArgValue::Text(s)) => vec![s.clone()],
            Some(ArgValue::IntList(v)) => v.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        }
    }

    /// Every argument as text, for capability checks. Source: Monitor::_generate_command_map.
    pub fn as_text(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for (name, value) in &self.0 {
            match value {
                // Caps travel as alternating services and texts, and caps can constrain each one.
                ArgValue::TextList(v) if name == "caps" => {
                    for pair in v.chunks_exact(2) {
                        if let [service, text] = pair {
                            out.insert(format!("caps_{service}"), text.clone());
                        }
                    }
                }
                other => {
                    out.insert(name.clone(), other.to_string());
                }
            }
        }
        out
    }
}

impl std::fmt::Display for ArgValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        fn joined<T: ToString>(v: &[T]) -> String {
            v.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        }
        match self {
            Self::Text(s) => f.write_str(s),
            Self::Int(v) => v.fmt(f),
            Self::Float(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::TextList(v) => f.write_str(&joined(v)),
            Self::IntList(v) => f.write_str(&joined(v)),
            Self::FloatList(v) => f.write_str(&joined(v)),
        }
    }
}

/// The beginning of a bad command.
fn echo(text: &str) -> String {
    let end = (0..=ECHO_BYTES.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

fn scalar_or_list(value: Value, whole: &str) -> Result<ArgValue, CommandError> {
    let nested = || CommandError::Nested(echo(whole));
    Ok(match value {
        Value::String(s) => ArgValue::Text(s),
        Value::Bool(b) => ArgValue::Bool(b),
        Value::Number(n) => match n.as_i64() {
            Some(i) => ArgValue::Int(i),
            None => ArgValue::Float(n.as_f64().ok_or_else(nested)?),
        },
        Value::Array(items) => list(items)?,
        Value::Null | Value::Object(_) => return Err(nested()),
    })
}

/// A list is of one type, that of its first element.
fn list(items: Vec<Value>) -> Result<ArgValue, CommandError> {
    fn all<T>(items: &[Value], get: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>, CommandError> {
        items.iter().map(get).collect::<Option<Vec<T>>>().ok_or(CommandError::MixedList)
    }
    match items.first() {
        None => Ok(ArgValue::TextList(Vec::new())),
        Some(Value::String(_)) => all(&items, |v| v.as_str().map(ToOwned::to_owned)).map(ArgValue::TextList),
        Some(Value::Number(n)) if n.is_i64() => all(&items, Value::as_i64).map(ArgValue::IntList),
        Some(Value::Number(_)) => all(&items, Value::as_f64).map(ArgValue::FloatList),
        Some(_) => Err(CommandError::MixedList),
    }
}

/// Brings a value to its parameter's type, or refuses it.
fn convert(param: &Param, value: ArgValue) -> Result<ArgValue, CommandError> {
    let bad = || CommandError::BadField(param.name.to_owned());
    if param.repeated {
        return match (param.kind, value) {
            (ParamKind::Text, v @ ArgValue::TextList(_)) => Ok(v),
            (ParamKind::Text, ArgValue::Text(s)) => Ok(ArgValue::TextList(vec![s])),
            (ParamKind::Int | ParamKind::OsdName, v @ ArgValue::IntList(_)) => Ok(v),
            (ParamKind::Int | ParamKind::OsdName, ArgValue::Int(v)) => Ok(ArgValue::IntList(vec![v])),
            (ParamKind::Float, v @ ArgValue::FloatList(_)) => Ok(v),
            (ParamKind::Float, ArgValue::IntList(v)) => {
                Ok(ArgValue::FloatList(v.into_iter().map(|i| i as f64).collect()))
            }
            (_, ArgValue::TextList(v)) if v.is_empty() => Ok(ArgValue::TextList(v)),
            _ => Err(bad()),
        };
    }
    match (param.kind, value) {
        (ParamKind::Text, v @ ArgValue::Text(_)) | (ParamKind::Bool, v @ ArgValue::Bool(_)) => Ok(v),
        (ParamKind::Int | ParamKind::OsdName, v @ ArgValue::Int(_)) => Ok(v),
        (ParamKind::OsdName, ArgValue::Text(s)) => osd_name(&s).ok_or_else(bad),
        (ParamKind::Float, ArgValue::Float(v)) if v.is_finite() => Ok(ArgValue::Float(v)),
        (ParamKind::Float, ArgValue::Int(v)) => Ok(ArgValue::Float(v as f64)),
        // What clients before Nautilus send for a switch. Source: cmd_getval_compat_cephbool.
        (ParamKind::Bool, ArgValue::Text(s)) => {
            let switch = format!("--{}", param.name.replace('_', "-"));
            Ok(ArgValue::Bool(s == switch || s == "true" || s == param.name))
        }
        _ => Err(bad()),
    }
}

/// `osd.3` or `3`; `*`, `all` and `any` stay text.
fn osd_name(text: &str) -> Option<ArgValue> {
    if matches!(text, "*" | "all" | "any") {
        return Some(ArgValue::Text(text.to_owned()));
    }
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse::<i64>().ok().map(ArgValue::Int)
}

fn check_bounds(param: &Param, value: &ArgValue) -> Result<(), CommandError> {
    let number = match value {
        ArgValue::Int(v) => Some(*v as f64),
        ArgValue::Float(v) => Some(*v),
        _ => None,
    };
    if let (Some(v), Some((low, high))) = (number, param.range) {
        if v < low.get() || high.is_some_and(|h| v > h.get()) {
            let high = high.map_or(String::new(), |h| format!("..{}", h.get()));
            let range = format!("{}{high}", low.get());
            return Err(CommandError::OutOfRange {
                name: param.name.to_owned(),
                value: value.to_string(),
                range,
            });
        }
    }
    let words: Vec<&str> = match value {
        ArgValue::Text(s) => vec![s],
        ArgValue::TextList(v) => v.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    // Names of settings differ between releases: the commands that take one refuse unknown names in their own
    // words.
    let checked = !param.choices.is_empty() && !matches!(param.name, "var" | "key");
    // Clients send an empty word for an option that is not given.
    let given = |w: &str| param.required || !w.is_empty();
    match words.into_iter().find(|w| checked && given(w) && !param.choices.contains(w)) {
        Some(word) => Err(CommandError::NotAChoice {
            name: param.name.to_owned(),
            value: echo(word),
            choices: param.choices.join("|"),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIG: &str = "osd thing name=pool,type=CephPoolname name=n,type=CephInt,range=0|9,req=false \
                       name=w,type=CephFloat,req=false name=sure,type=CephBool,req=false \
                       name=ids,type=CephString,n=N,req=false name=osd,type=CephOsdName,req=false \
                       name=mode,type=CephChoices,strings=a|b,req=false";

    fn check(json: &str, want: Result<(), &str>) {
        let got =
            Args::parse(&[json.to_owned()]).and_then(|(_, mut args)| args.check(&Signature::parse(SIG)));
        assert_eq!(got.map_err(|e| e.to_string()), want.map_err(ToOwned::to_owned), "{json}");
    }

    #[test]
    fn good_commands_pass() {
        check(r#"{"prefix":"osd thing","pool":"p"}"#, Ok(()));
        check(
            r#"{"prefix":"osd thing","pool":"p","n":9,"w":1,"sure":true,"ids":["1"],"osd":3,"mode":"a"}"#,
            Ok(()),
        );
        check(r#"{"prefix":"osd thing","pool":"p","ids":[],"osd":"osd.3","w":0.5,"sure":"--sure"}"#, Ok(()));
        check(r#"{"prefix":"osd thing","pool":"p","unknown":1}"#, Ok(()));
        check(r#"{"prefix":"osd thing","pool":"p","mode":""}"#, Ok(()));
        // As `rbd perf image iostat` sends it.
        check("\n{\"prefix\":\"osd thing\",\"pool\":\"p\"}\"", Ok(()));
    }

    #[test]
    fn malformed_commands_are_refused_in_cephs_words() {
        check("{", Err("unparseable JSON {"));
        check("", Err("unparseable JSON "));
        check("[1]", Err("not JSON object [1]"));
        check("{}", Err("command prefix not found"));
        check(r#"{"prefix":5}"#, Err("bad or missing field 'prefix'"));
        check(r#"{"prefix":""}"#, Err("command prefix must not be empty"));
        check(r#"{"prefix":" ;,"}"#, Err("command requires a prefix to be valid"));
        check(
            r#"{"prefix":"a","x":{"y":1}}"#,
            Err(r#"JSON array/object not allowed {"prefix":"a","x":{"y":1}}"#),
        );
        check(r#"{"prefix":"a","x":null}"#, Err(r#"JSON array/object not allowed {"prefix":"a","x":null}"#));
        check(r#"{"prefix":"a","x":[1,"b"]}"#, Err("Can't handle arrays of multiple types"));
        check(r#"{"prefix":"osd thing"}"#, Err("bad or missing field 'pool'"));
        check(r#"{"prefix":"osd thing","pool":5}"#, Err("bad or missing field 'pool'"));
        check(r#"{"prefix":"osd thing","pool":"p","n":"abc"}"#, Err("bad or missing field 'n'"));
        check(r#"{"prefix":"osd thing","pool":"p","n":1.5}"#, Err("bad or missing field 'n'"));
        check(r#"{"prefix":"osd thing","pool":"p","n":10}"#, Err("10 not in range 0..9 for 'n'"));
        check(r#"{"prefix":"osd thing","pool":"p","mode":"c"}"#, Err("c not in a|b for 'mode'"));
        check(r#"{"prefix":"osd thing","pool":"p","ids":[1]}"#, Err("bad or missing field 'ids'"));
    }

    #[test]
    fn numbers_that_are_none_and_absurd_sizes_are_refused() {
        let refused = |json: String| Args::parse(&[json]).is_err();
        assert!(refused(r#"{"prefix":"a","w":NaN}"#.into()));
        assert!(refused(r#"{"prefix":"a","w":1e999}"#.into()));
        assert!(refused(format!("{{\"prefix\":\"a\",\"x\":{}1{}}}", "[".repeat(40), "]".repeat(40))));
        assert!(refused(format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))));
        let long = format!(r#"{{"prefix":"a","x":"{}"}}"#, "y".repeat(10 << 20));
        let error = Args::parse(&[long]).expect_err("too long");
        assert!(matches!(error, CommandError::TooLong(_)) && error.to_string().len() < 100);
    }

    #[test]
    fn caps_are_spread_for_capability_checks() {
        let (_, args) =
            Args::parse(&[r#"{"prefix":"a","caps":["mon","allow r"],"n":3}"#.into()]).expect("parses");
        let want = [("caps_mon".to_owned(), "allow r".to_owned()), ("n".to_owned(), "3".to_owned())];
        assert_eq!(args.as_text(), want.into());
    }
}
