//! Where the dashboard is to be served, as the monitors' options say.
//!
//! On a loopback address it speaks plain HTTP unless TLS is asked for; on any other it speaks TLS, and a
//! setting that asks for less is refused.
//!
//! Source: MODULE_OPTIONS and _configure in src/pybind/mgr/dashboard/module.py; names and ports are those,
//! the address that it listens at by default is not: Ceph's module is open to the network at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use admin::options::ModuleSetting;
use bytes::Bytes;
use monitor::command::Reply;
use types::{Errno, Now};

use crate::command::{self, Giver, ReplyTo};
use crate::core::Manager;
use crate::io::{Ask, Output};
use crate::mon_commands::{MonRequest, Plan};
use crate::outcome::Then;
use crate::users::{User, WithHash};

pub const MODULE: &str = "dashboard";
/// Name, type and default of each option.
pub(crate) const OPTIONS: [(&str, &str, &str); 4] = [
    ("server_addr", "str", "127.0.0.1"),
    ("server_port", "int", "8080"),
    ("ssl", "str", "auto"),
    ("ssl_server_port", "int", "8443"),
];

/// Where it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DashboardAt {
    pub addr: SocketAddr,
    pub tls: bool,
}

impl DashboardAt {
    /// By the options of the manager with this name; in words why they cannot be followed.
    pub(crate) fn of(name: &str, given: &BTreeMap<String, String>) -> Result<Self, String> {
        // One manager's own setting wins over that for all.
        let own = |option: &str| given.get(&format!("mgr/{MODULE}/{name}/{option}"));
        let get = |option: &str| {
            let value = own(option).or_else(|| given.get(&format!("mgr/{MODULE}/{option}")));
            value.map(|v| v.trim()).filter(|v| !v.is_empty())
        };
        let ip: IpAddr = match get("server_addr") {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(text) => {
                text.parse().map_err(|_| format!("mgr/{MODULE}/server_addr is no address: '{text}'"))?
            }
        };
        let tls = match get("ssl") {
            None | Some("auto") => !ip.is_loopback(),
            Some(given) => boolean("ssl", given)?,
        };
        if !tls && !ip.is_loopback() {
            return Err(format!(
                "at {ip} the dashboard is served by TLS only: mgr/{MODULE}/ssl must not be false"
            ));
        }
        let (option, usual) = if tls { ("ssl_server_port", 8443) } else { ("server_port", 8080) };
        let port = match get(option) {
            None => usual,
            Some(text) => {
                let is_none = || format!("mgr/{MODULE}/{option} is no port: '{text}'");
                text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(is_none)?
            }
        };
        Ok(Self { addr: SocketAddr::new(ip, port), tls })
    }
}

/// A switch as options' values are read everywhere.
fn boolean(option: &str, given: &str) -> Result<bool, String> {
    let setting = ModuleSetting { kind: "bool", ..ModuleSetting::default() };
    let read = setting.option().parse_value(given);
    let odd = |_| format!("mgr/{MODULE}/{option} is neither auto nor true nor false: '{given}'");
    read.map(|v| v == "true").map_err(odd)
}

/// So many passwords are hashed at a time.
const MOST_HASHES: usize = 8;

impl Manager {
    /// Has the dashboard served where it is to be: by the manager in charge, where its module is on.
    pub(crate) fn look_at_dashboard(&mut self, out: &mut Vec<Output>) {
        let on = self.confirmed && self.modules.as_ref().is_some_and(|on| on.contains(MODULE));
        let at = match on {
            true => DashboardAt::of(&self.settings.name, &self.module_options).map(Some),
            false => Ok(None),
        };
        if self.dashboard == at {
            return;
        }
        match &at {
            Ok(at) => out.push(Output::Dashboard(*at)),
            Err(why) => {
                out.push(Output::Dashboard(None));
                out.push(Output::Warn(format!("the dashboard is not served: {why}")));
            }
        }
        self.dashboard = at;
    }

    /// A command of this process itself.
    pub(crate) fn asked_here(&mut self, now: Now, id: u64, ask: Ask, out: &mut Vec<Output>) {
        let to = ReplyTo::Own { id };
        match ask {
            Ask::Manager { json, input } => command::answer(self, now, to, Giver::Own, &[json], &input, out),
            Ask::Metrics => self.ask_for_metrics(now, to, out),
            Ask::Monitors { json, input } => {
                let request = MonRequest { json, input, before: Bytes::new() };
                let fsid = self.fsid();
                if !self.mon || fsid.is_zero() || !self.mon_commands.send(fsid, to, request, out) {
                    let why = "the monitors cannot be asked now";
                    out.push(to.reply(Reply::error(Errno::EAGAIN, why)));
                }
            }
        }
    }

    /// Begins a change that needs a hash.
    pub(crate) fn hash(&mut self, to: ReplyTo, password: String, then: WithHash, out: &mut Vec<Output>) {
        if self.hashing.len() >= MOST_HASHES {
            return out.push(to.reply(Reply::error(Errno::EAGAIN, "too many passwords are being hashed")));
        }
        self.hashes += 1;
        self.hashing.insert(self.hashes, (to, then));
        out.push(Output::Hash { id: self.hashes, password });
    }

    /// Goes on with it.
    pub(crate) fn hashed(&mut self, now: Now, id: u64, hash: Option<String>, out: &mut Vec<Output>) {
        let Some((to, then)) = self.hashing.remove(&id) else { return };
        let Some(hash) = hash else {
            return out.push(to.reply(Reply::error(Errno::EIO, "the password could not be hashed")));
        };
        let mut said = String::new();
        let changed = self.users.change(|db| {
            said = then.apply(db, hash, i64::from(now.wall.sec))?;
            Ok(())
        });
        let changed = match changed {
            Ok(changed) => changed,
            Err(refusal) => return out.push(to.reply(command::dashboard::refused(refusal))),
        };
        let requests = vec![command::dashboard::request(&changed.db)];
        let then = Then::Users(Box::new(changed));
        let plan = Plan { to: Some(to), requests, done: Reply::text(said), then };
        if self.mon_commands.send_all(self.fsid(), plan, out).is_err() {
            self.users.unsent();
            out.push(to.reply(Reply::error(Errno::EAGAIN, "too many commands wait for the monitors")));
        }
    }

    /// A user who may sign in with a password: what is known of them, and what their roles allow. `None` also
    /// where it is not known yet which users there are.
    pub fn user(&self, name: &str) -> Option<(User, BTreeMap<String, BTreeSet<String>>)> {
        let db = self.users.db()?;
        let user = db.users.get(name)?;
        Some((user.clone(), db.permissions(user)))
    }

    /// Whether a code lets somebody in; it does so once.
    pub fn take_once(&mut self, now: Now, code: &str) -> bool {
        self.confirmed && self.once.take(now, code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(options: &[(&str, &str)]) -> Result<(String, bool), String> {
        let given = options.iter().map(|(n, v)| (format!("mgr/dashboard/{n}"), (*v).to_owned())).collect();
        DashboardAt::of("x", &given).map(|at| (at.addr.to_string(), at.tls))
    }

    #[test]
    fn only_loopback_goes_without_tls() {
        let ok = |addr: &str, tls| Ok((addr.to_owned(), tls));
        assert_eq!(at(&[]), ok("127.0.0.1:8080", false));
        assert_eq!(at(&[("ssl", "true")]), ok("127.0.0.1:8443", true));
        assert_eq!(at(&[("server_addr", "::1"), ("server_port", "9000")]), ok("[::1]:9000", false));
        assert_eq!(at(&[("server_addr", "10.0.0.1")]), ok("10.0.0.1:8443", true));
        assert_eq!(at(&[("server_addr", "::"), ("ssl_server_port", "443")]), ok("[::]:443", true));
        let refused = at(&[("server_addr", "10.0.0.1"), ("ssl", "false")]);
        assert!(refused.is_err_and(|why| why.contains("TLS only")));
    }

    #[test]
    fn one_managers_own_setting_wins_and_nonsense_is_refused() {
        assert_eq!(
            at(&[("server_port", "1"), ("x/server_port", "2")]),
            Ok(("127.0.0.1:2".to_owned(), false))
        );
        assert_eq!(at(&[("y/server_port", "2")]), Ok(("127.0.0.1:8080".to_owned(), false)));
        assert_eq!(at(&[("ssl", "1")]), Ok(("127.0.0.1:8443".to_owned(), true)));
        for bad in
            [("server_addr", "here"), ("server_port", "0"), ("server_port", "70000"), ("ssl", "perhaps")]
        {
            assert!(at(&[bad]).is_err(), "{bad:?}");
        }
    }
}
