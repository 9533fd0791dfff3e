//! `loligo rbd serve`: images over NBD, with or without the persistent cache.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use block::{BlockDevice, Cache, CacheFile, Exported, Server, Timing, Tls, TlsFiles};
use rbd::{Claim, Claimed, Doubt, Image, LockPolicy, OpenOptions, feature};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Rbd;
use super::args::{ServeArgs, TlsArgs};

/// Requests under way may take this long once the server is told to stop; then the images are closed all the same.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

impl Rbd<'_> {
    pub(super) async fn serve(&self, args: &ServeArgs) -> Result<()> {
        let tls = load_tls(&args.tls)?;
        if let Some(addr) = args.tcp {
            check_place(addr, tls.is_some() || args.tls.insecure)?;
        }
        let mut exports = Vec::new();
        for name in &args.images {
            exports.push(self.exported(name, args).await?);
        }
        let devices: Vec<Arc<dyn BlockDevice>> = exports.iter().map(|e| Arc::clone(&e.device)).collect();
        let (stop, stopped) = watch::channel(false);
        let server = Server::new(exports, stopped);
        let unix = match &args.unix {
            Some(path) => {
                let bound = block::bind_unix(path, args.unix_mode);
                Some(bound.with_context(|| format!("cannot listen on {}", path.display()))?)
            }
            None => None,
        };
        let tcp = match args.tcp {
            Some(addr) => {
                Some(TcpListener::bind(addr).await.with_context(|| format!("cannot listen on {addr}"))?)
            }
            None => None,
        };
        // Whoever reads where it is may end it at once.
        let mut signals = Signals::new()?;
        self.say_where(args, tcp.as_ref(), tls.is_some())?;
        let serving = async {
            let over_unix = async {
                if let Some(listener) = unix {
                    server.serve_unix(listener).await;
                }
            };
            let over_tcp = async {
                match (tcp, tls) {
                    (Some(listener), Some(tls)) => server.serve_tls(listener, tls).await,
                    (Some(listener), None) => server.serve_tcp(listener).await,
                    (None, _) => {}
                }
            };
            tokio::join!(over_unix, over_tcp);
        };
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = signals.next() => {}
        }
        let _ = stop.send(true);
        let ending = async {
            if tokio::time::timeout(DRAIN_LIMIT, &mut serving).await.is_err() {
                tracing::warn!("requests are still under way after {DRAIN_LIMIT:?}: closing without them");
            }
            if let Some(path) = &args.unix {
                let _ = std::fs::remove_file(path);
            }
            close_all(devices).await
        };
        tokio::select! {
            closed = ending => closed,
            () = signals.next() => bail!("ended at once by a second signal; caches keep what is left"),
        }
    }

    async fn exported(&self, name: &str, args: &ServeArgs) -> Result<Exported> {
        let description = format!("rbd image {name}");
        let device: Arc<dyn BlockDevice> = match &args.cache {
            Some(folder) => {
                let doubt = match (args.discard_cache, args.force_replay) {
                    (true, _) => Doubt::Discard,
                    (_, true) => Doubt::Replay,
                    _ => Doubt::Refuse,
                };
                let linger = Duration::from_millis(args.cache_linger_ms);
                let place = CachePlace { folder, size: args.cache_size, linger, doubt };
                Arc::new(self.open_cached(name, &place).await?)
            }
            None => {
                let options = OpenOptions { read_only: args.read_only, ..OpenOptions::default() };
                Arc::new(self.open(name, options).await?)
            }
        };
        Ok(Exported { name: name.to_owned(), description, device, read_only: args.read_only })
    }

    fn say_where(&self, args: &ServeArgs, tcp: Option<&TcpListener>, is_tls: bool) -> Result<()> {
        for name in &args.images {
            if let Some(path) = &args.unix {
                say!("nbd+unix:///{name}?socket={}", path.display());
            }
            if let Some(listener) = tcp {
                let scheme = if is_tls { "nbds" } else { "nbd" };
                say!("{scheme}://{}/{name}", listener.local_addr()?);
            }
        }
        Ok(())
    }
}

fn load_tls(args: &TlsArgs) -> Result<Option<Tls>> {
    let files = match (&args.tls_dir, &args.tls_cert, &args.tls_key, &args.tls_ca) {
        (Some(folder), ..) => TlsFiles::of_folder(folder),
        (None, Some(cert), Some(key), Some(ca)) => {
            TlsFiles { cert: cert.clone(), key: key.clone(), ca: ca.clone(), crl: None }
        }
        _ => return Ok(None),
    };
    Ok(Some(Tls::load(&files).context("cannot set up TLS")?))
}

/// Nobody offers images to a network by mistake.
fn check_place(addr: SocketAddr, may_be_anywhere: bool) -> Result<()> {
    if !may_be_anywhere && !addr.ip().to_canonical().is_loopback() {
        bail!(
            "whoever reaches {addr} would have the images: give certificates (--tls-dir, or --tls-cert, --tls-key and --tls-ca), \
             a loopback address, or --insecure for a network where that is meant"
        );
    }
    Ok(())
}

/// What ends the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Closes every device, side by side: one that fails or hangs keeps no other from it. Gives the first error.
async fn close_all(devices: Vec<Arc<dyn BlockDevice>>) -> Result<()> {
    let close = |device: Arc<dyn BlockDevice>| {
        tokio::spawn(async move {
            let closed = device.close().await;
            if let Err(e) = &closed {
                tracing::error!(error = %e, image = %device.identity(), "an image did not close in order");
            }
            closed
        })
    };
    let closing: Vec<_> = devices.into_iter().map(close).collect();
    let mut result = Ok(());
    for closed in closing {
        let closed = closed.await.context("closing an image").and_then(|closed| Ok(closed?));
        if result.is_ok() {
            result = closed.context("an image did not close in order; its cache keeps what is left");
        }
    }
    result
}

/// Nothing written for so long, and the image has everything: its mark goes.
const IDLE: Duration = Duration::from_secs(5);

/// Where an image's cache is, and how it behaves.
pub(super) struct CachePlace<'a> {
    pub folder: &'a Path,
    /// Bytes of a new file.
    pub size: u64,
    pub linger: Duration,
    pub doubt: Doubt,
}

impl Rbd<'_> {
    /// Opens an image and puts its cache over it; the lock is taken first, and kept, so that nobody else writes below the
    /// cache.
    pub(super) async fn open_cached(&self, name: &str, place: &CachePlace<'_>) -> Result<Cache> {
        let image = self.open(name, OpenOptions { lock: LockPolicy::Keep, ..OpenOptions::default() }).await?;
        let cached = put_cache_over(&image, place).await;
        if cached.is_err() {
            let _ = image.close().await;
        }
        cached
    }

    pub(super) async fn invalidate_cache(&self, name: &str) -> Result<()> {
        let image = self.open(name, OpenOptions { lock: LockPolicy::Keep, ..OpenOptions::default() }).await?;
        let claim = Claim { token: "", is_dirty: false, doubt: Doubt::Discard, place: "" };
        let claimed = image.claim(&claim).await;
        image.close().await?;
        claimed.map(drop).context("cannot take the image")
    }
}

async fn put_cache_over(image: &Image, place: &CachePlace<'_>) -> Result<Cache> {
    if !image.header().has(feature::EXCLUSIVE_LOCK) {
        bail!(
            "image {} lacks the exclusive-lock feature: nothing would keep others from writing below the cache",
            image.name()
        );
    }
    let folder = make_folder(place.folder)?;
    let path = folder.join(cache_name(image.id())?);
    let mut file = CacheFile::open(&path, &image.identity(), place.size)?;
    let dirty = file.dirty_records();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let claim = Claim {
        token: &file.token(),
        is_dirty: dirty > 0,
        doubt: place.doubt,
        place: &format!("{}:{}", host.trim(), path.display()),
    };
    let claimed = image.claim(&claim).await;
    let claimed = claimed.with_context(|| match (dirty, place.doubt) {
        (1.., Doubt::Refuse) => format!(
            "{} has {dirty} writes that image {} lacks; --discard-cache gives them up, --force-replay writes them over \
             what is there",
            path.display(),
            image.name()
        ),
        _ => "cannot lock the image for its cache".to_owned(),
    })?;
    if claimed == Claimed::GivenUp {
        tracing::warn!(records = dirty, path = %path.display(), "writes are given up");
        file.discard()?;
    }
    let idle = IDLE.max(place.linger * 2);
    Ok(Cache::start(file, Arc::new(image.clone()), Timing { linger: place.linger, idle }))
}

/// The cache's file. The id comes from the cluster, so it must not lead out of the folder.
fn cache_name(id: &str) -> Result<String> {
    let is_plain = !id.is_empty() && id.len() <= 128 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_plain {
        bail!("image id {id:?} has other characters than letters and digits: it names no file for a cache");
    }
    Ok(format!("{id}.cache"))
}

/// Nobody else may look into it: caches hold images' bytes.
fn make_folder(folder: &Path) -> Result<PathBuf> {
    let mut maker = std::fs::DirBuilder::new();
    let made = maker.recursive(true).mode(0o700).create(folder).and_then(|()| folder.canonicalize());
    made.with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_offered_to_no_network_by_mistake() {
        for (addr, is_local) in [
            ("127.0.0.1:10809", true),
            ("127.9.9.9:1", true),
            ("[::1]:10809", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:10809", false),
            ("[::]:10809", false),
            ("10.0.0.1:10809", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            let addr = addr.parse().unwrap();
            assert_eq!(check_place(addr, false).is_ok(), is_local, "{addr}");
            check_place(addr, true).unwrap();
        }
    }

    #[test]
    fn an_id_from_the_cluster_leads_out_of_no_folder() {
        assert_eq!(cache_name("10d8f8a1b2c3").unwrap(), "10d8f8a1b2c3.cache");
        for id in ["", "../../etc/x", "a/b", ".", "..", "a\0b", "\u{fc}", &"a".repeat(129)] {
            cache_name(id).unwrap_err();
        }
    }
}
