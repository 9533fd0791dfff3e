//! `loligo rgw`: an S3 server on the pools of a cluster, in radosgw's place or beside it.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::rgw::{UserId, UserInfo};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use gateway::{Error, Moment, Site, Start, Subusers};
use rados::Cluster;
use rgwio::{Limits, Performer, Worker};
use s3::encryption::{self, Ring};
use s3::{Bounds, Front, Gateway, Settings};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use types::{RealTime, Utime};
use zeroize::Zeroizing;

use crate::connect::ConnectArgs;
use crate::layout::{ClusterDir, PidLock};
use crate::rgw_keys::ConfigKeys;
use crate::rgw_options;

/// Requests under way may take this long once the server is told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Letters of a key and of its secret, as radosgw makes them. Source: PUBLIC_ID_LEN and SECRET_KEY_LEN in
/// src/rgw/rgw_user.h.
const KEY_LETTERS: usize = 20;
const SECRET_LETTERS: usize = 40;

pub const HELP: &str = "\
It stores what Ceph's radosgw 16.2 stores: both run side by side on one set of pools, and radosgw-admin administers either.
Pools that are missing are made. Its key needs the rights of a radosgw: mon 'allow rw' osd 'allow rwx'.
What clients want encrypted without a key of theirs (SSE-S3) has keys that the monitors keep (config-key rgw/sse-s3/...): with these it is lost.

A user, then a server, then a client:
  loligo rgw --add-user alice        prints an access key and a secret
  loligo rgw --port 7480
  s3cmd --host 127.0.0.1:7480 --host-bucket 127.0.0.1:7480 --no-ssl --access_key KEY --secret_key SECRET mb s3://b

Options of radosgw's that count, from the configuration file or set by `ceph config set client.NAME`, when it starts: rgw_crypt_require_ssl, rgw_trust_forwarded_https, rgw_crypt_s3_kms_backend
(testing), rgw_crypt_s3_kms_encryption_keys, rgw_crypt_default_encryption_key, rgw_enable_static_website, rgw_dns_s3website_name.

Served: buckets, objects with ranges and conditions, copies, uploads in parts, versions, ACLs, policies of buckets, tags, CORS, forms,
presigned URLs, quotas, locks on objects, lifecycles with moves to other storage classes, encryption, websites, the admin ops API (/admin); signatures of versions 4 and 2. A request for anything else,
STS for instance, is answered with 501 NotImplemented. The gateway speaks HTTP; for TLS put a proxy in front of it. Expired objects and
garbage are removed by any gateway of the zone, radosgw or this one.";

#[derive(Debug, Clone, Args)]
pub struct RgwArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Port to listen on.
    #[arg(long, value_name = "PORT", default_value_t = 7480)]
    port: u16,
    /// Address to listen on; 0.0.0.0 for all of this host.
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// The zone to serve; made when there is none of this name.
    #[arg(long, value_name = "NAME", default_value = "default")]
    rgw_zone: String,
    /// The zone's group.
    #[arg(long, value_name = "NAME", default_value = "default")]
    rgw_zonegroup: String,
    /// Connections at a time, half of which one address may take.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    max_connections: u32,
    /// What all requests may hold of objects: bytes, or a number with K, M, G or T.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = crate::args::parse_size)]
    window_memory: u64,
    /// Seconds that lifecycles take for a day, for tests; 0 for days, whose rounds begin between 0 and 6
    /// o'clock UTC.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    rgw_lc_debug_interval: u32,
    /// Seconds until a log of a bucket becomes an object, where the bucket's settings do not say it.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    rgw_bucket_logging_obj_roll_time: u32,
    /// Make a user with this name, print its access key and secret, and end.
    #[arg(long, value_name = "NAME")]
    add_user: Option<String>,
    /// Take the place of the gateway in the folder of --data, so that `loligo down` stops it.
    #[arg(long, hide = true, requires = "data")]
    of_folder: bool,
}

/// What a user signs with.
pub struct Keys {
    pub access_key: String,
    pub secret: Zeroizing<String>,
}

fn at_once<T>(with: impl FnOnce(&mut Moment) -> T) -> T {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sec = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
    let now = RealTime(Utime { sec, nsec: since.subsec_nanos() });
    with(&mut Moment { now, entropy: &mut runtime::OsEntropy })
}

/// The core's errors in words.
fn failed(what: &str, e: &Error) -> anyhow::Error {
    match e {
        Error::UserExists => anyhow::anyhow!("{what}: there is a user of this name"),
        Error::Realm => {
            anyhow::anyhow!("{what}: the cluster has a realm, and zones of realms are not served")
        }
        other => anyhow::anyhow!("{what}: {other:?} ({})", other.clone().errno()),
    }
}

/// The gateway's core on a cluster.
pub struct Store {
    performer: Performer,
    site: Site,
}

impl Store {
    pub async fn open(cluster: Cluster, zone: &str, zonegroup: &str) -> Result<Self> {
        let instance = cluster.global_id();
        let performer = Performer::new(cluster, &Limits::default());
        let (zone, zonegroup) = (zone.to_owned().into(), zonegroup.to_owned().into());
        let start = at_once(|moment| Site::start(Start { zone, zonegroup, instance }, moment));
        let site = performer.run(start).await.map_err(|e| failed("cannot open the zone", &e))?;
        Ok(Self { performer, site })
    }

    pub async fn add_user(&self, name: &str) -> Result<Keys> {
        let letters = |count| {
            let made = at_once(|moment| moment.letters(4 * count));
            let plain = made.iter().filter(|b| b.is_ascii_alphanumeric()).take(count);
            Zeroizing::new(plain.map(|b| char::from(*b)).collect::<String>())
        };
        let (access_key, secret) = (letters(KEY_LETTERS).to_ascii_uppercase(), letters(SECRET_LETTERS));
        let id = UserId::from_text(&Bytes::from(name.to_owned()));
        let mut info = UserInfo { id, display_name: name.to_owned().into(), ..UserInfo::default() };
        info.add_key(access_key.clone().into(), Bytes::copy_from_slice(secret.as_bytes()), Bytes::new())
            .map_err(|e| failed("cannot make a key", &e))?;
        let create = at_once(|moment| self.site.create_user(info, moment));
        self.performer.run(create).await.map_err(|e| failed("cannot make the user", &e))?;
        Ok(Keys { access_key, secret })
    }

    /// The first key of a user, which is made when there is none.
    pub async fn user_or_new(&self, name: &str) -> Result<Keys> {
        let id = UserId::from_text(&Bytes::from(name.to_owned()));
        let stored = match self.performer.run(self.site.user(&id)).await {
            Err(Error::NoSuchUser) => return self.add_user(name).await,
            found => found.map_err(|e| failed("cannot read the user", &e))?,
        };
        let key = stored.value.info.keys.values().next();
        let key = key.with_context(|| format!("the user {name} has no key; radosgw-admin can make one"))?;
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Keys { access_key: text(&key.id), secret: Zeroizing::new(text(&key.secret)) })
    }

    /// What works beside the requests of clients.
    fn worker(&self, interval: u32) -> Worker {
        Worker::new(self.site.clone(), self.performer.clone(), interval)
    }

    pub fn front(self, settings: Settings, window_bytes: u64) -> Arc<Front> {
        Arc::new(Front::new(Gateway::new(self.site, self.performer, settings), window_bytes))
    }
}

pub fn run(args: &RgwArgs) -> Result<()> {
    let mut config = args.connect.config()?;
    let (name, file) = (config.name.clone(), std::mem::take(&mut config.rgw));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    crate::connect::on(&runtime, config, async |cluster| {
        let cluster_of_options = cluster.clone();
        let store = Store::open(cluster, &args.rgw_zone, &args.rgw_zonegroup).await?;
        match &args.add_user {
            Some(name) => {
                let keys = store.add_user(name).await?;
                say!("access_key = {}", keys.access_key);
                say!("secret_key = {}", *keys.secret);
                Ok(())
            }
            None => {
                let options = rgw_options::in_force(&cluster_of_options, &name, file).await?;
                let keys = Arc::new(ConfigKeys(cluster_of_options.clone()));
                let stored = Some(Arc::new(Ring::new(keys)));
                let settings = Settings {
                    zonegroup: args.rgw_zonegroup.clone(),
                    encryption: encryption::Settings { stored, ..rgw_options::encryption(&options)? },
                    websites: rgw_options::websites(&options)?,
                    log_roll_s: args.rgw_bucket_logging_obj_roll_time,
                };
                // Some are secrets, of which the settings have what they need.
                drop(options);
                serve(store, args, settings).await
            }
        }
    })
}

/// The place of a folder's gateway, which says that it runs.
fn place(args: &RgwArgs) -> Result<Option<PidLock>> {
    let Some(data) = args.connect.data.as_ref().filter(|_| args.of_folder) else { return Ok(None) };
    let lock = ClusterDir::new(data)?.lock(crate::up_s3::NAME)?;
    Ok(Some(lock.context("the gateway of the folder runs already")?))
}

async fn serve(store: Store, args: &RgwArgs, settings: Settings) -> Result<()> {
    let listener = TcpListener::bind((args.listen, args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on {}:{}", args.listen, args.port))?;
    // After the port: whoever finds the place taken finds a gateway there, and not a stranger.
    let _place = place(args)?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let connections = usize::try_from(args.max_connections).unwrap_or(usize::MAX);
    let bounds = Bounds { connections, window_bytes: args.window_memory };
    if args.rgw_lc_debug_interval > 0 {
        tracing::warn!("lifecycles take {} s for a day: objects expire early", args.rgw_lc_debug_interval);
    }
    let worker = store.worker(args.rgw_lc_debug_interval);
    let front = store.front(settings, bounds.window_bytes);
    let (lifecycles, garbage) = (worker.clone(), worker.clone());
    let mut works = tokio::task::JoinSet::new();
    works.spawn(async move { lifecycles.run_lifecycles().await });
    works.spawn(async move { garbage.run_garbage().await });
    say!("http://{}", listener.local_addr()?);
    {
        let mut serving = pin!(s3::serve(listener, Arc::clone(&front), &bounds));
        loop {
            tokio::select! {
                () = &mut serving => break,
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                Some(ended) = works.join_next() => if let Err(e) = ended {
                    tracing::error!("objects do not expire, or garbage stays, until this gateway starts anew: {e}");
                },
            }
        }
    }
    worker.stop();
    // What clients wait for is brought to its end, and so is a step of the work.
    let drained = async {
        while !front.is_idle() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while works.join_next().await.is_some() {}
    };
    tokio::select! {
        drained = tokio::time::timeout(DRAIN_LIMIT, drained) => {
            if drained.is_err() {
                tracing::warn!("requests are still under way after {DRAIN_LIMIT:?}: ending without them");
            }
            Ok(())
        }
        // `down` may ask twice; a user who waits interrupts.
        _ = interrupt.recv() => bail!("ended at once by a second signal"),
    }
}
