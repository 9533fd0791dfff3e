//! How to reach a cluster: monitors, name and key, found as librados finds them.
//!
//! Source: src/common/config.cc (search for the file), src/common/options.cc (keyring), MonMap::build_initial.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cephx::{CryptoKey, Keyring};
use objecter::Settings;
use runtime::session::Method;
use types::{AddrKind, AuthName, EntityAddr, EntityType};
use zeroize::Zeroizing;

use crate::conf::Conf;
use crate::{Error, Result};

/// Where monitors listen for msgr2. Source: CEPH_MON_PORT_IANA.
const MON_PORT: u16 = 3300;
/// Where they listen for the older protocol, which we do not speak. Source: CEPH_MON_PORT_LEGACY.
const MON_PORT_LEGACY: u16 = 6789;

/// How to reach a cluster, and as whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// msgr2 addresses of monitors.
    pub monitors: Vec<EntityAddr>,
    pub name: AuthName,
    /// Needed for [`Method::Cephx`].
    pub key: Option<CryptoKey>,
    pub method: Method,
    /// How long `Cluster::connect` tries. Source: client_mount_timeout.
    pub connect_timeout: Duration,
    /// Operations on objects give up after this long; `None`: never. Source: rados_osd_op_timeout.
    pub op_timeout: Option<Duration>,
    /// Requests to monitors give up after this long; `None`: never. Source: rados_mon_op_timeout.
    pub mon_timeout: Option<Duration>,
    pub objecter: Settings,
    /// The options `ms_*_mode`, where they are set.
    pub modes: BTreeMap<String, String>,
    /// Options `rgw_*` of gateways of object storage, where the file sets them. A client that is connected
    /// does not keep them.
    pub rgw: GatewayOptions,
    /// The file that this was read from.
    pub conf: Option<PathBuf>,
}

/// Options by their names. Some are secrets, which nobody is to see in a log, and which are wiped when they
/// are dropped.
#[derive(Clone, Default)]
pub struct GatewayOptions(BTreeMap<String, Zeroizing<String>>);

impl GatewayOptions {
    /// The text of an option that is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|text| text.as_str())
    }

    /// Takes over what is not set here.
    pub fn or(mut self, others: Self) -> Self {
        for (name, text) in others.0 {
            self.0.entry(name).or_insert(text);
        }
        self
    }
}

impl FromIterator<(String, String)> for GatewayOptions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(options: I) -> Self {
        Self(options.into_iter().map(|(name, text)| (name, Zeroizing::new(text))).collect())
    }
}

impl std::fmt::Debug for GatewayOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a program's command line says of the configuration; everything may be left out.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// `-c`; else `CEPH_CONF`, else the usual places.
    pub conf: Option<PathBuf>,
    /// `--cluster`; else `ceph`.
    pub cluster: Option<String>,
    /// `-n client.admin`, or through `--id admin`.
    pub name: Option<AuthName>,
    /// `-k`.
    pub keyring: Option<PathBuf>,
    /// `-m`, in the forms of `mon host`.
    pub mon_host: Option<String>,
}

impl Config {
    /// A configuration with nothing but defaults.
    pub fn new(monitors: Vec<EntityAddr>, name: AuthName, key: Option<CryptoKey>) -> Self {
        let method = if key.is_some() { Method::Cephx } else { Method::None };
        Self {
            monitors,
            name,
            key,
            method,
            connect_timeout: Duration::from_secs(300),
            op_timeout: None,
            mon_timeout: None,
            objecter: Settings::default(),
            modes: BTreeMap::new(),
            rgw: GatewayOptions::default(),
            conf: None,
        }
    }

    /// As `client.admin` with this configuration file.
    pub fn from_file(conf: impl Into<PathBuf>) -> Result<Self> {
        Self::find(&Find { conf: Some(conf.into()), ..Find::default() })
    }

    /// Reads files and resolves host names; blocking.
    pub fn find(find: &Find) -> Result<Self> {
        let cluster = find.cluster.clone().unwrap_or_else(|| "ceph".to_owned());
        let name = find.name.clone().unwrap_or_else(|| AuthName::new(EntityType::Client, "admin"));
        let path = conf_path(find, &cluster)?;
        let conf = path.as_deref().map_or_else(|| Ok(Conf::default()), Conf::read)?;
        let options = conf.for_daemon(name.kind.as_str(), &name.id);
        let option = |key: &str| options.get(key).map(String::as_str);
        let expand = |text: &str| expand(text, &cluster, &name);

        let hosts = find.mon_host.clone().or(option("mon_host").map(&expand));
        let hosts = hosts.ok_or_else(|| {
            let place =
                path.as_ref().map_or("no ceph.conf was found".to_owned(), |p| p.display().to_string());
            Error::Config(format!("no monitors are named ('mon host'): {place}"))
        })?;
        let monitors = parse_mon_host(&hosts)?;
        let wanted = ["auth_supported", "auth_client_required"].into_iter().find_map(option);
        let none_only = wanted.is_some_and(|w| w.contains("none") && !w.contains("cephx"));
        let key = match none_only {
            true => None,
            false => Some(find_key(find, &name, &option, &expand)?),
        };
        let mut config = Self::new(monitors, name.clone(), key);
        config.conf = path;
        let is_mode = |name: &str| name.starts_with("ms_") && name.ends_with("_mode");
        let modes = options.iter().filter(|(name, _)| is_mode(name));
        config.modes = modes.map(|(name, text)| (name.clone(), text.clone())).collect();
        let of_gateway = options.iter().filter(|(name, _)| name.starts_with("rgw_"));
        config.rgw = of_gateway.map(|(name, text)| (name.clone(), text.clone())).collect();
        let seconds = |key: &str| option(key).and_then(|v| v.parse::<f64>().ok()).filter(|s| *s > 0.0);
        let duration = |key: &str| seconds(key).and_then(|s| Duration::try_from_secs_f64(s).ok());
        config.op_timeout = duration("rados_osd_op_timeout");
        config.mon_timeout = duration("rados_mon_op_timeout");
        config.connect_timeout = duration("client_mount_timeout").unwrap_or(config.connect_timeout);
        let number = |key: &str| option(key).and_then(|v| v.parse::<u64>().ok()).filter(|n| *n > 0);
        if let Some(ops) = number("objecter_inflight_ops") {
            config.objecter.max_ops = usize::try_from(ops).unwrap_or(usize::MAX);
        }
        config.objecter.max_bytes = number("objecter_inflight_op_bytes").unwrap_or(config.objecter.max_bytes);
        Ok(config)
    }
}

/// The file to read; an error when one was named and is not there.
fn conf_path(find: &Find, cluster: &str) -> Result<Option<PathBuf>> {
    let named = find.conf.clone().or_else(|| std::env::var_os("CEPH_CONF").map(PathBuf::from));
    if let Some(path) = named {
        if !path.is_file() {
            return Err(Error::Config(format!("there is no configuration file {}", path.display())));
        }
        return Ok(Some(path));
    }
    let file = format!("{cluster}.conf");
    let home = std::env::var_os("HOME").map(|h| Path::new(&h).join(".ceph").join(&file));
    let places = [Some(Path::new("/etc/ceph").join(&file)), home, Some(PathBuf::from(&file))];
    Ok(places.into_iter().flatten().find(|p| p.is_file()))
}

/// Replaces `$cluster`, `$name`, `$type`, `$id` and `$home`, with or without braces.
fn expand(text: &str, cluster: &str, name: &AuthName) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let whole = name.to_string();
    let values = [
        ("cluster", cluster),
        ("name", whole.as_str()),
        ("type", name.kind.as_str()),
        ("id", &name.id),
        ("home", &home),
    ];
    values.iter().fold(text.to_owned(), |text, (variable, value)| {
        text.replace(&format!("${{{variable}}}"), value).replace(&format!("${variable}"), value)
    })
}

fn find_key<'a>(
    find: &Find,
    name: &AuthName,
    option: &impl Fn(&str) -> Option<&'a str>,
    expand: &impl Fn(&str) -> String,
) -> Result<CryptoKey> {
    let bad = |what: String| Error::Config(what);
    if find.keyring.is_none() {
        let inline = match option("keyfile") {
            Some(file) => {
                let file = expand(file);
                Some(std::fs::read_to_string(&file).map_err(|e| bad(format!("cannot read {file}: {e}")))?)
            }
            None => option("key").map(str::to_owned),
        };
        if let Some(text) = inline {
            return CryptoKey::from_base64(text.trim()).map_err(|e| bad(format!("the key of {name}: {e}")));
        }
    }
    let usual =
        "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring,/etc/ceph/keyring.bin";
    let list = match &find.keyring {
        Some(path) => path.display().to_string(),
        None => expand(option("keyring").unwrap_or(usual)),
    };
    let paths = || list.split([',', ';', ' ']).map(str::trim).filter(|p| !p.is_empty());
    let path = paths().find(|p| Path::new(p).is_file());
    let path = path.ok_or_else(|| bad(format!("no keyring for {name}: looked for {list}")))?;
    let text = std::fs::read_to_string(path).map_err(|e| bad(format!("cannot read {path}: {e}")))?;
    let keyring = Keyring::parse(&text).map_err(|e| bad(format!("{path} is not a keyring: {e}")))?;
    let entry = keyring.get(name).ok_or_else(|| bad(format!("{path} has no key for {name}")))?;
    Ok(entry.key.clone())
}

/// The msgr2 addresses in a `mon host` line: `[v2:ip:port,v1:ip:port],...`, `ip`, `ip:port`, `host`, in any mix.
pub fn parse_mon_host(text: &str) -> Result<Vec<EntityAddr>> {
    let mut out = Vec::new();
    for word in text.split([',', ';', ' ', '\t']).filter(|w| !w.is_empty()) {
        // Brackets of a list; those of an IPv6 address stay.
        let word =
            word.strip_prefix('[').filter(|w| w.starts_with("v1:") || w.starts_with("v2:")).unwrap_or(word);
        if word.starts_with("v1:") {
            continue;
        }
        let (v2, rest) = word.strip_prefix("v2:").map_or((false, word), |rest| (true, rest));
        let rest = rest.split('/').next().unwrap_or(rest);
        let unmatched = rest.ends_with(']') && !rest.starts_with('[');
        let rest = if unmatched { rest.trim_end_matches(']') } else { rest };
        for socket in resolve(rest)? {
            // A port that is known to be the older protocol's stands for its host.
            let port = if !v2 && socket.port() == MON_PORT_LEGACY { MON_PORT } else { socket.port() };
            let addr = EntityAddr {
                kind: AddrKind::Msgr2,
                nonce: 0,
                socket: Some(SocketAddr::new(socket.ip(), port)),
            };
            if !out.contains(&addr) {
                out.push(addr);
            }
        }
    }
    if out.is_empty() {
        return Err(Error::Config(format!("'mon host = {text}' names no msgr2 address")));
    }
    Ok(out)
}

fn resolve(host: &str) -> Result<Vec<SocketAddr>> {
    if let Ok(socket) = host.parse::<SocketAddr>() {
        return Ok(vec![socket]);
    }
    if let Ok(ip) = host.trim_matches(['[', ']']).parse() {
        return Ok(vec![SocketAddr::new(ip, MON_PORT)]);
    }
    let with_port = if host.contains(':') { host.to_owned() } else { format!("{host}:{MON_PORT}") };
    match with_port.to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(e) => Err(Error::Config(format!("the monitor host '{host}' cannot be resolved: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mon_host_in_its_forms() {
        let check = |text: &str, want: &[&str]| {
            let got: Vec<String> = parse_mon_host(text)
                .expect("parses")
                .iter()
                .filter_map(|a| a.socket)
                .map(|s| s.to_string())
                .collect();
            assert_eq!(got, want, "{text}");
        };
        check("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", &["10.0.0.1:3300"]);
        check(
            "[v1:10.0.0.1:6789,v2:10.0.0.1:3301],[v2:10.0.0.2:3300,v1:10.0.0.2:6789]",
            &["10.0.0.1:3301", "10.0.0.2:3300"],
        );
        check("10.0.0.1, 10.0.0.2:40789", &["10.0.0.1:3300", "10.0.0.2:40789"]);
        check("10.0.0.1:6789;10.0.0.2 v2:10.0.0.3:5", &["10.0.0.1:3300", "10.0.0.2:3300", "10.0.0.3:5"]);
        check("[v2:[::1]:3300/0,v1:[::1]:6789/0] [::2]:77", &["[::1]:3300", "[::2]:77"]);
        assert!(parse_mon_host("[v1:10.0.0.1:6789/0]").is_err() && parse_mon_host(" , ").is_err());
    }

    #[test]
    fn variables_in_paths() {
        let name = AuthName::new(EntityType::Client, "bob");
        assert_eq!(
            expand("/etc/ceph/$cluster.$name.keyring", "c1", &name),
            "/etc/ceph/c1.client.bob.keyring"
        );
        assert_eq!(expand("${type}-$id", "c1", &name), "client-bob");
    }

    #[test]
    fn what_a_file_says_is_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let keyring = dir.path().join("ring");
        let key = "AQBtvwRhAAAAABAAd+Zbvta6uMnCbQL6VtNVYw==";
        std::fs::write(&keyring, format!("[client.bob]\n key = {key}\n")).expect("written");
        let conf = dir.path().join("my.conf");
        let text = format!(
            "[global]\nmon host = 127.0.0.1:1234\nkeyring = {}\n[client]\nrados osd op timeout = 2.5\n[client.bob]\nobjecter inflight ops = 7\n",
            keyring.display()
        );
        std::fs::write(&conf, text).expect("written");
        let name = AuthName::new(EntityType::Client, "bob");
        let find = Find { conf: Some(conf.clone()), name: Some(name), ..Find::default() };
        let config = Config::find(&find).expect("complete");
        assert_eq!(config.key.map(|k| k.to_base64()), Some(key.to_owned()));
        assert_eq!((config.op_timeout, config.objecter.max_ops), (Some(Duration::from_millis(2500)), 7));
        assert!(
            matches!(Config::from_file(conf), Err(Error::Config(e)) if e.contains("no key for client.admin"))
        );
        assert!(Config::from_file(dir.path().join("absent")).is_err());
    }
}
