//! Commands to this daemon: `ceph tell mds.a ...`, and through its admin socket.
//!
//! Source: MDSDaemon::asok_command in src/mds/MDSDaemon.cc, MDSRankDispatcher::handle_asok_command in
//! src/mds/MDSRank.cc.

use admin::Reply;
use admin::common::{self, Daemon, Described, Request, described_as};
use admin::perf::{Count, Logger};
use maps::MdsState;
use mds::{CacheView, Server, SessionView};
use serde_json::{Map, Value, json};
use types::{Errno, GlobalId};

use super::machine::MdsMachine;

/// The commands besides those of every daemon.
const COMMANDS: &[Described] = &[
    described_as("cache status", "show cache status"),
    described_as(
        "client evict name=filters,type=CephString,n=N,req=false",
        "Evict client session(s) based on a filter",
    ),
    described_as(
        "client ls name=filters,type=CephString,n=N,req=false",
        "List client sessions based on a filter",
    ),
    described_as("flush journal", "Flush the journal to the backing store"),
    described_as(
        "session evict name=filters,type=CephString,n=N,req=false",
        "Evict client session(s) based on a filter",
    ),
    described_as(
        "session ls name=filters,type=CephString,n=N,req=false",
        "List client sessions based on a filter",
    ),
    described_as("status", "high-level status of MDS"),
];

/// What a command comes to.
enum Answer {
    Now(Reply),
    /// When the journal is flushed.
    Flushed,
}

impl MdsMachine {
    /// A command from somebody who may do everything. `None`: `answer` is called later.
    pub(super) fn command(&mut self, cmd: &[String], answer: impl FnOnce(Reply) + Send + 'static) {
        match self.answer(cmd) {
            Answer::Now(reply) => answer(reply),
            Answer::Flushed => self.when_flushed(Box::new(answer)),
        }
    }

    fn answer(&mut self, cmd: &[String]) -> Answer {
        let request = match Request::parse(cmd, COMMANDS) {
            Ok(request) => request,
            Err(refused) => return Answer::Now(refused),
        };
        let loggers = self.loggers();
        let perf = &|| loggers.clone();
        let (values, resets) = (&mut self.values, &mut self.resets);
        let mut daemon = Daemon { values, perf, resets, own: COMMANDS };
        if let Some(reply) = common::run(&request, &mut daemon) {
            return Answer::Now(reply);
        }
        let value = match request.prefix.as_str() {
            "status" => self.status(),
            _ if self.core.is_none() || self.rank() < 0 => {
                return Answer::Now(Reply::error(Errno::EINVAL, "MDS not active"));
            }
            "cache status" => self.cache_status(),
            "flush journal" => return Answer::Flushed,
            "client ls" | "session ls" => match self.filtered(&request) {
                Ok(found) => found.iter().map(session_json).collect(),
                Err(why) => return Answer::Now(Reply::error(Errno::EINVAL, why)),
            },
            "client evict" | "session evict" => return Answer::Now(self.evict(&request)),
            other => return Answer::Now(Reply::error(Errno::EINVAL, format!("unknown command '{other}'"))),
        };
        Answer::Now(request.finish(Reply::json(request.format, &value)))
    }

    fn status(&self) -> Value {
        let info = self.map.info.get(&self.gid());
        json!({
            "cluster_fsid": self.osd_map.fsid.to_string(),
            "whoami": self.rank(),
            "id": self.gid(),
            "want_state": self.beacon.wanted().name(),
            "state": info.map_or(MdsState::NULL, |info| info.state).name(),
            "fs_name": self.map.fs_name,
            "mdsmap_epoch": self.map.epoch.0,
            "osdmap_epoch": self.osd_map.epoch.0,
        })
    }

    fn view(&self) -> CacheView {
        self.core.as_ref().map(Server::cache_view).unwrap_or_default()
    }

    fn cache_status(&self) -> Value {
        let view = self.view();
        json!({
            "inodes": view.inodes, "fragments": view.fragments, "caps": view.caps, "strays": view.strays,
            "dirty": view.dirty, "requests": view.requests, "log_events": view.log_events,
        })
    }

    /// Sessions that all filters name: `id=4123`, `state=open`, or `client_metadata.KEY=VALUE`.
    fn filtered(&self, request: &Request) -> Result<Vec<SessionView>, String> {
        let filters: Vec<Filter> =
            request.args.list("filters").iter().map(|text| Filter::parse(text)).collect::<Result<_, _>>()?;
        let views = self.core.as_ref().map(Server::session_views).unwrap_or_default();
        Ok(views.into_iter().filter(|view| filters.iter().all(|f| f.fits(view))).collect())
    }

    fn evict(&mut self, request: &Request) -> Reply {
        if request.args.list("filters").is_empty() {
            return Reply::error(Errno::EINVAL, "Invalid filter: use id=<client> or id=* for all");
        }
        match self.filtered(request) {
            Ok(found) => {
                found.iter().for_each(|view| self.core(mds::Input::Evict(view.client)));
                Reply::ok()
            }
            Err(why) => Reply::error(Errno::EINVAL, why),
        }
    }

    fn loggers(&self) -> Vec<Logger> {
        let view = self.view();
        let sessions = self.core.as_ref().map_or(0, |core| core.session_views().len());
        let mem = Logger::new("mds_mem")
            .with("ino", "Inodes", Count::Gauge(view.inodes as u64))
            .with("dir", "Directories", Count::Gauge(view.fragments as u64))
            .with("cap", "Capabilities", Count::Gauge(view.caps as u64));
        let log = Logger::new("mds_log").with("ev", "Events", Count::Gauge(view.log_events));
        let cache =
            Logger::new("mds_cache").with("num_strays", "Stray dentries", Count::Gauge(view.strays as u64));
        let own =
            Logger::new("mds_sessions").with("session_count", "Session count", Count::Gauge(sessions as u64));
        vec![cache, log, mem, own]
    }
}

/// A condition on sessions. Source: SessionFilter::parse in src/mds/SessionMap.cc.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    All,
    Id(GlobalId),
    State(String),
    Metadata(String, String),
}

impl Filter {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("Invalid filter: {text}");
        let (key, value) = match text.split_once('=') {
            Some(pair) => pair,
            // A number alone is a client's.
            None => ("id", text),
        };
        match key {
            "id" if value == "*" => Ok(Self::All),
            "id" => value.parse().map(|id| Self::Id(GlobalId(id))).map_err(|_| bad()),
            "state" => Ok(Self::State(value.to_owned())),
            key => {
                let name = key.strip_prefix("client_metadata.").ok_or_else(bad)?;
                Ok(Self::Metadata(name.to_owned(), value.to_owned()))
            }
        }
    }

    fn fits(&self, view: &SessionView) -> bool {
        match self {
            Self::All => true,
            Self::Id(id) => view.client == *id,
            Self::State(state) => view.state == state,
            Self::Metadata(name, value) => {
                view.metadata.values.get(name.as_bytes()).is_some_and(|found| found == value.as_bytes())
            }
        }
    }
}

fn session_json(view: &SessionView) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let metadata: Map<String, Value> =
        view.metadata.values.iter().map(|(k, v)| (text(k), text(v).into())).collect();
    json!({
        "id": view.client.0,
        "inst": format!("{} {}", view.inst.name, view.inst.addr),
        "state": view.state,
        "num_caps": view.caps,
        "request_load_avg": view.requests,
        "requests_in_flight": view.requests,
        "completed_requests": view.completed_requests,
        "num_completed_flushes": view.completed_flushes,
        "idle_s": view.silent.as_secs_f64(),
        "connected": view.is_connected,
        "client_metadata": metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        for (text, filter) in [
            ("id=*", Some(Filter::All)),
            ("id=4123", Some(Filter::Id(GlobalId(4123)))),
            ("4123", Some(Filter::Id(GlobalId(4123)))),
            ("state=open", Some(Filter::State("open".into()))),
            ("client_metadata.hostname=a=b", Some(Filter::Metadata("hostname".into(), "a=b".into()))),
            ("id=x", None),
            ("other=1", None),
        ] {
            assert_eq!(Filter::parse(text).ok(), filter, "{text}");
        }
    }
}
