//! What daemons told the manager of themselves: `config show`, `service dump`, `service status`.
//!
//! Source: DaemonServer::_handle_command in src/mgr/DaemonServer.cc; ceph_conf_level_name in src/common/config.cc.

use admin::options::Values;
use monitor::command::{Format, Reply};
use monitor::text::table::TextTable;
use serde_json::{Map, Value, json};
use types::Errno;

use crate::command::{Command, Ctx};
use crate::daemons::{Daemon, DaemonKey};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("service dump", "dump service map", "service", "r", |ctx| {
        Reply::json(pretty(ctx), &ctx.daemons.services.dump())
    }),
    Command::new("service status", "dump service state", "service", "r", service_status),
    Command::new(
        "config show name=who,type=CephString name=key,type=CephString,req=false",
        "Show running configuration",
        "mgr",
        "r",
        |ctx| config_show(ctx, false),
    ),
    Command::new(
        "config show-with-defaults name=who,type=CephString",
        "Show running configuration (including compiled-in defaults)",
        "mgr",
        "r",
        |ctx| config_show(ctx, true),
    ),
];

/// Commands without a plain form print JSON for people.
pub(super) fn pretty(ctx: &Ctx<'_>) -> Format {
    if ctx.format == Format::Plain { Format::JsonPretty } else { ctx.format }
}

fn service_status(ctx: &mut Ctx<'_>) -> Reply {
    let mut out = Map::new();
    for (name, service) in &ctx.daemons.services.services {
        let status = |id: &String| {
            let daemon = ctx.daemons.get(&DaemonKey { service: name.clone(), id: id.clone() })?;
            let value = json!({
                "status_stamp": daemon.status_stamp.to_string(),
                "last_beacon": daemon.last_beacon.to_string(),
                "status": daemon.status,
            });
            Some((id.clone(), value))
        };
        out.insert(name.clone(), Value::Object(service.daemons.keys().filter_map(status).collect()));
    }
    Reply::json(pretty(ctx), &Value::Object(out))
}

fn config_show(ctx: &mut Ctx<'_>, defaults: bool) -> Reply {
    let who = ctx.args.text_or_empty("who");
    let Some(key) = DaemonKey::parse(who) else {
        return Reply::error(Errno::EINVAL, "invalid daemon name: use <type>.<id>");
    };
    let is_told = |d: &Daemon| if defaults { !d.defaults.is_empty() } else { !d.config.is_empty() };
    if key.service == "mon" && !ctx.daemons.get(&key).is_some_and(is_told) {
        return ask_monitor(ctx, defaults);
    }
    let own = (key.service == "mgr" && key.id == ctx.settings.name).then(|| Daemon::of_options(ctx.options));
    let Some(daemon) = own.as_ref().or_else(|| ctx.daemons.get(&key)) else {
        return Reply::error(Errno::ENOENT, format!("no config state for daemon {who}"));
    };
    if let Some(name) = ctx.args.text("key") {
        return match (name, daemon.value(name)) {
            ("fsid", _) => Reply::text(format!("{}\n", ctx.map.fsid)),
            (_, Some(value)) => Reply::text(format!("{value}\n")),
            (_, None) => Reply::error(Errno::ENOENT, ""),
        };
    }
    let rows: Vec<Row<'_>> = if defaults {
        let rows = daemon.defaults.iter().filter_map(|(name, default)| Row::new(daemon, name, Some(default)));
        rows.collect()
    } else {
        daemon.config.keys().filter_map(|name| Row::new(daemon, name, None)).collect()
    };
    Reply::show(ctx.format, || plain(&rows), || rows.iter().map(Row::value).collect())
}

/// Has a monitor that has not told the manager of its options tell of them itself.
fn ask_monitor(ctx: &mut Ctx<'_>, defaults: bool) -> Reply {
    let words = if defaults { "config show-with-defaults" } else { "config show" };
    let mut ask = json!({ "prefix": words, "who": ctx.args.text_or_empty("who") });
    if let (Some(ask), Some(name)) = (ask.as_object_mut(), ctx.args.text("key")) {
        ask.insert("key".to_owned(), name.into());
    }
    if let (Some(ask), Format::Json | Format::JsonPretty) = (ask.as_object_mut(), ctx.format) {
        let name = if ctx.format == Format::Json { "json" } else { "json-pretty" };
        ask.insert("format".to_owned(), name.into());
    }
    ctx.ask_monitors(&ask, bytes::Bytes::new())
}

impl Daemon {
    /// The manager itself.
    fn of_options(options: &Values) -> Self {
        let mut own = Self::default();
        own.take_config(&options.encode_for_manager(), usize::MAX);
        own.take_defaults(Values::encode_defaults(), usize::MAX);
        own
    }

    /// The value in force.
    fn value(&self, name: &str) -> Option<&String> {
        let set = self.config.get(name).and_then(|levels| levels.last_key_value());
        set.map(|(_, value)| value).or_else(|| self.defaults.get(name))
    }
}

/// One option.
struct Row<'a> {
    name: &'a str,
    value: &'a str,
    source: &'static str,
    /// Sources and values that the one in force hides, the lowest first.
    overrides: Vec<(&'static str, &'a str)>,
    ignores_mon: bool,
}

impl<'a> Row<'a> {
    /// `None` for an option without a value.
    fn new(daemon: &'a Daemon, name: &'a str, default: Option<&'a String>) -> Option<Self> {
        let levels = daemon.config.get(name).into_iter().flatten();
        let mut values: Vec<(&'static str, &str)> =
            levels.map(|(level, value)| (level_name(*level), value.as_str())).collect();
        let ignores_mon = !values.is_empty() && daemon.ignored.contains_key(name);
        if values.is_empty() {
            values.push(("default", default?));
        }
        let (source, value) = values.pop()?;
        Some(Self { name, value, source, overrides: values, ignores_mon })
    }

    fn value(&self) -> Value {
        let mut out = Map::new();
        out.insert("name".to_owned(), self.name.into());
        out.insert("value".to_owned(), self.value.into());
        out.insert("source".to_owned(), self.source.into());
        if !self.overrides.is_empty() {
            let overrides = self.overrides.iter().map(|(s, v)| json!({ "source": s, "value": v }));
            out.insert("overrides".to_owned(), overrides.collect());
        }
        if self.ignores_mon {
            out.insert("ignores".to_owned(), "mon".into());
        }
        Value::Object(out)
    }

    fn overrides_text(&self) -> String {
        let one = |(source, value): &(&str, &str)| match *value == self.value {
            true => format!("({source}[{value}])"),
            false => format!("{source}[{value}]"),
        };
        self.overrides.iter().rev().map(one).collect::<Vec<_>>().join(",")
    }
}

fn plain(rows: &[Row<'_>]) -> String {
    let mut table =
        TextTable::new().left("NAME").left("VALUE").left("SOURCE").left("OVERRIDES").left("IGNORES");
    for r in rows {
        let ignores = if r.ignores_mon { "mon" } else { "" };
        table.row([r.name, r.value, r.source, &r.overrides_text(), ignores]);
    }
    table.render()
}

/// Source: CONF_* in src/common/config.h.
fn level_name(level: i32) -> &'static str {
    const NAMES: [&str; 7] = ["default", "mon", "file", "env", "cmdline", "override", "final"];
    usize::try_from(level).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("???")
}
