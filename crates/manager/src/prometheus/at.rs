//! Where series are told, and how, as the monitors' options say.
//!
//! At which address that is depends on Ceph's defaults: on all of the host's, without TLS and without a
//! password. Both are options that Ceph's module does not have.
//!
//! Source: MODULE_OPTIONS of Module and StandbyModule in src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use admin::options::ModuleSetting;

pub const MODULE: &str = "prometheus";
pub(crate) const PORT: u16 = 9283;

/// Name, type and default of each option. The last three are ours.
pub(crate) const OPTIONS: [(&str, &str, &str); 12] = [
    ("server_addr", "str", ""),
    ("server_port", "int", "9283"),
    ("scrape_interval", "float", "15.0"),
    ("stale_cache_strategy", "str", "log"),
    ("cache", "bool", "True"),
    ("rbd_stats_pools", "str", ""),
    ("rbd_stats_pools_refresh_interval", "int", "300"),
    ("standby_behaviour", "str", "default"),
    ("standby_error_status_code", "int", "500"),
    ("ssl", "bool", "False"),
    ("auth", "bool", "False"),
    ("username", "str", "prometheus"),
];

/// How often names of images are asked for.
pub(super) const REFRESH: Duration = Duration::from_secs(300);
/// Seconds between two looks at the cluster.
const INTERVAL_S: (f64, f64) = (0.1, 86_400.0);

/// What a manager shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// It is in charge.
    Active,
    /// It stands by for the one whose series are told at this address, if they are; it may answer with an
    /// error instead.
    Standby { active: String, status: Option<u16> },
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsAt {
    /// `None`: all of this host.
    pub ip: Option<IpAddr>,
    pub port: u16,
    pub tls: bool,
    /// Whoever asks has to sign in under this name.
    pub username: Option<String>,
    /// How often the cluster is looked at.
    pub interval: Duration,
    /// Whoever asks is told what the last look showed.
    pub cache: bool,
    /// What is out of date is told all the same.
    pub tells_stale: bool,
    pub role: Role,
    /// Where the monitors are told that it is.
    pub url: String,
}

/// Options as they are set for one manager.
pub(super) struct Given<'a> {
    pub name: &'a str,
    pub all: &'a BTreeMap<String, String>,
}

impl Given<'_> {
    /// One manager's own setting wins over that for all.
    pub fn get(&self, option: &str) -> Option<&str> {
        let own = self.all.get(&format!("mgr/{MODULE}/{}/{option}", self.name));
        let value = own.or_else(|| self.all.get(&format!("mgr/{MODULE}/{option}")));
        value.map(|v| v.trim()).filter(|v| !v.is_empty())
    }

    fn flag(&self, option: &str, default: bool) -> Result<bool, String> {
        let Some(given) = self.get(option) else { return Ok(default) };
        let setting = ModuleSetting { kind: "bool", ..ModuleSetting::default() };
        let read = setting.option().parse_value(given).map(|v| v == "true");
        read.map_err(|_| format!("mgr/{MODULE}/{option} is neither true nor false: '{given}'"))
    }

    pub fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
        &self,
        option: &str,
        default: T,
        (least, most): (T, T),
    ) -> Result<T, String> {
        let Some(given) = self.get(option) else { return Ok(default) };
        let read = given.parse().ok().filter(|n| (&least..=&most).contains(&n));
        read.ok_or_else(|| format!("mgr/{MODULE}/{option} is no number from {least} to {most}: '{given}'"))
    }

    pub fn port(&self) -> Result<u16, String> {
        self.number("server_port", PORT, (1, u16::MAX))
    }

    pub fn refresh_interval(&self) -> Result<Duration, String> {
        let seconds = self.number("rbd_stats_pools_refresh_interval", REFRESH.as_secs(), (1, 86_400))?;
        Ok(Duration::from_secs(seconds))
    }

    fn ip(&self) -> Result<Option<IpAddr>, String> {
        let Some(text) = self.get("server_addr") else { return Ok(None) };
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let ip: IpAddr =
            bare.parse().map_err(|_| format!("mgr/{MODULE}/server_addr is no address: '{text}'"))?;
        Ok(Some(ip))
    }

    /// Whether two managers of one host would listen at the same port and address. An option that makes no
    /// sense is taken for the worst.
    pub fn may_clash(&self, other: &Self) -> bool {
        let everywhere = |ip: Option<IpAddr>| ip.is_none_or(|ip| ip.is_unspecified());
        let same_ip = match (self.ip(), other.ip()) {
            (Ok(a), Ok(b)) => a == b || everywhere(a) || everywhere(b),
            _ => true,
        };
        let same_port = match (self.port(), other.port()) {
            (Ok(a), Ok(b)) => a == b,
            _ => true,
        };
        same_ip && same_port
    }

    /// The role of a manager that stands by.
    pub fn standby(&self, active: String) -> Result<Role, String> {
        let status = match self.get("standby_behaviour") {
            None | Some("default") => None,
            Some("error") => Some(self.number("standby_error_status_code", 500, (400, 599))?),
            Some(odd) => {
                return Err(format!("mgr/{MODULE}/standby_behaviour is neither default nor error: '{odd}'"));
            }
        };
        Ok(Role::Standby { active, status })
    }

    /// In words why the options cannot be followed. `own` is the manager's own address.
    pub fn at(&self, role: Role, own: Option<IpAddr>) -> Result<MetricsAt, String> {
        let (ip, port, tls) = (self.ip()?, self.port()?, self.flag("ssl", false)?);
        let seconds = self.number("scrape_interval", 15.0, INTERVAL_S)?;
        let is_signed = self.flag("auth", false)?;
        self.refresh_interval()?;
        let host = ip.filter(|ip| !ip.is_unspecified()).or(own);
        let host = match host {
            Some(IpAddr::V6(ip)) => format!("[{ip}]"),
            Some(IpAddr::V4(ip)) => ip.to_string(),
            None => "localhost".to_owned(),
        };
        Ok(MetricsAt {
            ip,
            port,
            tls,
            username: is_signed.then(|| self.get("username").unwrap_or("prometheus").to_owned()),
            interval: Duration::from_secs_f64(seconds),
            cache: self.flag("cache", true)?,
            tells_stale: self.get("stale_cache_strategy") == Some("return"),
            role,
            url: format!("{}://{host}:{port}/", if tls { "https" } else { "http" }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(options: &[(&str, &str)]) -> Result<MetricsAt, String> {
        let all = options.iter().map(|(n, v)| (format!("mgr/prometheus/{n}"), (*v).to_owned())).collect();
        let given = Given { name: "x", all: &all };
        given.at(Role::Active, "10.0.0.7".parse().ok())
    }

    #[test]
    fn defaults_are_those_of_cephs_module() {
        let usual = MetricsAt {
            ip: None,
            port: 9283,
            tls: false,
            username: None,
            interval: Duration::from_secs(15),
            cache: true,
            tells_stale: false,
            role: Role::Active,
            url: "http://10.0.0.7:9283/".to_owned(),
        };
        assert_eq!(at(&[]), Ok(usual.clone()));
        let words = |o: &(&'static str, &str, &'static str)| (o.0, o.2);
        assert_eq!(at(&OPTIONS.map(|o| words(&o))), Ok(usual), "as they are described");
    }

    #[test]
    fn each_option_acts() {
        let set = at(&[
            ("server_addr", "::1"),
            ("server_port", "1"),
            ("x/server_port", "9000"),
            ("y/server_port", "3"),
            ("scrape_interval", "0.5"),
            ("stale_cache_strategy", "return"),
            ("cache", "false"),
            ("ssl", "1"),
            ("auth", "true"),
            ("username", "p"),
        ]);
        let set = set.expect("good");
        assert_eq!((set.ip, set.port, set.url.as_str()), ("::1".parse().ok(), 9000, "https://[::1]:9000/"));
        assert_eq!((set.tls, set.username.as_deref(), set.interval.as_millis()), (true, Some("p"), 500));
        assert_eq!((set.cache, set.tells_stale), (false, true));
        assert_eq!(at(&[("server_addr", "0.0.0.0")]).map(|a| a.url), Ok("http://10.0.0.7:9283/".to_owned()));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for bad in [
            ("server_addr", "here"),
            ("server_port", "0"),
            ("server_port", "70000"),
            ("scrape_interval", "0"),
            ("scrape_interval", "NaN"),
            ("scrape_interval", "1e99"),
            ("cache", "perhaps"),
            ("rbd_stats_pools_refresh_interval", "0"),
            ("ssl", "perhaps"),
            ("auth", "maybe"),
        ] {
            assert!(at(&[bad]).is_err_and(|why| why.contains(bad.0)), "{bad:?}");
        }
        let standby = |behaviour: &str, code: &str| {
            let all = [("standby_behaviour", behaviour), ("standby_error_status_code", code)];
            let all = all.map(|(n, v)| (format!("mgr/prometheus/{n}"), v.to_owned())).into();
            Given { name: "x", all: &all }.standby("u".to_owned())
        };
        let role = |status| Ok(Role::Standby { active: "u".to_owned(), status });
        assert_eq!(standby("default", "503"), role(None));
        assert_eq!(standby("error", "503"), role(Some(503)));
        assert!(standby("error", "200").is_err() && standby("quiet", "503").is_err());
    }
}
