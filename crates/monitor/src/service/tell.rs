//! Commands to this monitor alone (`ceph tell mon.a ...`): options of the running process, its version, its status.
//!
//! Source: the admin socket's commands in src/mon/Monitor.cc and src/common/ceph_context.cc.

use messages::common::{MCommand, MCommandReply};
use serde_json::json;
use types::{ConnId, Errno, Now};

use crate::command::{Args, Command, Format, Handler, Reply, Signature, describe_commands, flags};
use crate::io::Output;
use crate::monitor::Monitor;
use crate::session::Access;

/// The release that we present ourselves as.
pub const VERSION: &str = "16.2.15";

/// The table is only for its descriptions: [`Monitor::run_tell`] runs the commands.
const TELL: &[Command] = &[
    tell("version", "release", "r"),
    tell("git_version", "revision that it was built from", "r"),
    tell("mon_status", "this monitor and its quorum", "r"),
    tell(
        "injectargs name=injected_args,type=CephString,n=N",
        "set options of this process: --name value ...",
        "rw",
    ),
    tell("config show", "options in force", "r"),
    tell("config get name=var,type=CephString", "an option in force", "r"),
    tell(
        "config set name=var,type=CephString name=val,type=CephString,n=N",
        "set an option of this process",
        "rw",
    ),
    tell("config unset name=var,type=CephString", "take back an option set in this process", "rw"),
];

const fn tell(sig: &'static str, help: &'static str, perm: &'static str) -> Command {
    Command { sig, help, module: "mon", perm, flags: flags::NONE, handler: Handler::Read(|_| Reply::ok()) }
}

impl Monitor {
    pub(crate) fn tell(&mut self, _now: Now, conn: ConnId, tid: u64, m: &MCommand, out: &mut Vec<Output>) {
        let reply = self.run_tell(conn, m).unwrap_or_else(|refused| refused);
        let msg = MCommandReply { result: reply.code, status: reply.outs, output: reply.data };
        out.push(Output::Send { conn, tid, msg: msg.into() });
    }

    fn run_tell(&mut self, conn: ConnId, m: &MCommand) -> Result<Reply, Reply> {
        let bad = |e: crate::command::CommandError| Reply::error(Errno::EINVAL, e.to_string());
        let (prefix, mut args) = Args::parse(&m.cmd).map_err(bad)?;
        if prefix == "get_command_descriptions" {
            return Ok(Reply::text(describe_commands(TELL.iter()).to_string()));
        }
        let Some(session) = self.sessions.get(&conn) else { return Err(Reply::from(Errno::EACCES)) };
        let words: Vec<&str> = prefix.split_whitespace().collect();
        let Some(command) = TELL.iter().find(|c| Signature::prefix_of(c.sig).eq(words.iter().copied()))
        else {
            return Err(Reply::error(Errno::EINVAL, "command not known"));
        };
        // Source: MonCap of tell commands: the whole monitor must be open to the session.
        let all = Access { read: true, write: true, exec: true };
        let need = if command.perm == "r" { Access::R } else { all };
        if !session.may_command("mon", &prefix, &args.as_text(), need) {
            return Err(Reply::error(Errno::EACCES, "access denied"));
        }
        args.check(&Signature::parse(command.sig)).map_err(bad)?;
        let format = Format::parse(args.text("format"))?;
        // Without a format the admin socket's commands answer in JSON for people.
        let json_format = if format.is_plain() { Format::JsonPretty } else { format };
        let var = args.text_or_empty("var").replace([' ', '-'], "_");
        Ok(match words.as_slice() {
            ["version"] => Reply::json(
                json_format,
                &json!({ "version": VERSION, "release": "pacific", "release_type": "stable" }),
            ),
            ["git_version"] => Reply::json(json_format, &json!({ "git_version": "" })),
            ["mon_status"] => {
                Reply::json(json_format, &crate::command::mon_status(&self.state, &self.settings))
            }
            ["config", "show"] => Reply::json(json_format, &json!(self.running_options())),
            ["config", "get"] => {
                let default = crate::options::find(&var).map(|o| o.default.to_owned());
                match self.settings.option(&self.state, &var).or(default) {
                    Some(value) => Reply::json(json_format, &json!({ var: value })),
                    None => {
                        let text = format!("error getting '{var}': {}", Errno::ENOENT);
                        Reply::json(json_format, &json!({ "error": text }))
                    }
                }
            }
            ["config", "set"] => {
                self.settings.options.insert(var, args.list("val").join(" "));
                Reply::json(json_format, &json!({ "success": "" }))
            }
            ["config", "unset"] => {
                self.settings.options.remove(&var);
                Reply::json(json_format, &json!({ "success": "" }))
            }
            ["injectargs"] => self.injectargs(&args.list("injected_args").join(" ")),
            _ => Reply::error(Errno::EINVAL, "command not known"),
        })
    }

    /// Defaults, then what the config database says, then local settings, by option.
    fn running_options(&self) -> std::collections::BTreeMap<String, String> {
        let me = self.settings.entity();
        let view = crate::state::EntityView { name: Some(&me), ..Default::default() };
        let defaults = crate::options::all().map(|o| (o.name.to_owned(), o.default.to_owned()));
        let mut all: std::collections::BTreeMap<String, String> = defaults.collect();
        all.extend(self.state.config.resolve(&view).into_iter().map(|(k, e)| (k, e.value)));
        all.extend(self.settings.options.clone());
        all
    }

    /// `--name value`, `--name=value`, `--no-name` and `--name` for switches.
    fn injectargs(&mut self, text: &str) -> Reply {
        let mut words = text.split_whitespace().peekable();
        let mut set = Vec::new();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Reply::error(Errno::EINVAL, format!("failed to parse arguments: {word}"));
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => match words.next_if(|next| !next.starts_with("--")) {
                    Some(value) => (name, value.to_owned()),
                    None => match name.strip_prefix("no-").or_else(|| name.strip_prefix("no_")) {
                        Some(name) => (name, "false".to_owned()),
                        None => (name, "true".to_owned()),
                    },
                },
            };
            let name = name.replace('-', "_");
            set.push(format!("{name} = '{value}' "));
            self.settings.options.insert(name, value);
        }
        Reply { code: 0, outs: set.concat(), data: bytes::Bytes::new() }
    }
}
