//! Commands that every daemon answers, whether they come by `ceph tell` or through its admin socket: options, counters,
//! version, help.
//!
//! Source: CephContext::_do_command in src/common/ceph_context.cc, src/common/admin_socket.cc.

use serde_json::{Map, Value, json};
use types::Errno;

use crate::options::{self, Values};
use crate::perf::{self, Logger, Resets, View};
use crate::{Args, CommandError, Format, Reply, Signature, described, xml};

/// The release whose protocol we speak: clients compare it with their own.
pub const VERSION: &str = "16.2.15";
pub const RELEASE: &str = "pacific";

/// A command as clients are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    pub sig: &'static str,
    pub help: &'static str,
}

pub const fn described_as(sig: &'static str, help: &'static str) -> Described {
    Described { sig, help }
}

/// The commands that [`run`] knows.
pub const COMMON: &[Described] = &[
    described_as("config diff", "dump diff of current config and default config"),
    described_as(
        "config diff get name=var,type=CephString",
        "dump diff get <field>: dump diff of current and default config setting <field>",
    ),
    described_as("config get name=var,type=CephString", "config get <field>: get the config value"),
    described_as(
        "config help name=var,type=CephString,req=false",
        "get config setting schema and descriptions",
    ),
    described_as(
        "config set name=var,type=CephString name=val,type=CephString,n=N",
        "config set <field> <val> [<val> ...]: set a config variable",
    ),
    described_as("config show", "dump current config settings"),
    described_as("config unset name=var,type=CephString", "config unset <field>: unset a config variable"),
    described_as("get_command_descriptions", "list available commands"),
    described_as("git_version", "get git sha1"),
    described_as("help", "list available commands"),
    described_as(
        "injectargs name=injected_args,type=CephString,n=N",
        "inject configuration arguments into running daemon",
    ),
    described_as("log dump", "dump recent log entries to log file"),
    described_as("log flush", "flush log entries to log file"),
    described_as("log reopen", "reopen log file"),
    described_as(
        "perf dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perfcounters value",
    ),
    described_as(
        "perf histogram dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perf histogram values",
    ),
    described_as("perf histogram schema", "dump perf histogram schema"),
    described_as(
        "perf reset name=var,type=CephString",
        "perf reset <name>: perf reset all or one perfcounter name",
    ),
    described_as("perf schema", "dump perfcounters schema"),
    described_as("version", "get ceph version"),
];

/// What the common commands need of a daemon.
pub struct Daemon<'a> {
    pub values: &'a mut Values,
    /// Made when a command asks for it, without regard to `resets`.
    pub perf: &'a dyn Fn() -> Vec<Logger>,
    pub resets: &'a mut Resets,
    /// The daemon's commands besides `COMMON`.
    pub own: &'a [Described],
}

/// A command that was read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Words with single spaces.
    pub prefix: String,
    pub args: Args,
    /// As it was asked for; see [`Request::finish`].
    format_name: Option<String>,
    /// Without a format these print JSON for people.
    pub format: Format,
}

impl Request {
    /// Reads a command's JSON and checks it against its signature, if `own` or `COMMON` has one.
    pub fn parse(cmd: &[String], own: &[Described]) -> Result<Self, Reply> {
        let bad = |e: CommandError| Reply::error(Errno::EINVAL, e.to_string());
        let (prefix, mut args) = Args::parse(cmd).map_err(bad)?;
        let words: Vec<&str> = prefix.split_whitespace().collect();
        let sigs = || own.iter().chain(COMMON).map(|c| c.sig);
        let named = |sig: &&'static str| Signature::prefix_of(sig).eq(words.iter().copied());
        // Of several forms of one command, the first that fits.
        let mut refused = None;
        for sig in sigs().filter(named) {
            let mut checked = args.clone();
            match checked.check(&Signature::parse(sig)) {
                Ok(()) => {
                    args = checked;
                    refused = None;
                    break;
                }
                Err(e) => refused = Some(e),
            }
        }
        if let Some(e) = refused {
            return Err(bad(e));
        }
        if !sigs().any(|sig| named(&sig)) {
            return Err(Reply::error(Errno::EINVAL, format!("unknown command prefix {prefix}")));
        }
        let format = match Format::parse(args.text("format"))? {
            Format::Plain => Format::JsonPretty,
            other => other,
        };
        let format_name = args.text("format").map(str::to_owned);
        Ok(Self { prefix: words.join(" "), format_name, args, format })
    }

    /// The answer in the format that was asked for.
    pub fn finish(&self, reply: Reply) -> Reply {
        xml::convert(reply, self.format_name.as_deref(), &self.prefix)
    }
}

/// Answers a command that every daemon knows; `None` for another one.
pub fn run(r: &Request, daemon: &mut Daemon<'_>) -> Option<Reply> {
    answer(r, daemon).map(|reply| r.finish(reply))
}

fn answer(r: &Request, daemon: &mut Daemon<'_>) -> Option<Reply> {
    let json = |value: Value| Some(Reply::json(r.format, &value));
    match r.prefix.as_str() {
        "version" => json(json!({ "version": VERSION, "release": RELEASE, "release_type": "stable" })),
        "git_version" => json(json!({ "git_version": env!("CARGO_PKG_VERSION") })),
        "help" => {
            let mut all: Vec<Described> = daemon.own.iter().chain(COMMON).copied().collect();
            all.retain(|c| !c.help.is_empty());
            all.sort_by_key(prefix_of);
            let help = all.iter().map(|c| (prefix_of(c), json!(c.help)));
            json(Value::Object(help.collect()))
        }
        "get_command_descriptions" => {
            let mut all: Vec<Described> = daemon.own.iter().chain(COMMON).copied().collect();
            all.sort_by_key(prefix_of);
            Some(Reply::json(Format::Json, &descriptions(&all)))
        }
        prefix if prefix.starts_with("perf ") => json(counters(r, daemon)),
        // Log lines are not held back, and go to standard error.
        "log flush" | "log dump" | "log reopen" => json(json!({})),
        prefix if prefix.starts_with("config ") || prefix == "injectargs" => {
            Some(config(r, daemon.values).unwrap_or_else(|refused| refused))
        }
        _ => None,
    }
}

/// Source: CephContext::_do_command.
fn counters(r: &Request, daemon: &mut Daemon<'_>) -> Value {
    let loggers = (daemon.perf)();
    let var = r.args.text_or_empty("var");
    if r.prefix == "perf reset" {
        let said = match daemon.resets.reset(var, &loggers) {
            true => ("success", format!("{} {var}", r.prefix)),
            false => ("error", format!("Not find: {var}")),
        };
        return json!({ (said.0): said.1 });
    }
    let loggers = daemon.resets.applied(loggers);
    let view = if r.prefix.starts_with("perf histogram") { View::Histograms } else { View::Numbers };
    match r.prefix.ends_with("schema") {
        true => perf::schema(&loggers, view),
        false => perf::dump(&loggers, view, r.args.text("logger"), r.args.text("counter")),
    }
}

fn config(r: &Request, values: &mut Values) -> Result<Reply, Reply> {
    let var = r.args.text_or_empty("var");
    let json = |value: Value| Ok(Reply::json(r.format, &value));
    let failed = |what: &str, errno: Errno| Reply::error(errno, format!("error {what}: {errno}"));
    match r.prefix.as_str() {
        "config show" => json(values.show()),
        "config diff" | "config diff get" => json(json!({ "diff": values.diff() })),
        "config get" => match values.get(var) {
            Some(value) => json(json!({ var: value })),
            None => Err(failed(&format!("getting '{var}'"), Errno::ENOENT)),
        },
        "config set" => {
            let value = r.args.list("val").join(" ");
            let what = || format!("setting '{var}' to '{value}'");
            let (option, changed) = values.set(var, &value).map_err(|e| failed(&what(), e.errno()))?;
            let said = if changed { values.changed_text(&option) } else { String::new() };
            json(json!({ "success": said }))
        }
        "config unset" => {
            let (option, changed) =
                values.unset(var).map_err(|_| failed(&format!("unsetting '{var}'"), Errno::EINVAL))?;
            let said = if changed { values.changed_text(&option) } else { String::new() };
            Ok(Reply::json(r.format, &json!({})).with_outs(said))
        }
        "config help" => match r.args.text("var") {
            Some(name) => match options::find(name) {
                Some(option) => json(json!({ "option": option.schema() })),
                None => {
                    let name = options::normalize(name);
                    Err(Reply::error(Errno::ENOENT, format!("Setting not found: '{name}'")))
                }
            },
            None => json(json!({ "options": options::all().map(|o| o.schema()).collect::<Vec<_>>() })),
        },
        _ => match values.inject(&r.args.list("injected_args").join(" ")) {
            Ok(said) => Ok(Reply::json(r.format, &json!({})).with_outs(said)),
            Err((errno, why)) => Err(Reply::error(errno, why)),
        },
    }
}

fn prefix_of(c: &Described) -> String {
    Signature::prefix_of(c.sig).collect::<Vec<_>>().join(" ")
}

/// Signatures in the form that `ceph` parses its arguments with. Source: AdminSocket's getdescs hook.
pub fn descriptions(commands: &[Described]) -> Value {
    let word = |w: &'static str| match w.contains(['=', ',']) {
        false => json!(w),
        true => {
            let pairs = described(w).into_iter().map(|(k, v)| (k.to_owned(), json!(v)));
            Value::Object(pairs.collect::<Map<String, Value>>())
        }
    };
    let one = |(i, c): (usize, &Described)| {
        let sig: Vec<Value> = c.sig.split_whitespace().map(word).collect();
        let value = json!({ "sig": sig, "help": c.help, "module": "", "perm": "", "flags": 0 });
        (format!("cmd{i:03}"), value)
    };
    Value::Object(commands.iter().enumerate().map(one).collect())
}

/// An answer as it goes through an admin socket, where there is no place for a code. Source: AdminSocket::do_accept.
pub fn socket_answer(reply: Reply) -> Vec<u8> {
    let mut out = Vec::new();
    if reply.code < 0 {
        out.extend_from_slice(format!("ERROR: {}\n{}\n", Errno(-reply.code), reply.outs).as_bytes());
    }
    out.extend_from_slice(&reply.data);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(values: &mut Values, json: Value) -> Reply {
        let own = [described_as("status", "how it goes")];
        let request = match Request::parse(&[json.to_string()], &own) {
            Ok(request) => request,
            Err(reply) => return reply,
        };
        let resets = &mut Resets::default();
        run(&request, &mut Daemon { values, perf: &Vec::new, resets, own: &own }).expect("a common command")
    }

    /// Answers of 16.2.15 to `ceph tell osd.0 ...`.
    fn check(json: Value, code: i32, outs: &str, data: &str) {
        let mut values = Values::new("osd.0", &Default::default());
        values.set("osd_max_backfills", "7").expect("set");
        let reply = ask(&mut values, json);
        let text = String::from_utf8_lossy(&reply.data).into_owned();
        assert_eq!((reply.code, reply.outs.as_str(), text.as_str()), (code, outs, data));
    }

    #[test]
    fn answers_are_cephs() {
        let var = "osd_max_backfills";
        let get = |var: &str| json!({ "prefix": "config get", "var": var });
        let set = |var: &str, val: &str| json!({ "prefix": "config set", "var": var, "val": [val] });
        let unset = |var: &str| json!({ "prefix": "config unset", "var": var });
        check(get(var), 0, "", "{\n    \"osd_max_backfills\": \"7\"\n}\n");
        check(get("bogus"), -2, "error getting 'bogus': (2) No such file or directory", "");
        let done = "{\n    \"success\": \"osd_max_backfills = '3' \"\n}\n";
        check(set(var, "3"), 0, "", done);
        let bad = "error setting 'osd_max_backfills' to 'abc': (22) Invalid argument";
        check(set(var, "abc"), -22, bad, "");
        let not_now = "error setting 'osd_op_num_shards' to '9': (1) Operation not permitted";
        check(set("osd_op_num_shards", "9"), -1, not_now, "");
        check(unset(var), 0, "osd_max_backfills = '1' ", "{}\n");
        check(unset("bogus"), -22, "error unsetting 'bogus': (22) Invalid argument", "");
        check(json!({ "prefix": "config help", "var": "bogus" }), -2, "Setting not found: 'bogus'", "");
        let inject = json!({ "prefix": "injectargs", "injected_args": ["--osd_max_backfills=2"] });
        check(inject, 0, "osd_max_backfills = '2' ", "{}\n");
        check(json!({ "prefix": "log flush" }), 0, "", "{}\n");
        check(json!({ "prefix": "bogus" }), -22, "unknown command prefix bogus", "");
        check(json!({ "prefix": "config get" }), -22, "bad or missing field 'var'", "");
    }

    #[test]
    fn every_command_is_answered_and_described() {
        let mut values = Values::new("osd.0", &Default::default());
        let told = ask(&mut values, json!({ "prefix": "get_command_descriptions" }));
        let told: Value = serde_json::from_slice(&told.data).expect("JSON");
        assert_eq!(told.as_object().map(Map::len), Some(COMMON.len() + 1));
        for c in COMMON {
            let mut command = json!({ "prefix": prefix_of(c), "var": "osd_max_backfills", "val": "1" });
            command["injected_args"] = json!(["--osd_max_backfills=1"]);
            assert_eq!(ask(&mut values, command).code, 0, "{}", c.sig);
        }
    }

    #[test]
    fn sockets_have_no_code() {
        let reply = Reply::error(Errno::EINVAL, "why");
        assert_eq!(socket_answer(reply), b"ERROR: (22) Invalid argument\nwhy\n");
        assert_eq!(socket_answer(Reply::text("x")), b"x");
    }
}
