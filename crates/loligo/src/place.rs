//! One daemon: who it is, what it is told, and where its things lie, by a `ceph.conf` or by the folder of `loligo up`.
//!
//! Source: src/common/options.cc (mon_data, osd_data, mgr_data, keyring), doc/install/manual-deployment.rst.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use admin::options::Values;
use anyhow::{Context, Result, bail};
use cephx::{CryptoKey, Keyring};
use daemons::auth::{Method, SharedAuth};
use daemons::listen::ListenAt;
use rados::Conf;
use types::{AuthName, EntityAddr, EntityType, Fsid};

use crate::args::DaemonArgs;
use crate::layout::{ClusterDir, Description, PidLock, host_name, lock_file};
use crate::{client, network};

/// See the module.
#[derive(Debug, Clone)]
pub struct Place {
    /// `osd.3`.
    pub name: AuthName,
    /// What the configuration file and the command line say.
    pub options: BTreeMap<String, String>,
    pub data: PathBuf,
    pub fsid: Option<Fsid>,
    pub method: Method,
    pub monitors: Vec<EntityAddr>,
    /// The folder of `loligo up` that it belongs to, if any.
    pub folder: Option<ClusterDir>,
    /// Keyrings that may hold its key, the likeliest first.
    keyrings: Vec<PathBuf>,
    /// The configuration file that was read.
    conf: Option<PathBuf>,
}

impl Place {
    /// A daemon of a folder.
    pub fn in_folder(dir: &ClusterDir, d: &Description, kind: EntityType, id: &str) -> Result<Self> {
        let name = AuthName::new(kind, id);
        let data = dir.daemon_dir(&name.to_string());
        Ok(Self {
            options: Conf::read(&dir.conf())?.for_daemon(kind.as_str(), id),
            keyrings: vec![data.join("keyring")],
            data,
            fsid: Some(Fsid::parse(&d.fsid).context("the folder's fsid is damaged")?),
            method: client::method(d),
            monitors: client::monitors(d),
            folder: Some(dir.clone()),
            conf: Some(dir.conf()),
            name,
        })
    }

    /// A daemon by its configuration file and command line alone.
    pub fn by_conf(args: &DaemonArgs, kind: EntityType, id: &str) -> Result<Self> {
        let name = AuthName::new(kind, id);
        let conf = conf_file(args)?;
        let read = conf.as_deref().map_or_else(|| Ok(Conf::default()), Conf::read)?;
        let mut options = read.for_daemon(kind.as_str(), id);
        let given = args.given()?;
        options.extend(given.clone());
        let values = Values::new(name.to_string(), &options);
        let named = match kind {
            EntityType::Mon => "mon_data",
            EntityType::Osd => "osd_data",
            EntityType::Mds => "mds_data",
            _ => "mgr_data",
        };
        let data = values.get(named).unwrap_or_default();
        let data = std::path::absolute(&data).with_context(|| format!("bad path {data}"))?;
        let fsid = values.get("fsid").filter(|f| !f.is_empty());
        let fsid =
            fsid.map(|f| Fsid::parse(&f).with_context(|| format!("fsid = {f} is no UUID"))).transpose()?;
        let own = vec![data.join("keyring")];
        let named = options.contains_key("keyring").then(|| values.get("keyring")).flatten();
        let words = named.iter().flat_map(|list| list.split([',', ';', ' ']));
        let named: Vec<PathBuf> = words.filter(|w| !w.is_empty()).map(PathBuf::from).collect();
        // A [global] keyring is the clients'; one on the command line is meant for this daemon.
        let keyrings =
            if given.contains_key("keyring") { [named, own].concat() } else { [own, named].concat() };
        let monitors = match options.get("mon_host").filter(|h| !h.is_empty()) {
            Some(hosts) => rados::parse_mon_host(hosts)?,
            None => Vec::new(),
        };
        let fsid = fsid.filter(|f| !f.is_zero());
        let method = method(&values)?;
        check_modes(&values, method)?;
        Ok(Self { name, options, data, fsid, method, monitors, folder: None, keyrings, conf })
    }

    pub fn values(&self) -> Values {
        Values::new(self.name.to_string(), &self.options)
    }

    /// The host's name, as its CRUSH bucket has it.
    pub fn host(&self) -> String {
        self.values().get("host").filter(|h| !h.is_empty()).unwrap_or_else(host_name)
    }

    /// The key of `name`, which is this daemon or the monitors' common one.
    pub fn key(&self, name: &AuthName) -> Result<CryptoKey> {
        for path in &self.keyrings {
            let Ok(text) = std::fs::read_to_string(path) else { continue };
            let keyring =
                Keyring::parse(&text).with_context(|| format!("{} is not a keyring", path.display()))?;
            if let Some(entry) = keyring.get(name) {
                return Ok(entry.key.clone());
            }
        }
        let places: Vec<String> = self.keyrings.iter().map(|p| p.display().to_string()).collect();
        bail!("no key for {name} in {}", places.join(", "))
    }

    /// What the daemon logs in with.
    pub fn auth(&self) -> Result<std::sync::Arc<SharedAuth>> {
        let key = match self.method {
            Method::None => self.key(&self.name).unwrap_or(no_key()?),
            Method::Cephx => self.key(&self.name)?,
        };
        let auth = SharedAuth::new(self.method, self.name.clone(), key, self.name.kind);
        Ok(auth.with_options(&self.options))
    }

    /// How the daemon reaches the cluster as a client of it.
    pub fn client(&self) -> Result<rados::Config> {
        let key = match self.method {
            Method::None => None,
            Method::Cephx => Some(self.key(&self.name)?),
        };
        let mut config = rados::Config::new(self.monitors.clone(), self.name.clone(), key);
        let modes =
            self.options.iter().filter(|(name, _)| name.starts_with("ms_") && name.ends_with("_mode"));
        config.modes = modes.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(config)
    }

    /// Where an OSD or a manager listens.
    pub fn listen(&self) -> Result<ListenAt> {
        if self.folder.is_some() {
            let monitor = self.monitors.iter().find_map(|m| m.socket).context("the folder has a monitor")?;
            return Ok(ListenAt::all_at(monitor.ip()));
        }
        let values = self.values();
        let public = network::public(&values, &self.monitors)?.ip();
        let cluster = match self.name.kind {
            EntityType::Osd => network::cluster(&values, public)?,
            _ => public,
        };
        let port = |name: &str| u16::try_from(values.int(name)).unwrap_or(0);
        let ports = port("ms_bind_port_min")..port("ms_bind_port_max").saturating_add(1);
        Ok(ListenAt { public, cluster, ports })
    }

    /// Takes the daemon's place until the lock is dropped, so that no second process uses its data.
    pub fn lock(&self) -> Result<PidLock> {
        let taken = match &self.folder {
            Some(dir) => dir.lock(&self.name.to_string())?,
            None if !self.data.is_dir() => bail!(
                "there is no folder {} ({}_data); --data names a folder of loligo up",
                self.data.display(),
                self.name.kind.as_str()
            ),
            None => lock_file(&self.data.join("pid"))?,
        };
        taken.with_context(|| format!("{} is already running on {}", self.name, self.data.display()))
    }

    /// One line for all the options in the configuration file that do not exist; they are ignored otherwise.
    pub fn warn_of_settings(&self) -> Result<()> {
        match &self.conf {
            Some(conf) => warn_of_settings(conf),
            None => Ok(()),
        }
    }

    /// Says where it is missing what it has to be told.
    pub fn need_monitors(&self) -> Result<()> {
        if !self.monitors.is_empty() {
            return Ok(());
        }
        match &self.conf {
            Some(conf) => bail!("{} names no monitors ('mon host')", conf.display()),
            None => bail!(
                "there is no configuration file (-c, $CEPH_CONF, /etc/ceph/ceph.conf) and no --mon-host"
            ),
        }
    }
}

pub fn warn_of_settings(conf: &Path) -> Result<()> {
    let read = Conf::read(conf)?;
    let unknown: Vec<&str> = read.names().filter(|name| admin::options::find(name).is_none()).collect();
    if !unknown.is_empty() {
        tracing::warn!("{}: unknown options are ignored: {}", conf.display(), unknown.join(", "));
    }
    let idle = |(section, name): (&str, &str)| admin::options::find(name)?.no_effect_on(section);
    for why in read.settings().filter_map(idle).collect::<BTreeSet<_>>() {
        tracing::warn!("{}: {why}", conf.display());
    }
    Ok(())
}

/// `-c`, then `CEPH_CONF`, then the usual place.
fn conf_file(args: &DaemonArgs) -> Result<Option<PathBuf>> {
    if let Some(path) = args.conf.clone().or_else(|| std::env::var_os("CEPH_CONF").map(PathBuf::from)) {
        if !path.is_file() {
            bail!("there is no configuration file {}", path.display());
        }
        return Ok(Some(path));
    }
    let usual = PathBuf::from("/etc/ceph/ceph.conf");
    Ok(usual.is_file().then_some(usual))
}

/// The one method that daemons use among themselves and with clients, cephx where both may be used.
///
/// Ceph takes each option by itself. Here daemons and clients log in alike, so options that differ are refused: taking one
/// for all would open the cluster to clients, or lock them out. Source: AuthRegistry::_refresh_config.
fn method(values: &Values) -> Result<Method> {
    let all = values.get("auth_supported").filter(|v| !v.is_empty());
    let names = ["auth_cluster_required", "auth_service_required", "auth_client_required"];
    let mut lists = Vec::new();
    for name in names {
        let text = all.clone().or_else(|| values.get(name)).unwrap_or_default();
        let words: Vec<String> =
            text.split([',', ';', ' ']).filter(|w| !w.is_empty()).map(str::to_owned).collect();
        if let Some(word) = words.iter().find(|w| !["cephx", "none"].contains(&w.as_str())) {
            bail!("{name} = {text}: there is no authentication method {word}, only cephx and none");
        }
        lists.push((name, text, words));
    }
    for (word, method) in [("cephx", Method::Cephx), ("none", Method::None)] {
        if lists.iter().all(|(_, _, words)| words.iter().any(|w| w == word)) {
            return Ok(method);
        }
    }
    let said: Vec<String> = lists.iter().map(|(name, text, _)| format!("{name} = {text}")).collect();
    bail!("{} have no method in common: set all three to cephx, or all to none", said.join(", "))
}

/// Connection modes that do not exist, or that leave nothing without authentication.
fn check_modes(values: &Values, method: Method) -> Result<()> {
    for (name, _) in cephx::MODE_OPTIONS {
        let text = values.get(name).unwrap_or_default();
        if let Err(word) = cephx::parse_modes(&text) {
            bail!("{name} = {text}: there is no connection mode {word}, only crc and secure");
        }
        if cephx::modes_allowed(&text, method.number()).is_empty() {
            bail!("{name} = {text} cannot be had without authentication: there is no key to encrypt with");
        }
    }
    Ok(())
}

/// Where nothing is authenticated, a key is asked for and not used.
fn no_key() -> Result<CryptoKey> {
    CryptoKey::from_base64("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==").context("a key of zeros")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(options: &[(&str, &str)]) -> Values {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Values::new("osd.0", &options)
    }

    #[test]
    fn each_option_of_authentication_counts_and_they_must_agree() {
        let (cluster, service, client) =
            ("auth_cluster_required", "auth_service_required", "auth_client_required");
        for (options, expected) in [
            (&[][..], Some(Method::Cephx)),
            (&[(cluster, "none"), (service, "none"), (client, "none")], Some(Method::None)),
            (&[(cluster, "none"), (service, "none")], Some(Method::None)),
            (&[(cluster, "none, cephx"), (service, "cephx")], Some(Method::Cephx)),
            (&[("auth_supported", "none")], Some(Method::None)),
            (&[("auth_supported", "cephx"), (service, "none")], Some(Method::Cephx)),
            (&[(cluster, "none")], None),
            (&[(service, "none")], None),
            (&[(client, "none")], None),
            (&[(client, "gss")], None),
        ] {
            assert_eq!(method(&values(options)).ok(), expected, "{options:?}");
        }
        let why = method(&values(&[(cluster, "none")])).expect_err("refused").to_string();
        assert!(why.contains("auth_cluster_required = none, auth_service_required = cephx"), "{why}");
    }

    #[test]
    fn modes_that_cannot_be_are_refused_at_the_start() {
        let check = |options: &[(&str, &str)], method| check_modes(&values(options), method).is_ok();
        assert!(check(&[("ms_service_mode", "secure")], Method::Cephx));
        assert!(!check(&[("ms_service_mode", "secrue")], Method::Cephx));
        assert!(!check(&[("ms_service_mode", "secure")], Method::None));
        assert!(check(&[], Method::None));
    }
}
